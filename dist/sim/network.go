package sim

// way is a link in one direction.
type way struct {
	free  Time // when the last byte of all messages so far is on it
	bytes int
}

// network is the links of a job, with the messages on them, and the clock.
type network struct {
	*engine
	plan       *wiring
	ways       []way // of each cable, first those up
	perMessage Time
	perByte    float64 // of memory, in picoseconds
	nothing    []byte
	marks      []Time // when the last rank came there
	messages   int
	across     int // bytes from host to host
}

// hop is a link on a path.
type hop struct {
	way int
	*cable
}

func newNetwork(plan *wiring) *network {
	n := &network{engine: newEngine(), plan: plan, ways: make([]way, plan.ways), perMessage: nanoseconds(plan.top.MessageNS)}
	if plan.top.MemoryGBs > 0 {
		n.perByte = 1e3 / plan.top.MemoryGBs
	}
	return n
}

// carry sends a message on a path at the current time. Every link takes the messages in the order in which they are sent, at its own
// rate, and passes the first byte on at once: there is no waiting for whole messages. Switches can keep what the next link cannot take
// yet.
func (n *network) carry(path []hop, from, to, bytes int) (sent, arrived Time) {
	n.messages++
	if host := n.plan.top.Host; from/host != to/host {
		n.across += bytes
	}
	head, tail := n.now, n.now
	for i, h := range path {
		w := &n.ways[h.way]
		head = max(head, w.free)
		tail = max(head+of(bytes, h.each), tail)
		w.free = tail
		w.bytes += bytes
		if i == 0 {
			sent = tail
		}
		head, tail = head+h.latency, tail+h.latency
	}
	return sent, tail
}

// latest returns when the last thread ended.
func (n *network) latest() Time {
	t := Time(0)
	for _, x := range n.threads {
		t = max(t, x.now)
	}
	return t
}

// traffic returns what was on the links.
func (n *network) traffic() []Traffic {
	var all []Traffic
	for _, c := range n.plan.cables {
		if c == nil {
			continue
		}
		t := Traffic{Link: c.Name}
		for _, w := range n.ways[c.first : c.first+2*c.count] {
			t.Bytes += w.bytes
			t.Most = max(t.Most, w.bytes)
		}
		all = append(all, t)
	}
	return all
}

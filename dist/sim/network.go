package sim

// way is a link in one direction.
type way struct {
	free  Time // when the last byte of all messages so far is on it
	bytes int
}

// network is the links of a job, with the messages on them, and the clock.
type network struct {
	engine
	plan       *wiring
	perMessage Time
	perByte    float64 // of memory, in picoseconds
	spans      []Span
	messages   int
	across     int // bytes from host to host
}

// Span is from when the last rank begins something to when the last one has done it.
type Span struct{ Start, End Time }

// hop is a link on a path.
type hop struct {
	way int
	*cable
}

// network is that of a job of so many ranks, each of which touches so many bytes. Its error says why that cannot be.
func (t *Topology) network(ranks, touched int) (*network, error) {
	w, err := t.wire(ranks)
	if err != nil {
		return nil, err
	}
	n := &network{plan: w, perMessage: nanoseconds(t.MessageNS)}
	slow := t.slow(touched)
	if t.MemoryGBs > 0 {
		n.perByte = slow * 1e3 / t.MemoryGBs
	}
	for _, c := range w.cables {
		if t.inMemory(c.Link) {
			c.each *= slow
		}
	}
	return n, nil
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
		w := &h.ways[h.way]
		head = max(head, w.free)
		tail = max(head.plus(of(bytes, h.each)), tail)
		w.free = tail
		w.bytes += bytes
		if i == 0 {
			sent = tail
		}
		head, tail = head.plus(h.latency), tail.plus(h.latency)
	}
	return sent, tail
}

// traffic returns what was on the links.
func (n *network) traffic() []Traffic {
	var all []Traffic
	for _, c := range n.plan.cables {
		t := Traffic{Link: c.Name}
		for _, w := range c.ways {
			t.Bytes += w.bytes
			t.Most = max(t.Most, w.bytes)
		}
		all = append(all, t)
	}
	return all
}

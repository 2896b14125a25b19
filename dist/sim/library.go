package sim

import "slices"

// Library is the collectives of a library for GPUs, such as NCCL, on a network: rings through all cards of a host, the fastest of several
// protocols, and switches that add up. They are among n ranks, which are so far from each other, and of so many bytes in the full buffer.
// It remembers what it has simulated: the Topology must stay as it is, and one goroutine at a time may use it.
type Library struct {
	*Topology
	times map[rotation]Time // of those that were simulated
}

// rotation is steps in which each of n ranks sends so many bytes to the next one. With each step they go so many ranks farther: 0 is an
// all-gather around the ring, 1 an all-to-all.
type rotation struct{ far, n, part, steps, farther, protocol int }

// AllReduce returns the time of an all-reduce: two times around a ring, or by a switch that is above all ranks and adds up.
func (l *Library) AllReduce(far, n, bytes int) (Time, error) {
	best, err := l.around(far, n, bytes, 2)
	for _, x := range l.Links {
		if x.From == "rank" && !x.Rails && x.Sums > 0 && (n-1)*far < x.Ports {
			best = min(best, l.bySwitch(x, n, bytes))
		}
	}
	return best, err
}

// AllGather returns the time of an all-gather.
func (l *Library) AllGather(far, n, bytes int) (Time, error) { return l.around(far, n, bytes, 1) }

// AllToAll returns the time of an all-to-all: a rank exchanges a part with the next one, in the next step with the next but one, and so on.
func (l *Library) AllToAll(far, n, bytes int) (Time, error) {
	return l.time(l.Topology, rotation{far, n, (bytes + n - 1) / n, n - 1, 1, -1})
}

// around returns the time of so many all-gathers in one operation, by the fastest protocol.
func (l *Library) around(far, n, bytes, times int) (best Time, err error) {
	protocols := l.Protocols
	if len(protocols) == 0 {
		protocols = []Protocol{{Part: 1}}
	}
	few, err := l.enough(far, n)
	if err != nil {
		return 0, err
	}
	for i, p := range protocols {
		by := *l.Topology
		by.MessageNS += p.MessageNS
		by.Links = slices.Clone(l.Links)
		for k := range by.Links {
			by.Links[k].GBs *= p.Part
		}
		once, err := straight(bytes, n<<20, func(bytes int) (Time, error) {
			return l.ring(&by, rotation{far: far, n: few, part: (bytes + n - 1) / n, protocol: i}, n-1)
		})
		if err != nil {
			return 0, err
		}
		x := nanoseconds(p.CallNS)
		for range times {
			x = x.plus(once)
		}
		if n > 1 && (i == 0 || x < best) {
			best = x
		}
	}
	if best == forever {
		return 0, errLong
	}
	return best, nil
}

// ring returns the time of so many steps around a ring. When a part has been on as many hops as two hosts have, all further ones take the
// same time, so it is enough to simulate as many again.
func (l *Library) ring(by *Topology, h rotation, steps int) (Time, error) {
	return straight(steps, 4*l.Host, func(steps int) (Time, error) {
		h.steps = steps
		return l.time(by, h)
	})
}

// enough returns how many ranks of a ring take as long as n. If messages take no other links than those of two ranks, and those of a kind
// that depends only on the place in a host, then all hosts do the same. So it is enough that no part comes back where it was.
func (l *Library) enough(far, n int) (int, error) {
	each := l.together(far, n)
	few := (4*l.Host/each + 2) * each
	for few < n && l.together(far, few) != each { // not as many rings
		few++
	}
	if n <= few {
		return n, nil
	}
	w, err := l.wire(l.ranks(far, n))
	if err != nil {
		return 0, err
	}
	var path []hop
	for c := range each {
		ranks, first := turned(far, n, each, c), []*cable(nil)
		for i, r := range ranks {
			path = w.route(path[:0], r, ranks[(i+1)%n])
			if i < each {
				first = append(first, path[0].cable)
			}
			if len(path) != 2 || path[0].cable != first[i%each] {
				return n, nil
			}
		}
	}
	return few, nil
}

// ranks returns how many ranks the hosts of n ranks have, so far from each other.
func (t *Topology) ranks(far, n int) int { return ((n-1)*far + t.Host) / t.Host * t.Host }

// straight returns the time of n, which beyond few is on a straight line: that of few and of half of it.
func straight(n, few int, time func(n int) (Time, error)) (Time, error) {
	long, err := time(min(n, few))
	if err != nil || n <= few {
		return long, err
	}
	short, err := time(few / 2)
	return long.plus(of(n-few, float64(long-short)/float64(few-few/2))), err
}

// bySwitch is how NCCL does it: 16 channels of chunks, for each rank one, which are smaller for fewer bytes. Each rank reads the sum of its
// chunk, for which all send, and writes it to all: bytes·(1+1/n) in each direction. Of the first chunks, reads, writes and two copies in
// memory come one after the other.
func (l *Library) bySwitch(x Link, n, bytes int) Time {
	first := 16 * n * 128 << 10
	for _, few := range []int{64, 8, 2} {
		if bytes < few*first {
			first /= 2
		}
	}
	first = min(first, bytes)
	each := 1e3 / (x.GBs * x.Sums)
	all := nanoseconds(x.SumsNS).plus(of(bytes, each*float64(n+1)/float64(n))).plus(of(first, each*float64(n-1)/float64(n)))
	if l.MemoryGBs > 0 {
		all = all.plus(of(2*first, 1e3/l.MemoryGBs))
	}
	return all
}

// time simulates a rotation, once. If several ranks of each host are among them, an all-gather has as many rings, with a part of the bytes
// each, which enter and leave hosts at other ranks: so all cards are in use.
func (l *Library) time(by *Topology, h rotation) (Time, error) {
	if t, ok := l.times[h]; ok || h.n < 2 {
		return t, nil
	}
	net, err := by.network(l.ranks(h.far, h.n), everything)
	if err != nil {
		return 0, err
	}
	rings := 1
	if h.farther == 0 {
		rings = l.together(h.far, h.n)
	}
	for c := range rings {
		for i, r := range net.group(turned(h.far, h.n, rings, c)).ranks {
			r.start(func() error {
				b := r.Memory((h.part + rings - 1) / rings)
				for k := range h.steps {
					far := 1 + k*h.farther
					if err := r.SendRecv((i+far)%h.n, b, (i-far+h.n)%h.n, b, 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if err := net.run(); err != nil {
		return 0, err
	}
	if l.times == nil {
		l.times = map[rotation]Time{}
	}
	l.times[h] = net.last
	return net.last, nil
}

// together returns how many of the ranks each host has; 1 if that differs, or if there is one host.
func (t *Topology) together(far, n int) int {
	each := (t.Host + far - 1) / far
	if each >= n || n%each != 0 {
		return 1
	}
	for i := range n {
		if i*far/t.Host != i/each*each*far/t.Host {
			return 1
		}
	}
	return each
}

// turned returns n ranks, so far from each other, with those of each host turned by so many places.
func turned(far, n, each, by int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = (i/each*each + (i+by)%each) * far
	}
	return ranks
}

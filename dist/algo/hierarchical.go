package algo

import (
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// In the hierarchical algorithms N is the number of hosts, and g the number of ranks on this rank's host. Ranks may be on hosts in any
// order, and hosts may have different numbers of ranks. Data between ranks of one host never crosses the network.

// hosts is a layout as one rank sees it.
type hosts struct {
	ranks  [][]int // of each host, in order; all ranks share them
	me, at int     // this rank's host, and its place there
	cuts   []int   // elements at which the slice of any host ends
}

func newHosts(t *Tuner, rank int) *hosts {
	h := &hosts{ranks: t.ranks(), me: t.at[rank]}
	h.at = slices.Index(h.mine(), rank)
	return h
}

func (h *hosts) mine() []int { return h.ranks[h.me] }

// neighbors returns the ranks of this host that are s places after this one and s places before it.
func (h *hosts) neighbors(s int) (to, from int) {
	g := len(h.mine())
	return (h.at + s) % g, (h.at - s + g) % g
}

// hierarchicalAllReduce: reduce-scatter inside each host, all-reduce of the slices between hosts, all-gather inside each host (the
// two-level scheme of NCCL's and Horovod's hierarchical all-reduce). Bytes: 2S(g−1)/g inside and 2(S/g)(N−1)/N to other hosts, which is
// 2S(N−1)/N for a host, however many ranks it has. If hosts differ in size, so do their slices. Then a slice is cut at every element
// where a slice of some host ends, and each such segment is reduced by the N ranks that own it. 2(g−1) steps inside, 2(N−1) for each
// segment. Elements are added inside hosts first, then over hosts.
func (m *Messages) hierarchicalAllReduce(op *backend.Op) error {
	h := m.hosts()
	at, src, dst := m.slices(op, len(h.mine())), whole(op.Src), whole(op.Dst)
	m.fold.begin(op, m.t.Size())
	if err := m.reduceInside(h, dst, src, at); err != nil {
		return err
	}
	if err := m.reduceAcross(h, op, dst); err != nil {
		return err
	}
	own := at.of(dst, h.at)
	for s := 1; s < len(h.mine()); s++ {
		to, from := h.neighbors(s)
		if err := m.t.SendRecv(h.mine()[to], own, h.mine()[from], at.of(dst, from), 0); err != nil {
			return err
		}
	}
	return nil
}

// reduceInside leaves the host's sum of this rank's slice in dst.
func (m *Messages) reduceInside(h *hosts, dst, src []byte, at parts) error {
	for k := range numChunks(at.longest(len(h.mine()))) {
		sum := chunkOf(at.of(dst, h.at), k)
		copyPart(sum, m.fold.own(chunkOf(at.of(src, h.at), k)))
		for s := 1; s < len(h.mine()); s++ {
			to, from := h.neighbors(s)
			if err := m.addExchange(h.mine()[to], m.fold.own(chunkOf(at.of(src, to), k)), h.mine()[from], sum); err != nil {
				return err
			}
		}
	}
	return nil
}

// addExchange sends out and adds what comes from the other peer to sum.
func (m *Messages) addExchange(to int, out []byte, from int, sum []byte) error {
	in := m.scratch(1, len(sum))
	if err := m.t.SendRecv(to, out, from, in, 0); err != nil {
		return err
	}
	m.fold.add(sum, sum, in)
	return nil
}

// reduceAcross computes the result of each segment of this rank's slice.
func (m *Messages) reduceAcross(h *hosts, op *backend.Op, dst []byte) error {
	h.cuts = h.cuts[:0]
	last := 0 // hosts of one size have the same slices
	for _, ranks := range h.ranks {
		for i := 0; i <= len(ranks) && len(ranks) != last; i++ {
			h.cuts = append(h.cuts, op.Count*i/len(ranks))
		}
		last = len(ranks)
	}
	slices.Sort(h.cuts)
	h.cuts = slices.Compact(h.cuts)
	if op.Count == 0 {
		h.cuts = append(h.cuts, 0) // one empty segment: hosts must hear from each other
	}
	size := op.DType.Size()
	for i := range len(h.cuts) - 1 {
		lo, hi := h.cuts[i], h.cuts[i+1]
		owns := func(host int) int { return h.ranks[host][owner(op.Count, len(h.ranks[host]), lo)] }
		if owns(h.me) != m.t.Rank() {
			continue
		}
		if err := m.reduceSegment(h, owns, dst[lo*size:hi*size], size); err != nil {
			return err
		}
	}
	return nil
}

// owner returns which of n slices of count elements holds the element at.
func owner(count, n, at int) int {
	for i := range n {
		if at < count*(i+1)/n {
			return i
		}
	}
	return 0 // the buffer is empty
}

// reduceSegment all-reduces a segment among its owners, one on each host: each reduces one slice of it and sends the result to the others.
func (m *Messages) reduceSegment(h *hosts, owns func(host int) int, b []byte, size int) error {
	n := len(h.ranks)
	sub := func(host int) []byte {
		count := len(b) / size
		return b[count*host/n*size : count*(host+1)/n*size]
	}
	own := sub(h.me)
	for k := range numChunks((len(b)/size + n - 1) / n * size) {
		for s := 1; s < n; s++ {
			to, from := (h.me+s)%n, (h.me-s+n)%n
			if err := m.addExchange(owns(to), chunkOf(sub(to), k), owns(from), chunkOf(own, k)); err != nil {
				return err
			}
		}
	}
	m.fold.end(own)
	for s := 1; s < n; s++ {
		to, from := (h.me+s)%n, (h.me-s+n)%n
		if err := m.t.SendRecv(owns(to), own, owns(from), sub(from), 0); err != nil {
			return err
		}
	}
	return nil
}

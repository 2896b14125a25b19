package zeropp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/pool"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Hops adds up gradients in a host first, then between hosts, each time as 4-bit codes. In the first hop, a rank gets the parts of its
// peers: the ranks that have its number in their hosts. In the second hop, each peer gets its part.
type Hops struct {
	exec   *tensor.Exec
	within *dist.Group // the ranks of this host
	across *dist.Group // the peers of this rank
	order  []int       // ranks of all: the peers of each rank of this host
	codes  pool.Pool   // of a reduction
	sums   pool.Pool   // what is added up between the hops
}

// newHops makes the groups of the hops. hosts has the ranks of each rank's host. It is collective.
func newHops(all, host *dist.Group, hosts [][]int, exec *tensor.Exec) (*Hops, error) {
	h := &Hops{exec: exec}
	for number := range hosts[0] {
		for i, r := range all.Ranks() {
			if len(hosts[i]) != len(hosts[0]) {
				return nil, fmt.Errorf("fsdp: Config.Grads is for hosts of equally many ranks: rank %d is one of %d, and rank %d one of %d",
					all.Ranks()[0], len(hosts[0]), r, len(hosts[i]))
			}
			if hosts[i][number] == r {
				h.order = append(h.order, i)
			}
		}
	}
	h.within = host.With(dist.Name(host.Name() + " host reduce"))
	h.codes = pool.Pool{Group: h.within, Kind: memory.Communication}
	h.sums = pool.Pool{Group: h.within, Kind: memory.Communication}
	across, err := all.Split(host.Rank(), all.Rank())
	h.across = across
	return h, err
}

// Reduction reduces the gradients of a unit in two hops.
type Reduction struct {
	h         *Hops
	codes     tensor.Tensor // of both hops; no memory but in a reduction
	sums      tensor.Tensor // of the host, of the parts of the peers; no memory but between the hops
	near, far leg
}

// leg is a hop.
type leg struct {
	send, recv  tensor.Tensor
	sizes, from []int   // bytes for each rank, and from each rank
	out, in     []coded // what is rounded, and what codes are added to
}

// coded is values and their codes.
type coded struct{ values, codes tensor.Tensor }

// NewReduction makes room for the codes of grads, of which each rank gets so many elements; to is what this rank's are added to.
func (h *Hops) NewReduction(grads, to tensor.Tensor, counts []int) *Reduction {
	ranks, peers := h.within.Size(), h.across.Size()
	lens, sizes, parts := []int(nil), []int(nil), runs(grads, counts)
	for _, r := range h.order {
		lens, sizes = append(lens, counts[r]), append(sizes, Size4(counts[r]))
	}
	first := h.within.Rank() * peers // of the parts that this rank adds up
	lens, mine := lens[first:first+peers], sizes[first:first+peers]
	own := slices.Repeat([]int{mine[h.across.Rank()]}, peers)

	x := &Reduction{h: h, sums: h.sums.New(grads.DType(), total(lens))}
	x.far.sizes, x.far.from = mine, own
	for r := range ranks {
		x.near.sizes = append(x.near.sizes, total(sizes[r*peers:(r+1)*peers]))
		x.near.from = append(x.near.from, total(mine))
	}
	areas := []int{total(sizes), ranks * total(mine), total(mine), total(own)}
	x.codes = h.codes.New(tensor.Uint8, total(areas))
	in := runs(x.codes, areas)
	x.near.send, x.near.recv, x.far.send, x.far.recv = in[0], in[1], in[2], in[3]

	sums := runs(x.sums, lens)
	for i, codes := range runs(x.near.send, sizes) {
		x.near.out = append(x.near.out, coded{parts[h.order[i]], codes})
	}
	for i, codes := range runs(x.near.recv, slices.Repeat(mine, ranks)) {
		x.near.in = append(x.near.in, coded{sums[i%peers], codes})
	}
	for i, codes := range runs(x.far.send, mine) {
		x.far.out = append(x.far.out, coded{sums[i], codes})
	}
	for _, codes := range runs(x.far.recv, own) {
		x.far.in = append(x.far.in, coded{to, codes})
	}
	return x
}

// Start issues the first hop.
func (x *Reduction) Start() dist.Work {
	x.h.codes.Lend(x.codes)
	return x.h.issue(&x.near, x.h.within)
}

// Hop issues the second hop, when the first one is over.
func (x *Reduction) Hop() dist.Work {
	h := x.h
	h.sums.Lend(x.sums)
	h.exec.Fill(x.sums, 0)
	h.addUp(&x.near)
	work := h.issue(&x.far, h.across)
	h.sums.GiveBack(x.sums)
	return work
}

// Finish adds what the second hop has brought, when it is over.
func (x *Reduction) Finish() { x.h.addUp(&x.far) }

// Free gives the memory of the codes back, if it was lent.
func (x *Reduction) Free() { x.h.codes.GiveBack(x.codes) }

// issue issues a hop of values.
func (h *Hops) issue(l *leg, g *dist.Group) dist.Work {
	for _, c := range l.out {
		launch(h.exec, Encode4, c.values.DType(), c.codes, c.values)
	}
	return g.AllToAllV(l.recv, l.send, l.from, l.sizes)
}

// addUp adds up what has arrived.
func (h *Hops) addUp(l *leg) {
	for _, c := range l.in {
		launch(h.exec, Add4, c.values.DType(), c.values, c.codes)
	}
}

package fsdp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/quant"
	"github.com/ringo-ml/ringo/tensor"
)

// With Config.Grads, the gradients of a unit are added up in a host first, then between hosts, each time as codes. In the first hop, a rank
// gets the parts of its peers: the ranks that have its number in their hosts. In the second hop, each peer gets its part.

// hops is what the hops of a unit need.
type hops struct {
	codes, buf tensor.Tensor // of both hops, and their memory, from the pool
	sums       tensor.Tensor // of the host, of the parts of the peers; no memory but between the hops
	near, far  leg
}

// leg is a hop.
type leg struct {
	send, recv  tensor.Tensor
	sizes, from []int   // bytes for each rank, and from each rank
	out, in     []coded // what is rounded, and what codes are added to
}

// coded is values and their codes.
type coded struct{ values, codes tensor.Tensor }

// checkGrads refuses a Config.Grads that does not fit the rest.
func (c *Config) checkGrads() error {
	const text = "fsdp: Config.Grads is %v, and "
	switch dev := c.Shard.Device(); {
	case c.Grads == unquantized:
		return nil
	case c.Grads != Int4:
		return fmt.Errorf("fsdp: Config.Grads is %v, not int4", c.Grads)
	case c.Host == nil:
		return fmt.Errorf(text+"Host, in which they are added up first, is not set", c.Grads)
	case c.Reduce != c.DType:
		return fmt.Errorf(text+"Reduce is %v: leave Reduce out", c.Grads, c.Reduce)
	case dev.Kernels()[quant.Encode4][tensor.Float32] == nil:
		return fmt.Errorf(text+"%v cannot quantize: leave it out", c.Grads, dev)
	}
	return nil
}

// open makes the groups of the hops. all has the ranks of each rank's host.
func (h *hosts) open(c *Config, all [][]int) (err error) {
	if c.Grads == unquantized {
		return nil
	}
	for number := range all[0] {
		for i, r := range c.Shard.Ranks() {
			if len(all[i]) != len(all[0]) {
				return fmt.Errorf("fsdp: Config.Grads is for hosts of equally many ranks: rank %d is one of %d, and rank %d one of %d",
					c.Shard.Ranks()[0], len(all[0]), r, len(all[i]))
			}
			if all[i][number] == r {
				h.order = append(h.order, i)
			}
		}
	}
	h.reduces = c.Host.With(dist.Name(c.Host.Name() + " host reduce"))
	h.codes = pool{g: h.reduces, kind: tensor.Communication}
	h.sums = h.codes
	h.peers, err = c.Shard.Split(c.Host.Rank(), c.Shard.Rank())
	return err
}

// layOutHops says where the codes of a unit's gradients lie. Units of Unit.Over are other ranks'.
func (s *Sharding) layOutHops(u *Unit) {
	h, counts := &s.hosts, u.trained().counts
	if h.reduces == nil || u.over != s.all {
		return
	}
	ranks, peers := h.reduces.Size(), h.peers.Size()
	lens, sizes, grads := []int(nil), []int(nil), runs(u.grads, counts)
	for _, r := range h.order {
		lens, sizes = append(lens, counts[r]), append(sizes, quant.Size4(counts[r]))
	}
	first := h.reduces.Rank() * peers // of the parts that this rank adds up
	lens, mine := lens[first:first+peers], sizes[first:first+peers]
	own := slices.Repeat([]int{mine[h.peers.Rank()]}, peers)

	x := &hops{sums: tensor.FromPtr(s.exec.Device(), nil, u.reduce, total(lens))}
	x.far.sizes, x.far.from = mine, own
	for r := range ranks {
		x.near.sizes = append(x.near.sizes, total(sizes[r*peers:(r+1)*peers]))
		x.near.from = append(x.near.from, total(mine))
	}
	parts := []int{total(sizes), ranks * total(mine), total(mine), total(own)}
	x.codes = tensor.FromPtr(s.exec.Device(), nil, tensor.Uint8, total(parts))
	in := runs(x.codes, parts)
	x.near.send, x.near.recv, x.far.send, x.far.recv = in[0], in[1], in[2], in[3]
	h.codes.reserve(x.codes)
	h.sums.reserve(x.sums)

	sums := runs(x.sums, lens)
	for i, codes := range runs(x.near.send, sizes) {
		x.near.out = append(x.near.out, coded{grads[h.order[i]], codes})
	}
	for i, codes := range runs(x.near.recv, slices.Repeat(mine, ranks)) {
		x.near.in = append(x.near.in, coded{sums[i%peers], codes})
	}
	for i, codes := range runs(x.far.send, mine) {
		x.far.out = append(x.far.out, coded{sums[i], codes})
	}
	for _, codes := range runs(x.far.recv, own) {
		x.far.in = append(x.far.in, coded{u.shard, codes})
	}
	u.hops = x
}

// runs cuts x into runs of these lengths.
func runs(x tensor.Tensor, lens []int) (list []tensor.Tensor) {
	at := 0
	for _, n := range lens {
		list = append(list, x.Range(at, at+n))
		at += n
	}
	return list
}

func total(list []int) (sum int) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// start issues a hop of values.
func (s *Sharding) start(l *leg, g *dist.Group) dist.Work {
	for _, c := range l.out {
		s.launch(quant.Encode4, c.values.DType(), c.codes, c.values)
	}
	return g.AllToAllV(l.recv, l.send, l.from, l.sizes)
}

// addUp adds up what has arrived.
func (s *Sharding) addUp(l *leg) {
	for _, c := range l.in {
		s.launch(quant.Add4, c.values.DType(), c.values, c.codes)
	}
}

// hop issues the second hop of the oldest unit that lacks it. It waits for the first one.
func (s *Sharding) hop() error {
	u := s.reductions.units[s.reductions.hopped]
	s.reductions.hopped++
	h := u.hops
	if h == nil {
		return nil
	}
	if err := u.reducing.Wait(); err != nil {
		return fmt.Errorf("fsdp: reducing gradients of %s in a host: %w", u.name, err)
	}
	buf := s.hosts.sums.lend(h.sums)
	s.clear(h.sums)
	s.addUp(&h.near)
	u.reducing = s.start(&h.far, s.hosts.peers)
	s.hosts.sums.giveBack(&buf, h.sums)
	return nil
}

// clear makes x zero.
func (s *Sharding) clear(x tensor.Tensor) {
	if x.Len() > 0 {
		s.exec.Args(tensor.OpFill, x.DType()).Out(x)
		s.exec.Launch()
	}
}

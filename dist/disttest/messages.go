package disttest

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// actRing sends to the next rank and receives from the previous one, in a batch.
func actRing(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	n, me := g.Size(), g.Rank()
	if n == 1 {
		return dist.Work{}, fine
	}
	next, prev := (me+1)%n, (me+n-1)%n
	out := filled(r, s.dtype, s.count, func(i int) float64 { return tag(me, i) })
	in := tensor.New(r.Device, s.dtype, s.count)
	w := g.Batch(func(b *dist.Batch) {
		b.Send(out, next, s.root)
		b.Recv(in, prev, s.root)
	})
	return w, func() error {
		if err := is(in, func(i int) float64 { return tag(prev, i) })(); err != nil {
			return fmt.Errorf("from rank %d of the group: %w", prev, err)
		}
		return nil
	}
}

// messages reports whether the operation consists of messages. They are not compared with collectives.
func (a *action) messages() bool {
	return a.name == "ring" || a.name == "recvany" || a.name == "batch" || a.name == "relay"
}

// actRecvAny collects a message of each other rank at the root, in any order. No rank goes on before that, because RecvAny would also
// take a later message of a rank.
func actRecvAny(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	me, root := g.Rank(), s.root%g.Size()
	var err error
	if me == root {
		err = s.collect(r, g)
	} else {
		err = g.Send(filled(r, s.dtype, s.count, func(i int) float64 { return tag(me, i) }), root, s.root).Wait()
	}
	if err == nil {
		err = g.Barrier().Wait()
	}
	return dist.Work{}, func() error { return err }
}

func (s *step) collect(r *dist.Rank, g *dist.Group) error {
	in, seen := tensor.New(r.Device, s.dtype, s.count), make([]bool, g.Size())
	for range g.Size() - 1 {
		from, err := g.RecvAny(in, s.root)
		if err != nil {
			return err
		}
		if err := is(in, func(i int) float64 { return tag(from, i) })(); err != nil || seen[from] {
			return fmt.Errorf("from rank %d of the group, again %v: %w", from, seen[from], err)
		}
		seen[from] = true
	}
	return nil
}

// actBatch exchanges messages with all others, with a different size for each, and reduces, all in one batch.
func actBatch(s *step, r *dist.Rank, g *dist.Group) (dist.Work, func() error) {
	me, in := g.Rank(), make([]tensor.Tensor, g.Size())
	sum := filled(r, tensor.Int64, 3, func(i int) float64 { return float64(me + i) })
	w := g.Batch(func(b *dist.Batch) {
		for p := range in {
			if p != me {
				b.Send(filled(r, s.dtype, s.rows(me, p), func(i int) float64 { return tag(me+3*p, i) }), p, s.root)
			}
		}
		b.Add(g.AllReduce(sum, dist.Sum))
		for p := range in {
			if p != me {
				in[p] = tensor.New(r.Device, s.dtype, s.rows(p, me))
				b.Recv(in[p], p, s.root)
			}
		}
	})
	return w, func() error {
		n := g.Size()
		err := is(sum, func(i int) float64 { return float64(n*(n-1)/2 + n*i) })()
		for p := range in {
			if p != me && err == nil {
				err = is(in[p], func(i int) float64 { return tag(p+3*me, i) })()
			}
		}
		return err
	}
}

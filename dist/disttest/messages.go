package disttest

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// message is the data of the message from one rank to another.
func (c *call) message(from, to int) func(i int) float64 { return c.input(from + 10*to) }

// post sends and receives the messages of this rank. All are sent before one is received.
func (c *call) post() pending {
	me, in, sum := c.g.Rank(), make([]tensor.Tensor, c.g.Size()), tensor.Tensor{}
	if c.summed {
		sum = filled(c.g, tensor.Int64, 3, c.input(me))
	}
	each := func(send, recv func(x tensor.Tensor, peer, tag int), add func(w ...dist.Work)) {
		for to := range in {
			if c.pair(me, to) {
				send(filled(c.g, c.dtype, c.part(me, to), c.message(me, to)), to, c.root)
			}
		}
		if c.summed {
			add(c.g.AllReduce(sum, dist.Sum))
		}
		for _, s := range c.result(me) {
			in[s.rank] = zeros(c.g, c.dtype, s.n)
			recv(in[s.rank], s.rank, c.root)
		}
	}
	var works []dist.Work
	if c.batched {
		works = append(works, c.g.Batch(func(b *dist.Batch) { each(b.Send, b.Recv, b.Add) }))
	} else {
		each(func(x tensor.Tensor, peer, tag int) { works = append(works, c.g.Send(x, peer, tag)) },
			func(x tensor.Tensor, peer, tag int) { works = append(works, c.g.Recv(x, peer, tag)) }, nil)
	}
	return pending{works, func() error {
		for from, x := range in {
			if x.IsZero() {
				continue
			}
			if err := holds(fmt.Sprint(c, ", from rank ", from, " of the group"), x, c.message(from, me)); err != nil {
				return err
			}
		}
		if sum.IsZero() {
			return nil
		}
		return holds(c.String()+", sum", sum, func(i int) (s float64) {
			for rank := range in {
				s += c.input(rank)(i)
			}
			return s
		})
	}}
}

// actRecvAny collects a message of each other rank at the root, in any order. No rank goes on before that, because RecvAny would also
// take a later message of a rank.
func actRecvAny(s *step, g, _ *dist.Group) pending {
	me, root := g.Rank(), s.root%g.Size()
	x, seen := filled(g, s.dtype, s.count, func(i int) float64 { return tag(me, i) }), make([]bool, g.Size())
	var err error
	if me != root {
		err = g.Send(x, root, s.root).Wait()
	}
	for k := 1; k < g.Size() && me == root && err == nil; k++ {
		var from int
		if from, err = g.RecvAny(x, s.root); err != nil {
			break
		}
		if err = holds("recvany", x, func(i int) float64 { return tag(from, i) }); err != nil || seen[from] {
			err = fmt.Errorf("from rank %d of the group, again %v: %w", from, seen[from], err)
		}
		seen[from] = true
	}
	if err == nil {
		err = g.Barrier().Wait()
	}
	return pending{check: func() error { return err }}
}

package dispatch

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// constant is what Functions without a gradient have in common.
type constant struct{}

func (constant) Backward(*tensor.Ctx, nn.T, []nn.T) {}

func wait(f tensor.Function, w dist.Work) {
	if err := w.Wait(); err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
}

// way is one way of rows between the ranks of a group: depart and arrive are its ends.
type way struct {
	group      *dist.Group
	send, recv []int // rows to and from each rank, in this call
	from, to   tensor.Kind
	work       dist.Work
}

// depart begins to send rows. It gets what swap returned, too, and waits for these numbers, where they say how many rows there are. What
// it returns may be read after arrive. It has no gradient: arrive, which also gets what was sent, sends that back.
type depart struct {
	constant
	*way
}

func (depart) Name() string { return "dispatch.depart" }

func (f depart) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	if len(in) > 1 {
		counts, n := c.HostInts(in[1]), len(f.send)
		per := len(counts) / 2 / n
		for i := range n {
			f.send[i], f.recv[i] = sum(counts[i*per:][:per]), sum(counts[(n+i)*per:][:per])
		}
	}
	y := c.New(in[0].DType(), sum(f.recv), in[0].Dim(1))
	f.work = f.group.AllToAllV(y, in[0], f.recv, f.send)
	return y
}

func (f depart) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	in[0], err = in[0].Convert(f.group.Axes(), f.from, f.to)
	return in[:1], err
}

func sum[T int | int64](counts []T) (n int) {
	for _, k := range counts {
		n += int(k)
	}
	return n
}

// arrive waits for the rows that depart sent. It gets them and the rows that were sent, which have their gradient: this travels back while
// the gradient of what was computed meanwhile is computed.
type arrive struct{ *way }

func (arrive) Name() string { return "dispatch.arrive" }

func (f arrive) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	wait(f, f.work)
	n := len(f.send)
	at := c.Ints(2 * n) // the same ones in Backward
	copy(at, f.send)
	copy(at[n:], f.recv)
	return in[0]
}

func (f arrive) Backward(c *tensor.Ctx, g nn.T, grads []nn.T) {
	n := len(f.send)
	at := c.Ints(2 * n)
	send, recv := at[:n], at[n:]
	grads[1] = c.New(g.DType(), sum(send), g.Dim(1))
	c.Pending(1, f.group.AllToAllV(grads[1], g, send, recv).Pending())
}

func (f arrive) Types(in []tensor.Types, _ tensor.Axes) (_ []tensor.Types, err error) {
	in[0], err = in[1].Convert(f.group.Axes(), f.from, f.to)
	return in[:1], err
}

// swap tells each rank how many rows come for its experts. It returns this rank's counts [experts], and behind them those that come, by
// rank, then by expert.
type swap struct {
	constant
	group *dist.Group
}

func (*swap) Name() string { return "dispatch.swap" }

func (f *swap) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	n := in[0].Len()
	y := c.New(tensor.Int64, 2*n)
	tensor.Copy(y.Slice(0, 0, n), in[0])
	wait(f, f.group.AllToAll(y.Slice(0, n, 2*n), y.Slice(0, 0, n)))
	return y
}

func (f *swap) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	in[0] = in[0].With(f.group.Axes(), tensor.Cut)
	return in[:1], nil
}

// earlier tells how many slots of earlier tokens chose each expert, for each run of this rank's tokens. It gets the counts of all of them,
// behind these how many slots all ranks have (in all microbatches of a step, so that the counts do not add up to it) and the number of its
// first row; and the counts of each run: of all tokens or, if ranks of positions have parts of the same rows, of a row's.
type earlier struct {
	constant
	group, positions *dist.Group
	all              int // slots of all ranks; 0: other ranks know
}

func (*earlier) Name() string { return "dispatch.earlier" }

func (f *earlier) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	n, e, experts, runs := f.group.Size(), in[0].Len(), in[1].Dim(1), in[1]
	all := c.New(tensor.Int64, n, e)
	wait(f, f.group.AllGather(all, in[0]))
	if f.all == 0 {
		for rank, counts := 0, c.HostInts(all); rank < n; rank++ {
			f.all = max(f.all, int(counts[(rank+1)*e-2]))
		}
	}
	earlier := all.Slice(1, e-1, e).Lt(in[0].Slice(0, e-1, e)).Cast(tensor.Int64) // ranks with earlier rows
	before := all.Slice(1, 0, experts).Mul(earlier).Sum(0)
	y := c.New(tensor.Int64, runs.Dim(0), experts)
	if g := f.positions; g != nil && g.Size() > 1 && runs.Len() > 0 {
		parts := c.New(tensor.Int64, g.Size(), runs.Dim(0), experts)
		wait(f, g.AllGather(parts, runs))
		rows := parts.Sum(0)
		sofar := ops.CumSum(ops.Pad(parts, 0, 1, 0), 0).Slice(0, g.Rank(), g.Rank()+1).Reshape(runs.Dim(0), experts)
		before = before.Add(ops.CumSum(rows, 0).Sub(rows)).Add(sofar)
	}
	tensor.Copy(y, before.Broadcast(runs.Dim(0), experts))
	return y
}

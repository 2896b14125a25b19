package autograd

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// check ends the step if a collective returned an error.
func check(f tensor.Function, err error) {
	if err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
}

// Copy is the identity, and its Backward sums the gradient over the ranks. Use it where all ranks have the same tensor, and each one then
// computes a different part. It is f in Megatron-LM.
type Copy struct{ Group *dist.Group }

// Name returns "autograd.Copy".
func (*Copy) Name() string { return "autograd.Copy" }

// Forward returns its input.
func (*Copy) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }

// Backward issues an all-reduce of the gradient, in its own memory.
func (f *Copy) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.Group.Size() > 1 {
		c.Pending(0, f.Group.AllReduce(g, dist.Sum.In(c.Tape())).Pending())
	}
	grads[0] = g
}

// Sum adds up its input over the ranks; each rank has a part of the sum. The gradient of each part is the gradient of the sum. It is g in
// Megatron-LM.
type Sum struct{ Group *dist.Group }

// Name returns "autograd.Sum".
func (*Sum) Name() string { return "autograd.Sum" }

// Forward returns the sum, of the input's shape.
func (f *Sum) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x := in[0]
	if f.Group.Size() == 1 {
		return x
	}
	y := c.Tape().NewLike(x)
	tensor.Copy(y, x.Reshape(-1)) // a gradient rule may read the input
	check(f, f.Group.AllReduce(y, dist.Sum.In(c.Tape())).Wait())
	return y
}

// Backward returns the gradient.
func (*Sum) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// AllGather joins the ranks' parts of a tensor along a dimension. Each rank has a part of the sum that is the whole's gradient; Backward
// sums them and gives each rank the gradient of its own part.
type AllGather struct {
	Group *dist.Group
	Dim   int // counted from the end if negative
	// Counts are the sizes of the parts along Dim, by rank; nil: all are as large as this rank's, or Dim has rows of a batch. Where ranks
	// have other numbers of these, they tell each other, which costs a message more.
	Counts []int
}

// Name returns "autograd.AllGather".
func (*AllGather) Name() string { return "autograd.AllGather" }

// Forward returns the whole.
func (f *AllGather) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	if f.Group.Size() == 1 {
		return in[0]
	}
	k := newCut(c, f, f.Group, 0, f.Dim)
	k.join(in[0], f.Counts)
	return k.gather(in[0])
}

// Backward issues a reduce-scatter of the gradient.
func (f *AllGather) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.Group.Size() == 1 {
		grads[0] = g
		return
	}
	k := oldCut(c, f, f.Group, 0)
	d, work := k.scatter(g)
	c.Pending(0, work.Pending())
	grads[0] = d
}

// ReduceScatter adds up its input over the ranks, each of which has a part of the sum, and gives each rank a part of the result along a
// dimension. Backward gathers the gradients of all parts for each rank.
type ReduceScatter struct {
	Group *dist.Group
	Dim   int // counted from the end if negative
	// Counts are the sizes of the parts along Dim, by rank; nil: all are equal. layout.Shares makes them.
	Counts []int
}

// Name returns "autograd.ReduceScatter".
func (*ReduceScatter) Name() string { return "autograd.ReduceScatter" }

// Forward returns this rank's part of the sum.
func (f *ReduceScatter) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	if f.Group.Size() == 1 {
		return in[0]
	}
	k := newCut(c, f, f.Group, 0, f.Dim)
	k.split(in[0], f.Counts)
	y, work := k.scatter(in[0])
	check(f, work.Wait())
	return y
}

// Backward issues an all-gather of the gradient.
func (f *ReduceScatter) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.Group.Size() == 1 {
		grads[0] = g
		return
	}
	k := oldCut(c, f, f.Group, 0)
	if k.dim != 0 {
		grads[0] = k.gather(g)
		return
	}
	d, work := k.gatherFlat(g)
	c.Pending(0, work.Pending())
	grads[0] = k.shaped(d)
}

// AllToAll cuts its input along Split, sends each rank a part, and joins the parts that it receives along Concat: a transposition over
// ranks. Ulysses uses it between cut tokens and cut heads (Jacobs et al. 2023); a mixture of experts uses it to send rows to their
// experts and back (Lepikhin et al. 2020, "GShard"). Its gradient is the transposition back.
type AllToAll struct {
	Group         *dist.Group
	Split, Concat int // counted from the end if negative
	// Send are the sizes of the parts along Split that go to each rank, Recv the sizes of the parts along Concat that come from each
	// rank. What rank i sends to rank j must be what j receives from i. nil: equal parts, and as many elements along Concat from each
	// rank as this one has.
	Send, Recv []int
}

// Name returns "autograd.AllToAll".
func (*AllToAll) Name() string { return "autograd.AllToAll" }

// Forward returns the parts that the ranks sent to this one, joined.
func (f *AllToAll) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	if f.Group.Size() == 1 {
		return in[0]
	}
	to := newCut(c, f, f.Group, 1, f.Concat) // slot 1 first: both slots share one piece of memory
	from := newCut(c, f, f.Group, 0, f.Split)
	from.split(in[0], f.Send)
	to.receive(in[0], &from, f.Recv)
	y, work := f.exchange(&to, &from, in[0])
	check(f, work.Wait())
	return to.unpack(y)
}

// Backward sends gradients back.
func (f *AllToAll) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.Group.Size() == 1 {
		grads[0] = g
		return
	}
	to, from := oldCut(c, f, f.Group, 1), oldCut(c, f, f.Group, 0)
	d, work := f.exchange(&from, &to, g)
	if from.dim == 0 {
		c.Pending(0, work.Pending())
		grads[0] = from.shaped(d)
		return
	}
	check(f, work.Wait())
	grads[0] = from.unpack(d)
}

// exchange issues the all-to-all of x, cut by from, and returns the received parts, cut by to, one after another in memory. Whether
// sizes were given is what Forward stored: Send and Recv may be those of a later call. That they are equal on this rank says nothing of
// other ranks.
func (f *AllToAll) exchange(to, from *cut, x tensor.Tensor) (tensor.Tensor, dist.Work) {
	y := to.flat(x.DType())
	if to.ints[2]+from.ints[2] == 0 {
		return y, f.Group.AllToAll(y, from.pack(x))
	}
	return y, f.Group.AllToAllV(y, from.pack(x), to.elems(), from.elems())
}

package dist

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// Reduction is how a reducing operation combines elements.
type Reduction struct {
	red    backend.Red
	factor float64
	tape   *tensor.Tape
}

// The reductions. Avg is the sum divided by the number of ranks, for floats only. In Min and Max, a NaN makes the result NaN. Sum and
// Prod of integers wrap around. BAnd, BOr and BXor are for integers and bool. On bool, Sum and Max are "or", Prod and Min are "and".
//
// The average of large 16-bit floats does not overflow: 60000 on each of 4 ranks is 60000 in float16. Algorithms that add in rank order
// sum 16-bit floats in float32, then divide, and round once at the end. The others first divide each input by the smallest power of two
// that is not below the number of ranks (NCCL divides by the number itself), and round after each addition. If the division gives a
// number below the normal numbers of the type (6e-5 in float16), digits are lost.
var (
	Sum  = Reduction{red: backend.Sum}
	Avg  = Reduction{red: backend.Avg}
	Prod = Reduction{red: backend.Prod}
	Min  = Reduction{red: backend.Min}
	Max  = Reduction{red: backend.Max}
	BAnd = Reduction{red: backend.BAnd}
	BOr  = Reduction{red: backend.BOr}
	BXor = Reduction{red: backend.BXor}
)

// PreMulSum multiplies this rank's input by factor before the sum. Floats only. Ranks may have different factors: so, as with NCCL's, a
// mean with weights needs no pass of its own.
func PreMulSum(factor float64) Reduction { return Reduction{red: backend.PreMulSum, factor: factor} }

// In says in which step the ranks combine elements: that of t. Ranks in different steps, or with other batches or seeds, get an error (see
// compare.Agreement). nil says nothing.
func (o Reduction) In(t *tensor.Tape) Reduction {
	o.tape = t
	return o
}

// String returns the name, such as "sum".
func (o Reduction) String() string { return o.red.String() }

// Broadcast copies t of rank root into t of all ranks. Shapes must agree.
func (g *Group) Broadcast(t tensor.Tensor, root int) Work {
	c := call{kind: backend.Broadcast, count: count(t)}
	err := c.setOutput(t)
	if err == nil && root == g.Rank() {
		c.src = c.dst
	}
	return g.must().issueOwn(&c, errors.Join(err, g.must().setRoot(&c, root)))
}

// AllReduce replaces t on all ranks by the reduction of all t, element by element.
func (g *Group) AllReduce(t tensor.Tensor, op Reduction) Work {
	c := call{kind: backend.AllReduce, count: count(t)}
	err := c.setOutput(t)
	c.src = c.dst
	if err == nil {
		err = c.setReduction(op)
	}
	return g.must().issueOwn(&c, err)
}

// Reduce replaces t of rank root by the reduction of all t. On other ranks t stays unchanged.
func (g *Group) Reduce(t tensor.Tensor, op Reduction, root int) Work {
	c := call{kind: backend.Reduce, count: count(t)}
	err := c.setInput(t)
	if root == g.Rank() {
		c.dst = c.src
	}
	if err == nil {
		err = c.setReduction(op)
	}
	if err == nil {
		err = g.must().setRoot(&c, root)
	}
	return g.must().issueOwn(&c, err)
}

// AllGather puts the src of rank i at block i of dst, on all ranks. dst has Size() times the elements of src. In place: src may be this
// rank's block of dst.
func (g *Group) AllGather(dst, src tensor.Tensor) Work {
	c := call{kind: backend.AllGather, count: count(src)}
	err := c.setInputOutput(dst, src, g.Size(), 1)
	if err == nil {
		err = c.inPlace(-g.Rank()*c.src.Bytes, true)
	}
	return g.must().issueOwn(&c, err)
}

// Gather puts the src of rank i at block i of dst, on rank root. Other ranks give the zero Tensor as dst.
func (g *Group) Gather(dst, src tensor.Tensor, root int) Work {
	c := call{kind: backend.Gather, count: count(src)}
	err := g.must().setRoot(&c, root)
	switch {
	case err != nil:
	case root == g.Rank():
		if err = c.setInputOutput(dst, src, g.Size(), 1); err == nil {
			err = c.inPlace(-root*c.src.Bytes, true)
		}
	default:
		err = c.setInput(src)
	}
	return g.must().issueOwn(&c, err)
}

// Scatter copies block i of the src of rank root into dst of rank i. Other ranks give the zero Tensor as src.
func (g *Group) Scatter(dst, src tensor.Tensor, root int) Work {
	c := call{kind: backend.Scatter, count: count(dst)}
	err := g.must().setRoot(&c, root)
	switch {
	case err != nil:
	case root == g.Rank():
		if err = c.setInputOutput(dst, src, 1, g.Size()); err == nil {
			err = c.inPlace(root*c.dst.Bytes, true)
		}
	default:
		err = c.setOutput(dst)
	}
	return g.must().issueOwn(&c, err)
}

// ReduceScatter reduces the src of all ranks and puts block i of the result into dst of rank i. src has Size() times the elements of dst.
// In place: dst may be this rank's block of src.
func (g *Group) ReduceScatter(dst, src tensor.Tensor, op Reduction) Work {
	c := call{kind: backend.ReduceScatter, count: count(dst)}
	var err error
	if n := g.Size(); count(src)%n != 0 {
		err = fmt.Errorf("%v does not divide by %d ranks; use ReduceScatterV", src.Shape(), n)
	} else if err = c.setInputOutput(dst, src, 1, n); err == nil {
		err = c.inPlace(g.Rank()*c.dst.Bytes, true)
	}
	if err == nil {
		err = c.setReduction(op)
	}
	return g.must().issueOwn(&c, err)
}

// AllToAll sends block i of src to rank i, and puts what rank i sends at block i of dst. It is a transposition over ranks.
func (g *Group) AllToAll(dst, src tensor.Tensor) Work {
	n := g.Size()
	c := call{kind: backend.AllToAll, count: count(src) / n}
	var err error
	if count(src)%n != 0 {
		err = fmt.Errorf("%v does not divide by %d ranks; use AllToAllV", src.Shape(), n)
	} else if err = c.setInputOutput(dst, src, 1, 1); err == nil {
		err = c.inPlace(0, false)
	}
	return g.must().issueOwn(&c, err)
}

// AllGatherV is AllGather with counts[i] rows (of the leading dimension) from rank i. counts are the same on all ranks.
func (g *Group) AllGatherV(dst, src tensor.Tensor, counts []int) Work {
	c := call{kind: backend.AllGatherV, recv: counts}
	err := c.setRows(dst, src)
	if err == nil {
		err = g.must().rows("receive", counts, dst)
	}
	if err == nil && src.Len() != counts[g.Rank()]*c.row {
		err = fmt.Errorf("counts[%d] = %d rows, but input is %v", g.Rank(), counts[g.Rank()], src.Shape())
	}
	if err == nil {
		c.count = src.Len()
		err = c.inPlace(-bytesBefore(counts, g.Rank(), c.row, c.dtype), true)
	}
	return g.must().issueOwn(&c, err)
}

// ReduceScatterV is ReduceScatter with counts[i] rows (of the leading dimension) for rank i. counts are the same on all ranks.
func (g *Group) ReduceScatterV(dst, src tensor.Tensor, counts []int, op Reduction) Work {
	c := call{kind: backend.ReduceScatterV, send: counts}
	err := c.setRows(dst, src)
	if err == nil {
		err = g.must().rows("send", counts, src)
	}
	if err == nil && dst.Len() != counts[g.Rank()]*c.row {
		err = fmt.Errorf("counts[%d] = %d rows, but output is %v", g.Rank(), counts[g.Rank()], dst.Shape())
	}
	if err == nil {
		c.count = dst.Len()
		err = c.inPlace(bytesBefore(counts, g.Rank(), c.row, c.dtype), true)
	}
	if err == nil {
		err = c.setReduction(op)
	}
	return g.must().issueOwn(&c, err)
}

// AllToAllV is AllToAll with send[i] rows of src for rank i and recv[i] rows of dst from rank i. The rows that rank i sends to rank j
// must be as many as j receives from i.
func (g *Group) AllToAllV(dst, src tensor.Tensor, recv, send []int) Work {
	c := call{kind: backend.AllToAllV, recv: recv, send: send}
	err := c.setRows(dst, src)
	if err == nil {
		err = errors.Join(g.must().rows("send", send, src), g.must().rows("receive", recv, dst))
	}
	if err == nil {
		err = c.inPlace(0, false)
	}
	return g.must().issueOwn(&c, err)
}

// Barrier is over when all ranks have called it.
func (g *Group) Barrier() Work { return g.must().issueOwn(&call{kind: backend.Barrier}, nil) }

// MonitoredBarrier is a Barrier whose timeout error names all missing ranks, on every engine. Each rank sends a message to rank 0 and
// gets one back. A Barrier may cost less.
func (g *Group) MonitoredBarrier() Work {
	return g.must().issueOwn(&call{kind: backend.MonitoredBarrier}, nil)
}

// SumFloats replaces x on all ranks by the sum over ranks, for norms, losses and counts. It is AllReduce and Wait in one.
func (g *Group) SumFloats(x []float64) error {
	m := floats(x)
	c := call{kind: backend.AllReduce, op: Sum, count: len(x), dtype: tensor.Float64, src: m, dst: m}
	return g.must().issueOwn(&c, nil).Wait()
}

// SumTensor replaces x on all ranks by the sum over ranks. It is AllReduce and Wait in one, as optim.TensorNorm needs it.
func (g *Group) SumTensor(x tensor.Tensor) error { return g.AllReduce(x, Sum).Wait() }

package autograd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// cut describes how a whole tensor is cut along a dimension into a part for each rank. Its numbers are stored in the call
// (tensor.Ctx.Ints), so that Backward finds what Forward stored.
type cut struct {
	c    *tensor.Ctx
	f    tensor.Function
	g    *dist.Group
	n    int
	ndim int   // of the tensor
	dim  int   // the dimension that is cut
	ints []int // ndim, dim, 1 if sizes were given, the dimensions of the whole, n sizes along dim, n numbers of elements
}

const fixed = 3 + tensor.MaxNDim

// oldCut returns the cut that Forward stored in slot 0 or 1 of the call.
func oldCut(c *tensor.Ctx, f tensor.Function, g *dist.Group, slot int) cut {
	n := g.Size()
	ints := c.Ints(2*(fixed+2*n) + tensor.MaxNDim)[slot*(fixed+2*n):] // always the same number: Ints moves its memory when it grows
	return cut{c, f, g, n, ints[0], ints[1], ints}
}

// newCut is oldCut for Forward, which fills it.
func newCut(c *tensor.Ctx, f tensor.Function, g *dist.Group, slot, dim int) cut {
	k := oldCut(c, f, g, slot)
	k.dim = dim
	return k
}

func (k *cut) dims() []int   { return k.ints[3:][:k.ndim] }
func (k *cut) counts() []int { return k.ints[fixed:][:k.n] }
func (k *cut) elems() []int  { return k.ints[fixed+k.n:][:k.n] }

func (k *cut) fail(x tensor.Tensor, format string, a ...any) {
	panic(&tensor.Failure{Op: k.f.Name(), Shapes: []tensor.Shape{x.Shape()}, Err: fmt.Errorf(format, a...)})
}

// begin stores the dimensions of x.
func (k *cut) begin(x tensor.Tensor) {
	k.ndim = x.NDim()
	if k.dim < 0 {
		k.dim += k.ndim
	}
	if k.dim < 0 || k.dim >= k.ndim {
		k.fail(x, "has no dimension %d", k.dim)
	}
	k.ints[0], k.ints[1], k.ints[2] = k.ndim, k.dim, 0
	for i := range k.ndim {
		k.ints[3+i] = x.Dim(i)
	}
}

// given stores the sizes along the dimension that is cut, one for each rank.
func (k *cut) given(x tensor.Tensor, counts []int) {
	if len(counts) != k.n {
		k.fail(x, "%d counts for %d ranks", len(counts), k.n)
	}
	k.ints[2] = 1
	for i, m := range counts {
		if m < 0 {
			k.fail(x, "count %d is %d", i, m)
		}
		k.counts()[i] = m
	}
}

// end stores how many elements the parts have, and the size of the whole.
func (k *cut) end() {
	each, total := 1, 0
	for i, d := range k.dims() {
		if i != k.dim {
			each *= d
		}
	}
	for i, m := range k.counts() {
		k.elems()[i] = m * each
		total += m
	}
	k.dims()[k.dim] = total
}

// split fills the cut from x, which is the whole.
func (k *cut) split(x tensor.Tensor, counts []int) {
	k.begin(x)
	size := k.dims()[k.dim]
	if counts == nil {
		if size%k.n != 0 {
			k.fail(x, "%d elements of dimension %d do not divide by %d ranks: set Counts, as layout.Shares gives them", size, k.dim, k.n)
		}
		k.equal(size / k.n)
	} else {
		k.given(x, counts)
	}
	if k.end(); k.dims()[k.dim] != size {
		k.fail(x, "counts sum to %d, dimension %d has %d elements", k.dims()[k.dim], k.dim, size)
	}
}

// join fills the cut from x, which is this rank's part. If ranks have other numbers of rows of a batch, they tell each other.
func (k *cut) join(x tensor.Tensor, counts []int) {
	k.begin(x)
	size := k.dims()[k.dim]
	if counts == nil && k.c.Uneven(x, k.dim, k.g.Axes(), k.g.Rank(), k.n) {
		var err error
		counts, err = dist.AllGatherObject(k.g, size)
		check(k.f, err)
	}
	if counts == nil {
		k.equal(size)
	} else if k.given(x, counts); counts[k.g.Rank()] != size {
		k.fail(x, "this rank's count is %d, dimension %d has %d elements", counts[k.g.Rank()], k.dim, size)
	}
	k.end()
}

// receive fills the cut for parts that this rank receives, when all ranks cut their tensors as this rank cut x (see from).
func (k *cut) receive(x tensor.Tensor, from *cut, counts []int) {
	k.begin(x)
	k.dims()[from.dim] = from.counts()[k.g.Rank()]
	if counts == nil {
		k.equal(k.dims()[k.dim])
	} else {
		k.given(x, counts)
	}
	k.end()
}

func (k *cut) equal(size int) {
	for i := range k.n {
		k.counts()[i] = size
	}
}

// pack returns the parts of x, the whole, one after another in memory.
func (k *cut) pack(x tensor.Tensor) tensor.Tensor {
	if k.dim == 0 {
		return x.Reshape(-1)
	}
	y, at, lo := k.flat(x.DType()), 0, 0
	for i, m := range k.counts() {
		if k.elems()[i] > 0 {
			tensor.Copy(y.Slice(0, at, at+k.elems()[i]), x.Slice(k.dim, lo, lo+m).Reshape(-1))
		}
		lo, at = lo+m, at+k.elems()[i]
	}
	return y
}

// unpack returns the whole from parts that are one after another in memory.
func (k *cut) unpack(y tensor.Tensor) tensor.Tensor {
	if k.dim == 0 {
		return k.shaped(y)
	}
	return k.concat(y, 0, k.n)
}

// concat joins parts lo to hi, at most 8 at a time.
func (k *cut) concat(y tensor.Tensor, lo, hi int) tensor.Tensor {
	var parts [8]tensor.Tensor
	step, n := max(1, (hi-lo+len(parts)-1)/len(parts)), 0
	for i := lo; i < hi; i += step {
		if step > 1 {
			parts[n] = k.concat(y, i, min(i+step, hi))
		} else {
			parts[n] = k.part(y, i)
		}
		n++
	}
	return tensor.Concat(k.dim, parts[:n]...)
}

// part returns part i of y, in which parts are one after another.
func (k *cut) part(y tensor.Tensor, i int) tensor.Tensor {
	at := 0
	for _, m := range k.elems()[:i] {
		at += m
	}
	return y.Slice(0, at, at+k.elems()[i]).Reshape(k.partDims(i)...)
}

// partDims returns the dimensions of part i, in memory that the next call overwrites.
func (k *cut) partDims(i int) []int {
	d := k.c.Ints(2*(fixed+2*k.n) + tensor.MaxNDim)[2*(fixed+2*k.n):][:k.ndim] // after both cuts
	copy(d, k.dims())
	d[k.dim] = k.counts()[i]
	return d
}

// shaped gives y the dimensions of the whole.
func (k *cut) shaped(y tensor.Tensor) tensor.Tensor { return y.Reshape(k.dims()...) }

// flat returns memory for the whole.
func (k *cut) flat(d tensor.DType) tensor.Tensor {
	n := 0
	for _, m := range k.elems() {
		n += m
	}
	return k.c.New(d, n)
}

// even reports whether all parts are equal.
func (k *cut) even() bool {
	for _, m := range k.counts() {
		if m != k.counts()[0] {
			return false
		}
	}
	return true
}

// gather returns the whole. x is this rank's part.
func (k *cut) gather(x tensor.Tensor) tensor.Tensor {
	y, work := k.gatherFlat(x)
	if err := work.Wait(); err != nil {
		check(k.f, k.explain(err))
	}
	return k.unpack(y)
}

// explain adds to an error what to do if parts have different sizes.
func (k *cut) explain(err error) error {
	var e *dist.Error
	if k.ints[2] != 0 || !errors.As(err, &e) || !strings.HasPrefix(e.Want, "count ") {
		return err
	}
	return fmt.Errorf("%w; if parts differ, set %s.Counts to their sizes, as layout.Shares gives them for a whole that was divided, or "+
		"dist.AllGatherObject(g, x.Dim(%d))", err, strings.TrimPrefix(k.f.Name(), "autograd."), k.dim)
}

// gatherFlat issues the all-gather of x and returns the parts, one after another.
func (k *cut) gatherFlat(x tensor.Tensor) (tensor.Tensor, dist.Work) {
	y := k.flat(x.DType())
	return y, k.gatherInto(y, x)
}

// gatherInto is gatherFlat into existing memory.
func (k *cut) gatherInto(y, x tensor.Tensor) dist.Work {
	if k.even() {
		return k.g.AllGather(y, x.Reshape(-1))
	}
	return k.g.AllGatherV(y, x.Reshape(-1), k.elems())
}

// scatter issues the reduce-scatter of x, the whole, and returns this rank's part.
func (k *cut) scatter(x tensor.Tensor) (tensor.Tensor, dist.Work) {
	y := k.c.New(x.DType(), k.partDims(k.g.Rank())...)
	flat := y.Reshape(-1)
	if k.even() {
		return y, k.g.ReduceScatter(flat, k.pack(x), dist.Sum.In(k.c.Tape()))
	}
	return y, k.g.ReduceScatterV(flat, k.pack(x), k.elems(), dist.Sum.In(k.c.Tape()))
}

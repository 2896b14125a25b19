package tensor

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
)

func init() {
	define(OpSort, OpSpec{Name: "sort", Const: true,
		CPU: numbers(sortKernel[float32](), sortKernel[float64](), sortKernel[int32](), sortKernel[int64](), sortKernel[uint8]())})
}

// Sort returns x's elements sorted along dim, in ascending or descending order, and their positions (Int64), as torch.sort(stable=True):
// equal elements keep their order, and NaN is larger than all numbers. The gradient goes back to where an element came from.
func (x Tensor) Sort(dim int, descending bool) (values, indices Tensor) {
	t := tapeOf("sort", x)
	in := t.arg(x)
	d, last := in.axis("sort", dim), int(in.ndim)-1
	if d != last {
		values, indices = x.Transpose(d, last).Sort(last, descending)
		return values.Transpose(d, last), indices.Transpose(d, last)
	}
	in = t.contiguous(in)
	if in.dims[d] > math.MaxInt32/2 {
		fail("sort", these(in), "the sorted dimension has more than 2^30 elements")
	}
	idx := t.newTensor(Int64, in.dims[:in.ndim]...)
	if in.n > 0 {
		a := t.byRow(OpSort, in.dims[d], in.dtype, []*header{idx}, []*header{in})
		a.I[0] = b2i(descending)
		t.Launch()
	}
	idx.ty = in.ty
	t.notAlong("sort", idx, in, d, false)
	values = in.tensor().Gather(d, idx.tensor())
	if t.typing() {
		t.notAlong("sort", values.h, in, d, false)
	}
	return values, idx.tensor()
}

func sortKernel[T kernel.Number]() Kernel {
	return Parallel(dim0, func(a *Args) int { return 16 * a.Dim[1] }, func(a *Args, lo, hi int) {
		n := a.Dim[1]
		for r := lo; r < hi; r++ {
			row, idx := slice[T](a, 1)[r*n:][:n], slice[int64](a, 0)[r*n:][:n]
			for i := range idx {
				idx[i] = int64(i)
			}
			if a.I[0] != 0 {
				slices.SortFunc(idx, func(i, j int64) int { return before(row[j], row[i], i, j) })
			} else {
				slices.SortFunc(idx, func(i, j int64) int { return before(row[i], row[j], i, j) })
			}
		}
	})
}

// before compares v and w for sorting: −1 if v is smaller, 1 if it is larger; NaN is larger than all numbers. Equal ones are ordered by
// their positions i and j.
func before[T kernel.Number](v, w T, i, j int64) int {
	switch {
	case v < w || v == v && w != w:
		return -1
	case w < v || w == w && v != v:
		return 1
	}
	return int(i - j)
}

package ops

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// OpSort and OpTopK make the positions of Sort and TopK.
var OpSort, OpTopK tensor.Op

func init() {
	OpSort = registerAll(tensor.OpSpec{Name: "sort", Const: true},
		numbers(sortKernel[float32](), sortKernel[float64](), sortKernel[int32](), sortKernel[int64](), sortKernel[uint8]()))
	OpTopK = registerAll(tensor.OpSpec{Name: "top_k", Const: true},
		numbers(topKKernel[float32](), topKKernel[float64](), topKKernel[int32](), topKKernel[int64](), topKKernel[uint8]()))
}

// Sort returns x's elements sorted along dim, in ascending or descending order, and their positions (Int64), as torch.sort(stable=True):
// equal elements keep their order, and NaN is larger than all numbers. The gradient goes back to where an element came from.
func Sort(x tensor.Tensor, dim int, descending bool) (values, indices tensor.Tensor) {
	t := OpSort.Tape(x)
	dim = axis(OpSort, x, dim)
	if last := x.NDim() - 1; dim != last {
		values, indices = Sort(x.Transpose(dim, last), last, descending)
		return values.Transpose(dim, last), indices.Transpose(dim, last)
	}
	x = t.Packed(x)
	d, rank := dimsOf(x)
	if d[dim] > math.MaxInt32/2 {
		OpSort.Fail([]tensor.Tensor{x}, "the sorted dimension has more than 2^30 elements")
	}
	indices = t.New(tensor.Int64, d[:rank]...)
	if x.Len() > 0 {
		a := t.Args(OpSort, x.DType()).Out(indices).In(x)
		a.Dim[0], a.Dim[1] = product(d[:dim]), d[dim]
		a.I[0] = b2i(descending)
		t.Launch()
	}
	return chosen(t, OpSort, x, indices), indices
}

// TopK returns the k largest elements of each row of the last dimension, the largest first, and their positions (Int64), as torch.topk:
// both [..., k] for x [..., n], k <= n. Of equal elements the first comes first; NaN is the largest. The chosen elements get the gradients:
// see Gather.
func TopK(x tensor.Tensor, k int) (values, indices tensor.Tensor) {
	t := OpTopK.Tape(x)
	x = t.Packed(x)
	d, rank := dimsOf(x)
	if rank == 0 {
		OpTopK.Fail([]tensor.Tensor{x}, "needs a dimension")
	}
	cols := d[rank-1]
	if k < 0 || k > cols {
		OpTopK.Fail([]tensor.Tensor{x}, "k is %d, of %d elements", k, cols)
	}
	if k < cols { // a rank with few rows may choose all
		t.NoteNumber("TopK", x, 0, float64(k))
	}
	rows := product(d[:rank-1])
	d[rank-1] = k
	indices = t.New(tensor.Int64, d[:rank]...)
	if indices.Len() > 0 {
		a := t.Args(OpTopK, x.DType()).Out(indices).In(x)
		a.Dim[0], a.Dim[1], a.Dim[2] = rows, cols, k
		t.Launch()
	}
	return chosen(t, OpTopK, x, indices), indices
}

// chosen returns the elements of x that op chose along the last dimension.
func chosen(t *tensor.Tape, op tensor.Op, x, indices tensor.Tensor) tensor.Tensor {
	last := x.NDim() - 1
	t.SameTypes(indices, x)
	t.NotAlong(op, indices, x, last)
	values := Gather(x, last, indices)
	t.NotAlong(op, values, x, last)
	return values
}

func sortKernel[T number]() tensor.Kernel {
	return cpu.Parallel(dim0, func(a *tensor.Args) int { return 16 * a.Dim[1] }, func(a *tensor.Args, lo, hi int) {
		n := a.Dim[1]
		for r := lo; r < hi; r++ {
			row, idx := tensor.Operand[T](a, 1)[r*n:][:n], tensor.Operand[int64](a, 0)[r*n:][:n]
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
func before[T number](v, w T, i, j int64) int {
	switch {
	case v < w || v == v && w != w:
		return -1
	case w < v || w == w && v != v:
		return 1
	}
	return int(i - j)
}

func topKKernel[T number]() tensor.Kernel {
	return cpu.Parallel(dim0, dim1, func(a *tensor.Args, lo, hi int) {
		kernel.TopK(tensor.Operand[int64](a, 0), tensor.Operand[T](a, 1), a.Dim[1], a.Dim[2], lo, hi)
	})
}

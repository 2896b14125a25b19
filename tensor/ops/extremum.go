package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// OpMax and OpMin find the largest and smallest elements along a dimension, and their positions.
var OpMax, OpMin tensor.Op

func init() {
	along := func(name string) tensor.OpSpec {
		return tensor.OpSpec{Name: name, Rows: tensor.RowsByCaller, VJP: extremumVJP}
	}
	OpMax = registerAll(along("max"), numbers(extremumKernel(kernel.ReduceMax[float32]), extremumKernel(kernel.ReduceMax[float64]),
		extremumKernel(kernel.ReduceMax[int32]), extremumKernel(kernel.ReduceMax[int64]), extremumKernel(kernel.ReduceMax[uint8])))
	OpMin = registerAll(along("min"), numbers(extremumKernel(kernel.ReduceMin[float32]), extremumKernel(kernel.ReduceMin[float64]),
		extremumKernel(kernel.ReduceMin[int32]), extremumKernel(kernel.ReduceMin[int64]), extremumKernel(kernel.ReduceMin[uint8])))
}

// Max returns the largest elements along dim, which is removed, and their positions (Int64; the first of equal ones).
func Max(x tensor.Tensor, dim int) (values, indices tensor.Tensor) { return extremum(OpMax, x, dim) }

// Min returns the smallest elements along dim, which is removed, and their positions (Int64; the first of equal ones).
func Min(x tensor.Tensor, dim int) (values, indices tensor.Tensor) { return extremum(OpMin, x, dim) }

// ArgMax returns the position of the largest element along dim as Int64.
func ArgMax(x tensor.Tensor, dim int) tensor.Tensor {
	t := OpMax.Tape(x)
	x = t.Packed(x).Detach() // positions have no gradient
	_, indices := extremum(OpMax, x, dim)
	t.Release(x)
	return indices
}

func extremum(op tensor.Op, x tensor.Tensor, dim int) (values, indices tensor.Tensor) {
	t := op.Tape(x)
	x = t.Packed(x)
	dim = axis(op, x, dim)
	d, rank := dimsOf(x)
	if d[dim] == 0 {
		op.Fail([]tensor.Tensor{x}, "no elements in dimension %d", dim)
	}
	at := [8]int{dim, product(d[:dim]), d[dim], 1, product(d[dim+1 : rank])}
	copy(d[dim:], d[dim+1:rank])
	values, indices = t.New(x.DType(), d[:rank-1]...), t.New(tensor.Int64, d[:rank-1]...)
	t.SameTypes(indices, x)
	if values.Len() > 0 {
		a := t.Args(op, x.DType()).Out(values).Out(indices).In(x)
		a.Dim[0], a.Dim[1], a.Dim[2] = at[1], at[2], at[4]
		t.Launch()
	}
	if n := t.Record(op, values, x); n != nil {
		n.I = at
		t.Save(n, indices.Detach())
	}
	t.ReduceTypes(op, values, x, dim)
	t.ReduceTypes(op, indices, x, dim)
	return values, indices
}

func extremumVJP(t *tensor.Tape, n *tensor.Node, _ uint8) { scatterGrad(t, n, n.Saved(0), &n.I) }

func extremumKernel[T number](f func(dst []T, idx []int64, x []T, n, inner, lo, hi int)) tensor.Kernel {
	return cpu.Parallel(outLen, dim1, func(a *tensor.Args, lo, hi int) {
		f(tensor.Operand[T](a, 0), tensor.Operand[int64](a, 1), tensor.Operand[T](a, 2), a.Dim[1], a.Dim[2], lo, hi)
	})
}

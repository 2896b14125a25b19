package gorgonia

import (
	"runtime"

	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/tensor"
)

// matrix is a Dense in the form that the kernels multiply.
type matrix struct {
	tensor.Tensor // [rows,cols] or, if transposed, [cols,rows]
	rows, cols    int
	transposed    bool
}

// matrixOf returns a Dense of two dimensions whose memory has no gaps, row-major or column-major.
func matrixOf(t gt.Tensor) (m matrix, ok bool) {
	d, isDense := t.(*gt.Dense)
	if !isDense || d.Dims() != 2 || len(d.Strides()) != 2 || len(d.Mask()) > 0 || !d.IsNativelyAccessible() {
		return m, false
	}
	m.rows, m.cols = d.Shape()[0], d.Shape()[1]
	if s := d.Strides(); s[0] != 1 || s[1] != m.rows || m.rows == 1 || m.cols == 1 {
		x, err := FromDense(d)
		m.Tensor = x
		return m, err == nil && x.DType().IsFloat()
	}
	m.transposed = true
	var err error
	defer runtime.KeepAlive(d) // Data makes its slice from a number
	switch v := d.Data().(type) {
	case []float32:
		m.Tensor, err = share(v, m.rows*m.cols, []int{m.cols, m.rows})
	case []float64:
		m.Tensor, err = share(v, m.rows*m.cols, []int{m.cols, m.rows})
	default:
		return m, false
	}
	return m, err == nil
}

// t is the transposed matrix, on the same memory.
func (m matrix) t() matrix { return matrix{m.Tensor, m.cols, m.rows, !m.transposed} }

// product writes a·b + beta·out to out, of [a.rows, b.cols] elements. ok is false if the kernels cannot do it.
func (e *Engine) product(out tensor.Tensor, beta float64, a, b matrix) (ok bool) {
	if a.cols != b.rows || out.Len() != a.rows*b.cols || a.DType() != b.DType() || a.DType() != out.DType() ||
		!disjoint(out, a.Tensor) || !disjoint(out, b.Tensor) {
		return false
	}
	e.launch(tensor.OpMatMul, func(args *tensor.Args) {
		args.NDim, args.Dim = 4, [tensor.MaxNDim]int{1, a.rows, b.cols, a.cols}
		args.Stride[0][0], args.Stride[0][1] = out.Len(), b.cols
		for i, x := range []matrix{a, b} {
			lead := x.cols
			if x.transposed {
				lead, args.I[i] = x.rows, 1
			}
			args.Stride[1+i][0], args.Stride[1+i][1] = x.Len(), lead
		}
		args.F[0] = beta
	}, out, a.Tensor, b.Tensor)
	return true
}

// MatMul writes the product of two matrices to prealloc.
func (e *Engine) MatMul(a, b, prealloc gt.Tensor) error {
	x, okX := matrixOf(a)
	y, okY := matrixOf(b)
	out, ok := matrixOf(prealloc)
	if out.transposed { // (a·b)ᵀ = bᵀ·aᵀ
		x, y = y.t(), x.t()
	}
	if !okX || !okY || !ok || !e.product(out.Tensor, 0, x, y) {
		return e.StdEng.MatMul(a, b, prealloc)
	}
	return nil
}

// MatVecMul writes the product of a matrix and a vector to prealloc.
func (e *Engine) MatVecMul(a, b, prealloc gt.Tensor) error {
	x, okX := matrixOf(a)
	y, okY := floats(b)
	out, ok := floats(prealloc)
	if !okX || !okY || !ok || !e.product(out, 0, x, matrix{Tensor: y, rows: y.Len(), cols: 1}) {
		return e.StdEng.MatVecMul(a, b, prealloc)
	}
	return nil
}

// Outer adds the product of each element of a and each of b to prealloc, which gorgonia's functions have set to zero.
func (e *Engine) Outer(a, b, prealloc gt.Tensor) error {
	x, okX := floats(a)
	y, okY := floats(b)
	out, ok := floats(prealloc)
	if !okX || !okY || !ok || !e.product(out, 1, matrix{Tensor: x, rows: x.Len(), cols: 1}, matrix{Tensor: y, rows: 1, cols: y.Len()}) {
		return e.StdEng.Outer(a, b, prealloc)
	}
	return nil
}

// Inner returns the sum of the products of two vectors' elements, in their type.
func (e *Engine) Inner(a, b gt.Tensor) (any, error) {
	x, okX := floats(a)
	y, okY := floats(b)
	if !okX || !okY || x.DType() != y.DType() || x.Len() != y.Len() {
		return e.StdEng.Inner(a, b)
	}
	row, column := matrix{Tensor: x, rows: 1, cols: x.Len()}, matrix{Tensor: y, rows: y.Len(), cols: 1}
	if x.DType() == tensor.Float32 {
		sum := make([]float32, 1)
		e.product(tensor.FromSlice(sum, 1), 0, row, column)
		return sum[0], nil
	}
	sum := make([]float64, 1)
	e.product(tensor.FromSlice(sum, 1), 0, row, column)
	return sum[0], nil
}

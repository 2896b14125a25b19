package gorgonia

import (
	"fmt"
	"runtime"
	"strconv"
	"unsafe"

	// gorgonia.org/tensor requires a version of this package that panics on Go 1.21 and later. This import keeps a newer one in go.mod.
	_ "go4.org/unsafe/assume-no-moving-gc"
	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/tensor"
)

// FromDense returns a tensor that shares d's memory. It is an error if Ringo does not have d's element type, or if d is not row-major
// without gaps, masked, not readable by Go, or of more than tensor.MaxNDim dimensions. Do not pass d to gorgonia's ReturnTensor while the
// tensor is in use. Memory that gorgonia does not own (FromMemory) must live as long as the tensor.
func FromDense(d *gt.Dense) (tensor.Tensor, error) {
	if d == nil {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: FromDense of nil")
	}
	n, err := checkLayout(d)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: FromDense of %v%v: %w", d.Dtype(), d.Shape(), err)
	}
	dims := []int(d.Shape().Clone())
	if d.IsScalar() { // Data would return a copy of the element
		d = d.ShallowClone()
		if err := d.Reshape(1); err != nil {
			return tensor.Tensor{}, fmt.Errorf("gorgonia: FromDense: %w", err)
		}
	}
	defer runtime.KeepAlive(d) // Data makes its slice from a number
	var x tensor.Tensor
	switch s := d.Data().(type) {
	case []float32:
		x, err = share(s, n, dims)
	case []float64:
		x, err = share(s, n, dims)
	case []int32:
		x, err = share(s, n, dims)
	case []int64:
		x, err = share(s, n, dims)
	case []int:
		if strconv.IntSize == 32 {
			x, err = share(unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(s))), len(s)), n, dims)
		} else {
			x, err = share(unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(s))), len(s)), n, dims)
		}
	case []uint8:
		x, err = share(s, n, dims)
	case []bool:
		x, err = share(s, n, dims)
	default:
		err = fmt.Errorf("gorgonia: FromDense of %v%v: want float32, float64, int, int32, int64, uint8 or bool", d.Dtype(), d.Shape())
	}
	return x, err
}

// checkLayout returns d's number of elements, or an error if a tensor cannot use its memory.
func checkLayout(d *gt.Dense) (n int, err error) {
	shape, strides := d.Shape(), d.Strides()
	switch {
	case !d.IsNativelyAccessible():
		return 0, fmt.Errorf("its memory is not readable by Go")
	case len(d.Mask()) > 0:
		return 0, fmt.Errorf("it has a mask")
	case len(shape) > tensor.MaxNDim:
		return 0, fmt.Errorf("more than %d dimensions", tensor.MaxNDim)
	case len(shape) != len(strides):
		return 0, fmt.Errorf("it has %d strides", len(strides))
	}
	n = 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != n {
			return 0, fmt.Errorf("strides %v are not row-major without gaps: call Materialize (or, after T, Transpose) first", strides)
		}
		n *= shape[i]
	}
	return n, nil
}

func share[T tensor.Elem](s []T, n int, dims []int) (tensor.Tensor, error) {
	if len(s) != n {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: FromDense: %d elements in memory for the shape %v", len(s), dims)
	}
	return tensor.FromSlice(s, dims...), nil
}

// Dense returns a Dense that shares x's memory. If x belongs to a tape, the Dense holds a copy. It is an error if x is not in host memory,
// of a 16-bit type, or empty (gorgonia has no empty arrays). Memory that was given to tensor.FromPtr must live as long as the Dense. Each
// call makes several allocations, so do not use it in training steps.
func Dense(x tensor.Tensor) (*gt.Dense, error) {
	if !x.Valid() {
		return nil, fmt.Errorf("gorgonia: Dense of a tensor that is none, or was released")
	}
	if !x.Device().Host() {
		return nil, fmt.Errorf("gorgonia: Dense of %v: its memory is on %v, not the host's", x.Shape(), x.Device())
	}
	if x.Len() == 0 {
		return nil, fmt.Errorf("gorgonia: Dense of %v: gorgonia has no empty arrays", x.Shape())
	}
	switch x.DType() {
	case tensor.Float32:
		return newDense[float32](x), nil
	case tensor.Float64:
		return newDense[float64](x), nil
	case tensor.Int32:
		return newDense[int32](x), nil
	case tensor.Int64:
		return newDense[int64](x), nil
	case tensor.Uint8:
		return newDense[uint8](x), nil
	case tensor.Bool:
		return newDense[bool](x), nil
	}
	return nil, fmt.Errorf("gorgonia: Dense of %v: gorgonia has no such type; convert it to float32", x.Shape())
}

func newDense[T tensor.Elem](x tensor.Tensor) *gt.Dense {
	s := tensor.Data[T](x)
	if x.Tape() != nil || !x.Contiguous() {
		tensor.Raw(x).Settle() // a collective may still write it
		s = packed(x, s)
	}
	return gt.New(gt.WithShape(x.Shape().Dims...), gt.WithBacking(s))
}

// packed copies the elements of x without the gaps between rows. s is x's memory, with the gaps.
func packed[T tensor.Elem](x tensor.Tensor, s []T) []T {
	if x.Contiguous() {
		return append([]T(nil), s...)
	}
	rows, cols := x.Dim(0), x.Dim(1)
	out := make([]T, 0, rows*cols)
	stride := 0
	if rows > 1 {
		stride = (len(s) - cols) / (rows - 1)
	}
	for r := range rows {
		out = append(out, s[r*stride:r*stride+cols]...)
	}
	return out
}

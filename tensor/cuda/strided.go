package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
)

// strided is struct Strided of tensor.cuh: dimension 0 is the innermost.
type strided struct {
	n         int64
	rank, vec int32
	dim       [tensor.MaxNDim]int64
	stride    [3][tensor.MaxNDim]int64
}

// set sets the dimensions and strides from the first k operands of a. The strides of the others are 0.
func (s *strided) set(a *tensor.Args, k int) {
	*s = strided{n: 1, rank: int32(a.NDim)}
	for d := range a.NDim {
		from := a.NDim - 1 - d
		s.dim[d] = int64(a.Dim[from])
		s.n *= s.dim[d]
		for j := range k {
			s.stride[j][d] = int64(a.Stride[j][from])
		}
	}
}

// lines reports whether operand j at p, with elements of size bytes, can be accessed in groups of n elements along the innermost dimension.
// These must be adjacent (or be one element, if repeated is allowed), and every line must begin at a multiple of n elements.
func (s *strided) lines(j int, p tensor.Ptr, size, n int, repeated bool) bool {
	if repeated && s.stride[j][0] == 0 {
		return true
	}
	if s.stride[j][0] != 1 || uintptr(p)%uintptr(n*size) != 0 {
		return false
	}
	for d := 1; d < int(s.rank); d++ {
		if s.stride[j][d]%int64(n) != 0 {
			return false
		}
	}
	return s.rank == 1 || s.dim[0]%int64(n) == 0
}

// drop removes dimension d.
func (s *strided) drop(d int) {
	for i := d; i < int(s.rank)-1; i++ {
		s.dim[i] = s.dim[i+1]
		for j := range s.stride {
			s.stride[j][i] = s.stride[j][i+1]
		}
	}
	s.rank--
}

// places adds the struct to the parameters.
func (q *Queue) places() *Queue {
	q.args.Struct(unsafe.Pointer(&q.s), int(unsafe.Sizeof(q.s)))
	return q
}

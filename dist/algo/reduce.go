package algo

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// BlockBytes is how many bytes of a buffer an algorithm handles at a time: a block stays in the first-level cache, and an abort takes
// effect after a block.
const BlockBytes = backend.BlockAlign

// CheckReduction returns an error if elements of type dt cannot be combined by red: averages and factors need floats, bit operations need
// integers or bool.
func CheckReduction(red backend.Red, dt tensor.DType) error {
	switch red {
	case backend.Avg, backend.PreMulSum:
		if !dt.IsFloat() {
			return fmt.Errorf("%v of %v: needs a floating-point type", red, dt)
		}
	case backend.BAnd, backend.BOr, backend.BXor:
		if dt.IsFloat() {
			return fmt.Errorf("%v of %v: needs an integer type or bool", red, dt)
		}
	}
	return nil
}

// Reducer combines the same elements of all ranks. It has its own scratch memory and allocates nothing after it is made. On bool, Sum,
// Max and BOr are "or"; Prod, Min and BAnd are "and".
type Reducer struct {
	red     backend.Red
	dt      tensor.DType
	n       int
	work    func(bytes int) // takes virtual time in place of reducing
	factors []float64
	acc     []byte // BlockBytes
	tmp     []byte
	cut     [][]byte
}

// Begin prepares for op among n ranks. PreMulSum also needs SetFactor.
func (r *Reducer) Begin(op *backend.Op, n int) {
	r.red, r.dt, r.n = op.Red, op.DType, n
	if r.work != nil {
		return
	}
	if r.acc == nil {
		r.acc, r.tmp = alignedBlock(), alignedBlock()
	}
	if cap(r.cut) < n {
		r.cut, r.factors = make([][]byte, n), make([]float64, n)
	}
	r.cut, r.factors = r.cut[:n], r.factors[:n]
}

// SetFactor gives the factor that rank's input is multiplied by under PreMulSum.
func (r *Reducer) SetFactor(rank int, f float64) { r.factors[rank] = f }

func alignedBlock() []byte {
	b := make([]byte, BlockBytes+64)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & 63)
	return b[off : off+BlockBytes]
}

// Reduce sets dst to the reduction of srcs[0], …, srcs[n-1], combined in that order. All have the length of dst, whole
// elements. dst may be one of srcs.
func (r *Reducer) Reduce(dst []byte, srcs [][]byte) {
	if r.work != nil {
		r.work(max(r.n-1, 1) * len(dst))
		return
	}
	if r.n == 1 && r.red != backend.PreMulSum {
		if unsafe.SliceData(dst) != unsafe.SliceData(srcs[0]) {
			copy(dst, srcs[0])
		}
		return
	}
	step := BlockBytes
	if r.dt.IsHalf() {
		step /= 2 // so that a block of float32 fits
	}
	for lo := 0; lo < len(dst); lo += step {
		hi := min(lo+step, len(dst))
		for i, s := range srcs[:r.n] {
			r.cut[i] = s[lo:hi]
		}
		r.block(dst[lo:hi])
	}
}

// ReduceTwice is Reduce into dst and mirror. mirror may also be one of srcs. A sum of two inputs is stored in both places in one pass:
// what another core reads next is written while the inputs are read.
func (r *Reducer) ReduceTwice(dst, mirror []byte, srcs [][]byte) {
	if r.red == backend.Sum && r.n == 2 && r.dt == tensor.Float32 {
		kernel.AddTwice32(as[float32](dst), as[float32](mirror), as[float32](srcs[0]), as[float32](srcs[1]))
		return
	}
	r.Reduce(dst, srcs)
	copy(mirror, dst)
}

func (r *Reducer) block(dst []byte) {
	switch r.dt {
	case tensor.Float32:
		reduceFloat[float32](r, dst)
	case tensor.Float64:
		reduceFloat[float64](r, dst)
	case tensor.BFloat16, tensor.Float16:
		reduceHalf(r, dst)
	case tensor.Int32:
		reduceInt[int32](r, dst)
	case tensor.Int64:
		reduceInt[int64](r, dst)
	case tensor.Uint8:
		reduceInt[uint8](r, dst)
	case tensor.Bool:
		reduceBool(r, dst)
	}
}

func as[T any](b []byte) []T {
	var z T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(z)))
}

// target returns where to accumulate: dst itself, unless dst is an input that is read later.
func (r *Reducer) target(dst []byte, first int) []byte {
	for _, s := range r.cut[min(first, r.n):] {
		if unsafe.SliceData(s) == unsafe.SliceData(dst) {
			return r.acc[:len(dst)]
		}
	}
	return dst
}

func reduceFloat[T kernel.Float](r *Reducer, dst []byte) {
	first := 1
	out := r.target(dst, 1)
	acc := as[T](out)
	switch {
	case r.red == backend.PreMulSum:
		copy(acc, as[T](r.cut[0]))
		kernel.ScaleInto(acc, r.factors[0])
	case (r.red == backend.Sum || r.red == backend.Avg) && r.n > 1:
		out = r.target(dst, 2)
		acc = as[T](out)
		addTo(acc, as[T](r.cut[0]), as[T](r.cut[1]))
		first = 2
	default:
		copy(acc, as[T](r.cut[0]))
	}
	for i := first; i < r.n; i++ {
		src := as[T](r.cut[i])
		if r.red == backend.PreMulSum {
			t := as[T](r.tmp[:len(dst)])
			copy(t, src)
			kernel.ScaleInto(t, r.factors[i])
			src = t
		}
		combineFloat(r.red, acc, src)
	}
	if r.red == backend.Avg {
		divide(acc, float64(r.n))
	}
	if unsafe.SliceData(out) != unsafe.SliceData(dst) {
		copy(dst, out)
	}
}

func combineFloat[T kernel.Float](red backend.Red, dst, src []T) {
	switch red {
	case backend.Sum, backend.Avg, backend.PreMulSum:
		addTo(dst, dst, src)
	case backend.Prod:
		kernel.ProdInto(dst, src)
	case backend.Min:
		kernel.MinInto(dst, src)
	case backend.Max:
		kernel.MaxInto(dst, src)
	}
}

// addTo sets dst to a + b in assembly.
func addTo[T kernel.Float](dst, a, b []T) {
	if unsafe.Sizeof(T(0)) == 4 {
		kernel.AddTo32(to[float32](dst), to[float32](a), to[float32](b))
	} else {
		kernel.AddTo64(to[float64](dst), to[float64](a), to[float64](b))
	}
}

// to returns x as a slice of D, which is the same type under another name.
func to[D, S kernel.Float](x []S) []D {
	return unsafe.Slice((*D)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// divide divides x by n, correctly rounded. For a power of two it multiplies by the inverse, which gives the same result faster.
func divide[T kernel.Float](x []T, n float64) {
	if frac, _ := math.Frexp(n); frac == 0.5 {
		kernel.ScaleInto(x, 1/n)
		return
	}
	for i := range x {
		x[i] /= T(n)
	}
}

func reduceHalf(r *Reducer, dst []byte) {
	count := len(dst) / 2
	acc, tmp := as[float32](r.acc)[:count], as[float32](r.tmp)[:count]
	for i, s := range r.cut {
		to := tmp
		if i == 0 {
			to = acc
		}
		if r.dt == tensor.BFloat16 {
			kernel.BF16ToF32(to, as[kernel.BF16](s))
		} else {
			kernel.F16ToF32(to, as[kernel.F16](s))
		}
		if r.red == backend.PreMulSum {
			kernel.ScaleInto(to, r.factors[i])
		}
		if i > 0 {
			combineFloat(r.red, acc, tmp)
		}
	}
	if r.red == backend.Avg {
		divide(acc, float64(r.n))
	}
	if r.dt == tensor.BFloat16 {
		kernel.F32ToBF16(as[kernel.BF16](dst), acc)
	} else {
		kernel.F32ToF16(as[kernel.F16](dst), acc)
	}
}

func reduceInt[T kernel.Int](r *Reducer, dst []byte) {
	out := r.target(dst, 1)
	acc := as[T](out)
	copy(acc, as[T](r.cut[0]))
	for _, s := range r.cut[1:] {
		src := as[T](s)
		switch r.red {
		case backend.Sum:
			kernel.SumInto(acc, src)
		case backend.Prod:
			kernel.ProdInto(acc, src)
		case backend.Min:
			kernel.MinInto(acc, src)
		case backend.Max:
			kernel.MaxInto(acc, src)
		case backend.BAnd:
			kernel.BAndInto(acc, src)
		case backend.BOr:
			kernel.BOrInto(acc, src)
		case backend.BXor:
			kernel.BXorInto(acc, src)
		}
	}
	if unsafe.SliceData(out) != unsafe.SliceData(dst) {
		copy(dst, out)
	}
}

func reduceBool(r *Reducer, dst []byte) {
	out := r.target(dst, 1)
	acc := as[bool](out)
	copy(acc, as[bool](r.cut[0]))
	for _, s := range r.cut[1:] {
		switch r.red {
		case backend.Sum, backend.Max, backend.BOr:
			kernel.OrBoolInto(acc, as[bool](s))
		case backend.Prod, backend.Min, backend.BAnd:
			kernel.AndBoolInto(acc, as[bool](s))
		case backend.BXor:
			kernel.XorBoolInto(acc, as[bool](s))
		}
	}
	if unsafe.SliceData(out) != unsafe.SliceData(dst) {
		copy(dst, out)
	}
}

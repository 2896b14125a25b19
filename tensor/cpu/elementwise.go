package cpu

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// map1 applies f(dst, x) to contiguous operands.
func map1[T any](f func(dst, x []T)) tensor.Kernel {
	return spread(outLen, one, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		f(slice[T](a, 0)[lo:hi], slice[T](a, 1)[lo:hi])
	})
}

// map2 applies f(dst, x, y) to contiguous operands of one length.
func map2[T any](f func(dst, x, y []T)) tensor.Kernel {
	return spread(outLen, one, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		f(slice[T](a, 0)[lo:hi], slice[T](a, 1)[lo:hi], slice[T](a, 2)[lo:hi])
	})
}

func affineKernel[T kernel.Float]() tensor.Kernel {
	return spread(outLen, one, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		kernel.Affine(slice[T](a, 0)[lo:hi], slice[T](a, 1)[lo:hi], T(a.F[0]), T(a.F[1]))
	})
}

// stridedItems is the number of items of an elementwise launch with strides: inner loops if there are several dimensions, else elements.
func stridedItems(a *tensor.Args) int {
	if a.NDim == 1 {
		return a.Dim[0]
	}
	n := 1
	for _, d := range a.Dim[:a.NDim-1] {
		n *= d
	}
	return n
}

func stridedCost(a *tensor.Args) int {
	if a.NDim == 1 {
		return 1
	}
	return a.Dim[a.NDim-1]
}

// offsets returns the element offsets of operands 0, 1, 2 at item i of the outer dimensions.
func offsets(a *tensor.Args, i int) (o [3]int) {
	for d := a.NDim - 2; d >= 0; d-- {
		k := i % a.Dim[d]
		i /= a.Dim[d]
		for j := range o {
			o[j] += k * a.Stride[j][d]
		}
	}
	return o
}

// inner returns n elements of operand i from offset off on, or one element if it is repeated along the last dimension.
func inner[T any](a *tensor.Args, i, off, n int) []T {
	if a.Stride[i][a.NDim-1] == 0 {
		n = 1
	}
	return unsafe.Slice((*T)(unsafe.Add(a.X[i], off*int(unsafe.Sizeof(*new(T))))), n)
}

// Zip makes the CPU kernel of an operation of [tensor.Op.Binary]: it applies f(dst, x, y) along the last dimension of broadcast operands.
// An operand that is repeated along it has one element.
func Zip[D, S any](f func(dst []D, x, y []S)) tensor.Kernel {
	return spread(stridedItems, stridedCost, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		if a.NDim == 1 {
			o := [3]int{lo * a.Stride[0][0], lo * a.Stride[1][0], lo * a.Stride[2][0]}
			f(inner[D](a, 0, o[0], hi-lo), inner[S](a, 1, o[1], hi-lo), inner[S](a, 2, o[2], hi-lo))
			return
		}
		n := a.Dim[a.NDim-1]
		for i := lo; i < hi; i++ {
			o := offsets(a, i)
			f(inner[D](a, 0, o[0], n), inner[S](a, 1, o[1], n), inner[S](a, 2, o[2], n))
		}
	})
}

type (
	binaryFunc[T any]  = func(dst, x, y []T)
	compareFunc[T any] = func(dst []bool, x, y []T)
)

// Binary returns kernels of [Zip], and those for 16-bit floats, which compute parts in float32.
func Binary(f32 binaryFunc[float32], f64 binaryFunc[float64], i32 binaryFunc[int32], i64 binaryFunc[int64],
	u8 binaryFunc[uint8]) kernels {
	return withHalf(numbers(Zip(f32), Zip(f64), Zip(i32), Zip(i64), Zip(u8)), zipHalf(f32))
}

func compares(f32 compareFunc[float32], f64 compareFunc[float64], i32 compareFunc[int32], i64 compareFunc[int64],
	u8 compareFunc[uint8]) kernels {
	k := numbers(Zip(f32), Zip(f64), Zip(i32), Zip(i64), Zip(u8))
	k[tensor.Bool] = k[tensor.Uint8]
	return k
}

// strided makes a kernel that calls f for a part of dimension 0 of a copy from operand 1 to operand 0.
func strided[T any](f func(dst, src []T, dims, ds, ss []int)) tensor.Kernel {
	cost := func(a *tensor.Args) int {
		n := 1
		for _, d := range a.Dim[1:a.NDim] {
			n *= d
		}
		return n
	}
	return spread(dim0, cost, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		var dims, ds, ss [tensor.MaxNDim]int
		copy(dims[:], a.Dim[:])
		copy(ds[:], a.Stride[0][:])
		copy(ss[:], a.Stride[1][:])
		dims[0] = hi - lo
		f(slice[T](a, 0)[min(lo*ds[0], a.Len[0]):], slice[T](a, 1)[min(lo*ss[0], a.Len[1]):], dims[:a.NDim], ds[:a.NDim], ss[:a.NDim])
	})
}

func copyKernel[T any]() tensor.Kernel            { return strided(kernel.CopyStrided[T]) }
func addToKernel[T kernel.Number]() tensor.Kernel { return strided(kernel.AddStrided[T]) }

var fillKernels = kernels{
	tensor.Float32:  fillKernel(func(v float64) float32 { return float32(v) }),
	tensor.Float64:  fillKernel(func(v float64) float64 { return v }),
	tensor.BFloat16: fillKernel(func(v float64) tensor.BF16 { return kernel.ToBF16(float32(v)) }),
	tensor.Float16:  fillKernel(func(v float64) tensor.F16 { return kernel.ToF16(float32(v)) }),
	tensor.Int32:    fillKernel(func(v float64) int32 { return int32(v) }),
	tensor.Int64:    fillKernel(func(v float64) int64 { return int64(v) }),
	tensor.Uint8:    fillKernel(func(v float64) uint8 { return uint8(v) }),
	tensor.Bool:     fillKernel(func(v float64) bool { return v != 0 }),
}

func fillKernel[T any](conv func(float64) T) tensor.Kernel {
	return spread(outLen, one, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		kernel.Fill(slice[T](a, 0)[lo:hi], conv(a.F[0]))
	})
}

// castKernels has a row per source type; the destination type is the output's.
var castKernels = kernels{
	tensor.Float32: castHalf(castAny), tensor.Float64: castAny, tensor.BFloat16: castHalf(castAny), tensor.Float16: castHalf(castAny),
	tensor.Int32: castAny, tensor.Int64: castAny, tensor.Uint8: castAny, tensor.Bool: castAny,
}

const castBlock = 256

// castAny converts block by block: from floats through float64, from other types through int64.
var castAny = spread(outLen, one, castBlock, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
	var wide [castBlock]float64
	var ints [castBlock]int64
	for i := lo; i < hi; i += castBlock {
		n := min(castBlock, hi-i)
		if a.DT[1].IsFloat() {
			loadFloats(wide[:n], a, i)
			storeAs(a, i, wide[:n])
		} else {
			loadInts(ints[:n], a, i)
			storeAs(a, i, ints[:n])
		}
	}
})

// loadFloats widens elements from i on. Like loadInts, it is called directly: a call through a function value would move dst to the heap.
func loadFloats(dst []float64, a *tensor.Args, i int) {
	n := len(dst)
	switch a.DT[1] {
	case tensor.Float32:
		kernel.Convert(dst, slice[float32](a, 1)[i:i+n])
	case tensor.Float64:
		kernel.Convert(dst, slice[float64](a, 1)[i:i+n])
	case tensor.BFloat16:
		widenHalf(dst, slice[tensor.BF16](a, 1)[i:i+n])
	default:
		widenHalf(dst, slice[tensor.F16](a, 1)[i:i+n])
	}
}

func widenHalf[T interface{ Float32() float32 }](dst []float64, src []T) {
	for j, v := range src {
		dst[j] = float64(v.Float32())
	}
}

func loadInts(dst []int64, a *tensor.Args, i int) {
	n := len(dst)
	switch a.DT[1] {
	case tensor.Int32:
		kernel.Convert(dst, slice[int32](a, 1)[i:i+n])
	case tensor.Int64:
		kernel.Convert(dst, slice[int64](a, 1)[i:i+n])
	case tensor.Uint8:
		kernel.Convert(dst, slice[uint8](a, 1)[i:i+n])
	default:
		kernel.FromBool(dst, slice[bool](a, 1)[i:i+n])
	}
}

func storeAs[S kernel.Number](a *tensor.Args, i int, src []S) {
	n := len(src)
	switch a.DT[0] {
	case tensor.Float32:
		kernel.Convert(slice[float32](a, 0)[i:i+n], src)
	case tensor.Float64:
		kernel.Convert(slice[float64](a, 0)[i:i+n], src)
	case tensor.BFloat16:
		for j, v := range src {
			slice[tensor.BF16](a, 0)[i+j] = kernel.ToBF16(float32(v))
		}
	case tensor.Float16:
		for j, v := range src {
			slice[tensor.F16](a, 0)[i+j] = kernel.ToF16(float32(v))
		}
	case tensor.Int32:
		kernel.Convert(slice[int32](a, 0)[i:i+n], src)
	case tensor.Int64:
		kernel.Convert(slice[int64](a, 0)[i:i+n], src)
	case tensor.Uint8:
		kernel.Convert(slice[uint8](a, 0)[i:i+n], src)
	default:
		kernel.ToBool(slice[bool](a, 0)[i:i+n], src)
	}
}

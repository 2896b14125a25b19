package cpu

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// colSumBF16 is colSumKernel for bfloat16.
var colSumBF16 = spread(dim1, dim0, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
	kernel.ColSumBF16(slice[tensor.BF16](a, 0), slice[tensor.BF16](a, 1), a.Dim[0], a.Dim[1], a.Dim[1], lo, hi, a.F[0] != 0)
})

func colSumKernel[T kernel.Float]() tensor.Kernel {
	return spread(dim1, dim0, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		kernel.ColSum(slice[T](a, 0), slice[T](a, 1), a.Dim[0], a.Dim[1], a.Dim[1], lo, hi, a.F[0] != 0)
	})
}

type sumFunc[T any] = func(dst, x []T, n, inner, lo, hi int)

func sums(f32 sumFunc[float32], f64 sumFunc[float64], i32 sumFunc[int32], i64 sumFunc[int64], u8 sumFunc[uint8]) kernels {
	return numbers(sumKernel(f32), sumKernel(f64), sumKernel(i32), sumKernel(i64), sumKernel(u8))
}

func sumKernel[T any](f sumFunc[T]) tensor.Kernel {
	return spread(outLen, dim1, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		f(slice[T](a, 0), slice[T](a, 1), a.Dim[1], a.Dim[2], lo, hi)
	})
}

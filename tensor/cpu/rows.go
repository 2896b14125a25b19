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

type (
	sumFunc[T any]     = func(dst, x []T, n, inner, lo, hi int)
	extremeFunc[T any] = func(dst []T, idx []int64, x []T, n, inner, lo, hi int)
)

func sums(f32 sumFunc[float32], f64 sumFunc[float64], i32 sumFunc[int32], i64 sumFunc[int64], u8 sumFunc[uint8]) kernels {
	return numbers(sumKernel(f32), sumKernel(f64), sumKernel(i32), sumKernel(i64), sumKernel(u8))
}

func sumKernel[T any](f sumFunc[T]) tensor.Kernel {
	return spread(outLen, dim1, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		f(slice[T](a, 0), slice[T](a, 1), a.Dim[1], a.Dim[2], lo, hi)
	})
}

func extremes(f32 extremeFunc[float32], f64 extremeFunc[float64], i32 extremeFunc[int32], i64 extremeFunc[int64],
	u8 extremeFunc[uint8]) kernels {
	return numbers(extremeKernel(f32), extremeKernel(f64), extremeKernel(i32), extremeKernel(i64), extremeKernel(u8))
}

func extremeKernel[T any](f extremeFunc[T]) tensor.Kernel {
	return spread(outLen, dim1, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		f(slice[T](a, 0), slice[int64](a, 1), slice[T](a, 2), a.Dim[1], a.Dim[2], lo, hi)
	})
}

func embeddingKernel[T any]() tensor.Kernel {
	return spread(dim0, dim1, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		kernel.GatherRows(slice[T](a, 0), slice[T](a, 1), slice[int64](a, 2), a.Dim[1], lo, hi)
	})
}

// embeddingGradKernel gives each thread some columns: rows may occur several times, and must be added in order.
func embeddingGradKernel[T kernel.Float]() tensor.Kernel {
	return spread(dim1, dim0, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		kernel.ScatterAddRows(slice[T](a, 0), slice[T](a, 1), slice[int64](a, 2), a.Dim[1], lo, hi)
	})
}

func gatherCost(a *tensor.Args) int { return a.Dim[2] * a.Dim[3] }

func gatherKernel[T any]() tensor.Kernel {
	return spread(dim0, gatherCost, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		kernel.GatherDim(slice[T](a, 0), slice[T](a, 1), slice[int64](a, 2), a.Dim[1], a.Dim[2], a.Dim[3], lo, hi)
	})
}

func scatterAddKernel[T kernel.Number]() tensor.Kernel {
	return spread(dim0, gatherCost, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		kernel.ScatterAddDim(slice[T](a, 0), slice[T](a, 1), slice[int64](a, 2), a.Dim[1], a.Dim[2], a.Dim[3], lo, hi)
	})
}

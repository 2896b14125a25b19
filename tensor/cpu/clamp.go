package cpu

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

func arangeKernel[T kernel.Number]() tensor.Kernel {
	return Parallel(outLen, one, func(a *tensor.Args, lo, hi int) {
		for i, y := lo, slice[T](a, 0); i < hi; i++ {
			y[i] = T(a.F[0] + float64(float64(i)*a.F[1])) // rounded twice, as on other devices
		}
	})
}

func clampKernel[T kernel.Number]() tensor.Kernel {
	return spread(outLen, one, 16, func(_ *Queue, a *tensor.Args, from, to, _ int) {
		var lo, hi [1]T
		if a.DType.IsFloat() {
			lo[0], hi[0] = T(a.F[0]), T(a.F[1])
		} else {
			lo[0], hi[0] = T(a.I[0]), T(a.I[1])
		}
		y := slice[T](a, 0)[from:to]
		kernel.Max(y, slice[T](a, 1)[from:to], lo[:])
		kernel.Min(y, y, hi[:])
	})
}

func clampGradKernel[T kernel.Float]() tensor.Kernel {
	return spread(outLen, one, 16, func(_ *Queue, a *tensor.Args, from, to, _ int) {
		lo, hi := T(a.F[0]), T(a.F[1])
		d, g, x := slice[T](a, 0)[from:to], slice[T](a, 1)[from:to], slice[T](a, 2)[from:to]
		for i, v := range x {
			if v >= lo && v <= hi {
				d[i] = g[i]
			} else {
				d[i] = 0
			}
		}
	})
}

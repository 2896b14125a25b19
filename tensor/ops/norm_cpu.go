package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

func layerNormPart[T float](_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
	x := operands[T](a)
	kernel.LayerNorm(x[0], x[1], x[2], x[3], x[4], x[5], a.Dim[1], lo, hi, a.F[0])
}

func layerNormGradXPart[T float](_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
	x := operands[T](a)
	kernel.LayerNormGradX(x[0], x[2], x[1], x[3], x[4], x[5], a.Dim[1], lo, hi)
}

func rmsNormPart[T float](_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
	x := operands[T](a)
	kernel.RMSNorm(x[0], x[1], x[2], x[3], a.Dim[1], lo, hi, a.F[0])
}

func rmsNormGradXPart[T float](_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
	x := operands[T](a)
	kernel.RMSNormGradX(x[0], x[2], x[1], x[3], x[4], a.Dim[1], lo, hi)
}

// operands returns the first operands of a launch.
func operands[T float](a *tensor.Args) (x [6][]T) {
	for i := range min(a.N, len(x)) {
		x[i] = tensor.Operand[T](a, i)
	}
	return x
}

func layerNormGradWKernels() kernels {
	return floats(layerNormGradWKernel[float32](), layerNormGradWKernel[float64](), aligned(dim1, dim0, func(a *tensor.Args, lo, hi int) {
		kernel.NormGradWBF16(tensor.Operand[tensor.BF16](a, 0), tensor.Operand[tensor.BF16](a, 2), tensor.Operand[tensor.BF16](a, 1),
			tensor.Operand[float32](a, 3), tensor.Operand[float32](a, 4), a.Dim[0], a.Dim[1], lo, hi, a.F[0] != 0)
	}))
}

func layerNormGradWKernel[T float]() tensor.Kernel {
	return aligned(dim1, dim0, func(a *tensor.Args, lo, hi int) {
		x := operands[T](a)
		kernel.LayerNormGradW(x[0], nil, x[2], x[1], x[3], x[4], a.Dim[0], a.Dim[1], lo, hi, a.F[0] != 0)
	})
}

func rmsNormGradWKernels() kernels {
	return floats(rmsNormGradWKernel[float32](), rmsNormGradWKernel[float64](), aligned(dim1, dim0, func(a *tensor.Args, lo, hi int) {
		kernel.NormGradWBF16(tensor.Operand[tensor.BF16](a, 0), tensor.Operand[tensor.BF16](a, 2), tensor.Operand[tensor.BF16](a, 1), nil,
			tensor.Operand[float32](a, 3), a.Dim[0], a.Dim[1], lo, hi, a.F[0] != 0)
	}))
}

func rmsNormGradWKernel[T float]() tensor.Kernel {
	return aligned(dim1, dim0, func(a *tensor.Args, lo, hi int) {
		x := operands[T](a)
		kernel.RMSNormGradW(x[0], x[2], x[1], x[3], a.Dim[0], a.Dim[1], lo, hi, a.F[0] != 0)
	})
}

// aligned is cpu.Parallel where threads begin at multiples of 16 items.
func aligned(count, cost func(a *tensor.Args) int, f func(a *tensor.Args, lo, hi int)) tensor.Kernel {
	part := func(_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) { f(a, lo, hi) }
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*cpu.Queue)
		c.Run(a, count(a), (c.Grain()-1)/max(cost(a), 1)+1, 16, part)
	}
}

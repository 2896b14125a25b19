package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

type attnWorkspacesBF16 = []attnWorkspace[kernel.AttentionBF16, kernel.AttentionWorkBF16]

func attentionHalf(q *CPUQueue) *attnWorkspacesBF16 { return &q.attnBF16 }

// orBF16 makes half the kernel for bfloat16, if the CPU multiplies bfloat16 numbers. Otherwise it is faster to convert the operands.
func orBF16(k [NumDTypes]Kernel, half Kernel) [NumDTypes]Kernel {
	if kernel.HasBF16Products() {
		k[BFloat16] = half
	}
	return k
}

func attentionOfBF16(a *Args) kernel.AttentionBF16 {
	return kernel.AttentionBF16{AttentionShape: attentionShape(a), Scale: float32(a.F[0])}
}

// attentionBF16 is attentionKernel for bfloat16; the other three are those of their names.
func attentionBF16() Kernel {
	return attentionLaunch(attentionHalf, kernel.NewAttentionWorkBF16, (*kernel.AttentionWorkBF16).Grow,
		func(l *kernel.AttentionBF16, a *Args) int {
			*l = attentionOfBF16(a)
			l.Out, l.LSE = slice[BF16](a, 0), slice[float32](a, 1)
			l.Pack(slice[BF16](a, 2), nil)
			return l.Blocks()
		}, kernel.AttentionForwardBF16)
}

func attentionGradBF16() Kernel {
	return attentionLaunch(attentionHalf, kernel.NewAttentionWorkBF16, (*kernel.AttentionWorkBF16).Grow,
		func(l *kernel.AttentionBF16, a *Args) int {
			*l = attentionOfBF16(a)
			l.Pack(slice[BF16](a, 1), slice[BF16](a, 0))
			l.Out, l.GradOut, l.LSE = slice[BF16](a, 2), slice[BF16](a, 3), slice[float32](a, 4)
			return l.Groups()
		}, kernel.AttentionGradBF16)
}

func crossAttentionBF16() Kernel {
	return attentionLaunch(attentionHalf, kernel.NewAttentionWorkBF16, (*kernel.AttentionWorkBF16).Grow,
		func(l *kernel.AttentionBF16, a *Args) int {
			*l = attentionOfBF16(a)
			l.Out, l.LSE = slice[BF16](a, 0), slice[float32](a, 1)
			l.Q, l.K, l.V = slice[BF16](a, 2), slice[BF16](a, 3), slice[BF16](a, 4)
			l.AttentionMasks = attentionMasks(a, 5)
			return l.Blocks()
		}, kernel.AttentionForwardBF16)
}

func crossAttentionGradBF16() Kernel {
	return attentionLaunch(attentionHalf, kernel.NewAttentionWorkBF16, (*kernel.AttentionWorkBF16).Grow,
		func(l *kernel.AttentionBF16, a *Args) int {
			*l = attentionOfBF16(a)
			l.GradQ, l.GradK, l.GradV = slice[BF16](a, 0), slice[BF16](a, 1), slice[BF16](a, 2)
			l.Q, l.K, l.V = slice[BF16](a, 3), slice[BF16](a, 4), slice[BF16](a, 5)
			l.Out, l.GradOut, l.LSE = slice[BF16](a, 6), slice[BF16](a, 7), slice[float32](a, 8)
			l.AttentionMasks, l.GradLSE = attentionMasks(a, 9), slice[float32](a, 12)
			return l.Groups()
		}, kernel.AttentionGradBF16)
}

package cpu

import (
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// Multi-tensor kernels take List in groups: the tensors of one parameter, all of ListLen[i] elements.

func listTotal(a *tensor.Args) int {
	n := 0
	for _, l := range a.ListLen {
		n += l
	}
	return n
}

// eachList calls f for the pieces of the parameters that items lo to hi of all elements cover.
func eachList[T any](a *tensor.Args, group, lo, hi int, f func(a *tensor.Args, i int, x [4][]T)) {
	at := 0
	for i, n := range a.ListLen {
		from, to := max(lo-at, 0), min(hi-at, n)
		if from < to {
			var x [4][]T
			for k := range group {
				if p := a.List[i*group+k]; p != nil {
					x[k] = unsafe.Slice((*T)(p), n)[from:to]
				}
			}
			f(a, i, x)
		}
		at += n
	}
}

// The optimizers' kernels for each type of parameter; see mixed for the 16-bit ones.

// gradFactor returns the factor that an optimizer multiplies gradients by: the first element of its optional operand 0 (Float64, made by
// OpClip), else 1.
func gradFactor(a *tensor.Args) float64 {
	if a.N == 0 {
		return 1
	}
	return slice[float64](a, 0)[0]
}

// unlessNaN makes kernels of optimizers change nothing if gradFactor is NaN.
func unlessNaN(kernels kernels) kernels {
	for d, k := range kernels {
		if k != nil {
			kernels[d] = func(q tensor.Queue, a *tensor.Args) {
				if !math.IsNaN(gradFactor(a)) {
					k(q, a)
				}
			}
		}
	}
	return kernels
}

// OpSGD: List = value, gradient, momentum (nil without). I[0]: Nesterov, I[1]: first step.
// F = lr, momentum, dampening, weight decay. See gradFactor for the operand.
func sgdStep[T kernel.Float](a *tensor.Args, _ int, x [4][]T) {
	kernel.SGD(x[0], x[1], x[2], sgdHyper(a))
}

func sgdHyper(a *tensor.Args) kernel.SGDHyper {
	return kernel.SGDHyper{LR: a.F[0], Momentum: a.F[1], Dampening: a.F[2], WeightDecay: a.F[3],
		GradScale: gradFactor(a), Nesterov: a.I[0] != 0, First: a.I[1] != 0}
}

// OpAdam: List = value, gradient, first and second moment. I[0]: decoupled weight decay, I[1]: step, from 1.
// F = lr, beta1, beta2, eps, weight decay. See gradFactor for the operand.
func adamStep[T kernel.Float](a *tensor.Args, _ int, x [4][]T) {
	kernel.Adam(x[0], x[1], x[2], x[3], adamHyper(a))
}

func adamHyper(a *tensor.Args) kernel.AdamHyper {
	return kernel.AdamHyper{LR: a.F[0], Beta1: a.F[1], Beta2: a.F[2], Eps: a.F[3],
		WeightDecay: a.F[4], GradScale: gradFactor(a), Decoupled: a.I[0] != 0, Step: a.I[1]}
}

// The kernels of BFloat16 do what [mixed] does, and widen and round in registers.
var (
	sgdBF16 = mastered(3, func(a *tensor.Args, x [4][]float32, grad, out []tensor.BF16) {
		kernel.SGDBF16(x[0], grad, x[2], out, sgdHyper(a))
	})

	adamBF16 = mastered(4, func(a *tensor.Args, x [4][]float32, grad, out []tensor.BF16) {
		kernel.AdamBF16(x[0], grad, x[2], x[3], out, adamHyper(a))
	})
)

// mastered makes an optimizer's kernel from a step that reads bfloat16 gradients and writes bfloat16 parameters. The groups of List are
// those of [mixed]; x is their float32 part, without the gradient.
func mastered(group int, step func(a *tensor.Args, x [4][]float32, grad, out []tensor.BF16)) tensor.Kernel {
	return spread(listTotal, one, 32, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		at := 0
		for i, n := range a.ListLen {
			if from, to := max(lo-at, 0), min(hi-at, n); from < to {
				list := a.List[i*(group+1):]
				half := func(k int) []tensor.BF16 { return unsafe.Slice((*tensor.BF16)(list[k]), n)[from:to] }
				var x [4][]float32
				for k := range group {
					if k != 1 && list[k] != nil {
						x[k] = unsafe.Slice((*float32)(list[k]), n)[from:to]
					}
				}
				step(a, x, half(1), half(group))
			}
			at += n
		}
	})
}

// OpSumSquares: List = tensors. It cuts each tensor into blocks of SumSquaresBlock elements; the last one may be shorter. The output,
// Float64, gets the sum of squares of each block, tensor by tensor, from its element I[0] on.
var sumSquaresKernels = kernels{
	tensor.Float32:  sumSquaresKernel(func(_ *Queue, x []float32, _ int) float64 { return kernel.SumSquares(x) }),
	tensor.Float64:  sumSquaresKernel(func(_ *Queue, x []float64, _ int) float64 { return kernel.SumSquares(x) }),
	tensor.BFloat16: sumSquaresHalf[tensor.BF16](tensor.BFloat16),
	tensor.Float16:  sumSquaresHalf[tensor.F16](tensor.Float16),
}

// sumSquaresKernel makes a kernel in which a thread computes the blocks that begin in its range of all elements.
func sumSquaresKernel[T any](f func(q *Queue, x []T, thread int) float64) tensor.Kernel {
	return spread(listTotal, one, 16, func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		out, at, block := slice[float64](a, 0), 0, a.I[0]
		for i, n := range a.ListLen {
			x := unsafe.Slice((*T)(a.List[i]), n)
			for j := 0; j < n; j += tensor.SumSquaresBlock {
				if lo <= at+j && at+j < hi {
					out[block] = f(q, x[j:min(n, j+tensor.SumSquaresBlock)], thread)
				}
				block++
			}
			at += n
		}
	})
}

// sumSquaresHalf widens a block first, into memory of the thread.
func sumSquaresHalf[T any](d tensor.DType) tensor.Kernel {
	k := sumSquaresKernel(func(q *Queue, x []T, thread int) float64 {
		wide := q.blocks[thread*tensor.SumSquaresBlock:][:len(x)]
		widen(wide, unsafe.Pointer(unsafe.SliceData(x)), d)
		return kernel.SumSquares(wide)
	})
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*Queue)
		if c.blocks == nil {
			c.blocks = make([]float32, c.pool.n*tensor.SumSquaresBlock)
		}
		k(q, a)
	}
}

// OpGradNorm adds the results of OpSumSquares in order. Its output, Float64[2], gets the sum of the first I[0] elements of the input, and
// the index of the first of them that is not finite; -1: none.
func gradNormKernel(_ tensor.Queue, a *tensor.Args) {
	sum, first := 0.0, -1
	for i, v := range slice[float64](a, 1)[:a.I[0]] {
		if sum += v; first < 0 && !finite(v) {
			first = i
		}
	}
	out := slice[float64](a, 0)
	out[0], out[1] = sum, float64(first)
}

func finite(v float64) bool { return v-v == 0 }

// OpClip computes the gradients' factor and norm from the output of OpGradNorm, or from its sum over ranks. F[0] is a factor that gradients
// get in any case; F[1] is the largest norm, 0: no limit. Its output, Float64[4], gets the factor and the norm. If the norm is not finite,
// the factor is NaN. If F[2], the number of the step, is not 0, too, the rest of the output gets it and OpGradNorm's index: from then on
// OpClip changes nothing.
func clipKernel(_ tensor.Queue, a *tensor.Args) {
	out, in := slice[float64](a, 0), slice[float64](a, 1)
	if out[2] != 0 {
		return
	}
	norm := float64(math.Sqrt(in[0]) * a.F[0])
	out[0], out[1] = a.F[0], norm
	switch {
	case !finite(norm):
		out[0] = math.NaN()
		if a.F[2] != 0 {
			out[2], out[3] = a.F[2], in[1]
		}
	case a.F[1] != 0:
		out[0] *= min(1, a.F[1]/(norm+1e-6))
	}
}

package tensor

import (
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// Multi-tensor kernels take List in groups: the tensors of one parameter, all of ListLen[i] elements.

func listTotal(a *Args) int {
	n := 0
	for _, l := range a.ListLen {
		n += l
	}
	return n
}

// eachList calls f for the pieces of the parameters that items lo to hi of all elements cover.
func eachList[T any](a *Args, group, lo, hi int, f func(a *Args, i int, x [4][]T)) {
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

// The optimizers' kernels are those of the parameter's type; see mixed for 16-bit ones.

// gradFactor is what the gradients are multiplied by first: the optional operand 0 of the optimizers, Float64, whose first
// element it is (OpClip makes it); 1 without.
func gradFactor(a *Args) float64 {
	if a.N == 0 {
		return 1
	}
	return slice[float64](a, 0)[0]
}

// OpSGD: List = value, gradient, momentum (nil without). I[0]: Nesterov, I[1]: first step.
// F = lr, momentum, dampening, weight decay. See gradFactor for the operand.
func sgdStep[T kernel.Float](a *Args, _ int, x [4][]T) {
	kernel.SGD(x[0], x[1], x[2], kernel.SGDHyper{LR: a.F[0], Momentum: a.F[1], Dampening: a.F[2], WeightDecay: a.F[3],
		GradScale: gradFactor(a), Nesterov: a.I[0] != 0, First: a.I[1] != 0})
}

// OpAdam: List = value, gradient, first and second moment. I[0]: decoupled weight decay, I[1]: step, from 1.
// F = lr, beta1, beta2, eps, weight decay. See gradFactor for the operand.
func adamStep[T kernel.Float](a *Args, _ int, x [4][]T) {
	kernel.Adam(x[0], x[1], x[2], x[3], adamHyper(a))
}

func adamHyper(a *Args) kernel.AdamHyper {
	return kernel.AdamHyper{LR: a.F[0], Beta1: a.F[1], Beta2: a.F[2], Eps: a.F[3],
		WeightDecay: a.F[4], GradScale: gradFactor(a), Decoupled: a.I[0] != 0, Step: a.I[1]}
}

// adamBF16 is [mixed] for Adam and BFloat16: the kernel widens and rounds itself.
var adamBF16 = spread(listTotal, one, 32, func(_ *cpuQueue, a *Args, lo, hi, _ int) {
	at := 0
	for i, n := range a.ListLen {
		if from, to := max(lo-at, 0), min(hi-at, n); from < to {
			list := a.List[5*i:]
			wide := func(k int) []float32 { return unsafe.Slice((*float32)(list[k]), n)[from:to] }
			half := func(k int) []BF16 { return unsafe.Slice((*BF16)(list[k]), n)[from:to] }
			kernel.AdamBF16(wide(0), half(1), wide(2), wide(3), half(4), adamHyper(a))
		}
		at += n
	}
})

// SumSquaresBlock is the number of elements whose squares OpSumSquares adds up to one number.
const SumSquaresBlock = 1 << 14

// OpSumSquares: List = tensors; the output, Float64, gets the sums of squares of the blocks of SumSquaresBlock elements of
// the first tensor, then of the second one, and so on, from its element I[0] on; a tensor's last block may be shorter.
var sumSquaresKernels = [NumDTypes]Kernel{
	Float32:  sumSquaresKernel(func(_ *cpuQueue, x []float32, _ int) float64 { return kernel.SumSquares(x) }),
	Float64:  sumSquaresKernel(func(_ *cpuQueue, x []float64, _ int) float64 { return kernel.SumSquares(x) }),
	BFloat16: sumSquaresHalf[BF16](BFloat16),
	Float16:  sumSquaresHalf[F16](Float16),
}

// sumSquaresKernel lets a thread do the blocks that begin in its part of all elements.
func sumSquaresKernel[T any](f func(q *cpuQueue, x []T, thread int) float64) Kernel {
	return spread(listTotal, one, 16, func(q *cpuQueue, a *Args, lo, hi, thread int) {
		out, at, block := slice[float64](a, 0), 0, a.I[0]
		for i, n := range a.ListLen {
			x := unsafe.Slice((*T)(a.List[i]), n)
			for j := 0; j < n; j += SumSquaresBlock {
				if lo <= at+j && at+j < hi {
					out[block] = f(q, x[j:min(n, j+SumSquaresBlock)], thread)
				}
				block++
			}
			at += n
		}
	})
}

// sumSquaresHalf widens a block first, into memory of the thread.
func sumSquaresHalf[T any](d DType) Kernel {
	k := sumSquaresKernel(func(q *cpuQueue, x []T, thread int) float64 {
		wide := q.blocks[thread*SumSquaresBlock:][:len(x)]
		widen(wide, unsafe.Pointer(unsafe.SliceData(x)), d)
		return kernel.SumSquares(wide)
	})
	return func(q Queue, a *Args) {
		c := q.(*cpuQueue)
		if c.blocks == nil {
			c.blocks = make([]float32, c.pool.n*SumSquaresBlock)
		}
		k(q, a)
	}
}

// OpGradNorm adds up what OpSumSquares made, in order: its output, Float64[3], gets the sum of the first I[0] elements of the
// input, that of the I[1] elements behind, and 1.
func gradNormKernel(_ Queue, a *Args) {
	out, blocks := slice[float64](a, 0), slice[float64](a, 1)
	for i := range 2 {
		sum := 0.0
		for _, v := range blocks[:a.I[i]] {
			sum += v
		}
		blocks = blocks[a.I[i]:]
		out[i] = sum
	}
	out[2] = 1
}

// OpClip makes of the output of OpGradNorm, or of its sum over ranks, what to multiply gradients by, and their norm: its
// output, Float64[2]. What every rank holds was added up as often as the third number says. F[0] is what the gradients are
// multiplied by in any case, F[1] the largest norm; 0: any.
func clipKernel(_ Queue, a *Args) {
	out, sums := slice[float64](a, 0), slice[float64](a, 1)
	norm := math.Sqrt(sums[0]+sums[1]/sums[2]) * a.F[0]
	out[0], out[1] = a.F[0], norm
	if a.F[1] != 0 {
		out[0] *= min(1, a.F[1]/(norm+1e-6))
	}
}

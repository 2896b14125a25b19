package tensor

import (
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

// OpSGD: List = value, gradient, momentum (nil without). I[0]: Nesterov, I[1]: first step.
// F = lr, momentum, dampening, weight decay, gradient scale.
func sgdStep[T kernel.Float](a *Args, _ int, x [4][]T) {
	kernel.SGD(x[0], x[1], x[2], kernel.SGDHyper{LR: a.F[0], Momentum: a.F[1], Dampening: a.F[2], WeightDecay: a.F[3],
		GradScale: a.F[4], Nesterov: a.I[0] != 0, First: a.I[1] != 0})
}

// OpAdam: List = value, gradient, first and second moment. I[0]: decoupled weight decay, I[1]: step, from 1.
// F = lr, beta1, beta2, eps, weight decay, gradient scale.
func adamStep[T kernel.Float](a *Args, _ int, x [4][]T) {
	kernel.Adam(x[0], x[1], x[2], x[3], adamHyper(a))
}

func adamHyper(a *Args) kernel.AdamHyper {
	return kernel.AdamHyper{LR: a.F[0], Beta1: a.F[1], Beta2: a.F[2], Eps: a.F[3],
		WeightDecay: a.F[4], GradScale: a.F[5], Decoupled: a.I[0] != 0, Step: a.I[1]}
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
// the first tensor, then of the second one, and so on; a tensor's last block may be shorter.
var sumSquaresKernels = [NumDTypes]Kernel{
	Float32:  sumSquaresKernel(kernel.SumSquares[float32]),
	Float64:  sumSquaresKernel(kernel.SumSquares[float64]),
	BFloat16: sumSquaresKernel(sumSquaresHalf[BF16]),
	Float16:  sumSquaresKernel(sumSquaresHalf[F16]),
}

// sumSquaresKernel lets a thread do the blocks that begin in its part of all elements.
func sumSquaresKernel[T any](f func(x []T) float64) Kernel {
	return spread(listTotal, one, 16, func(_ *cpuQueue, a *Args, lo, hi, _ int) {
		out, at, block := slice[float64](a, 0), 0, 0
		for i, n := range a.ListLen {
			x := unsafe.Slice((*T)(a.List[i]), n)
			for j := 0; j < n; j += SumSquaresBlock {
				if lo <= at+j && at+j < hi {
					out[block] = f(x[j:min(n, j+SumSquaresBlock)])
				}
				block++
			}
			at += n
		}
	})
}

func sumSquaresHalf[T interface{ Float32() float32 }](x []T) (sum float64) {
	for _, v := range x {
		f := float64(v.Float32())
		sum += f * f
	}
	return sum
}

package cuda

import (
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	listMax     = 64   // MAX_GROUPS of optim.cu
	listTensors = 5    // largest number of tensors in a group
	stepPart    = 2048 // elements that a block of an optimizer updates: two packs of float32 for each thread
)

// tensorList is struct List of optim.cu. It is passed as a kernel parameter, so no copy to the device is needed before. Long lists need
// several launches.
type tensorList struct {
	count, unused int32
	start         [listMax + 2]int32
	length        [listMax]int64
	at            [listTensors][listMax]cuda.Ptr
}

// lists launches k for all groups of a's list, of `group` tensors each. A block handles `part` elements. params adds the parameters after
// the list and this number; it gets the number of blocks of the earlier launches.
func (q *Queue) lists(k *kernel, a *tensor.Args, group, part int, params func(q *Queue, a *tensor.Args, before int)) {
	l, before := &q.list, 0
	for i := 0; i < len(a.ListLen); {
		*l = tensorList{}
		blocks := 0
		for ; i < len(a.ListLen) && l.count < listMax; i++ {
			n := a.ListLen[i]
			if n == 0 {
				continue
			}
			l.start[l.count], l.length[l.count] = int32(blocks), int64(n)
			for t := range group {
				at := t
				if group == t+1 && a.DType.IsHalf() && group > 1 {
					at = listTensors - 1 // the 16-bit value
				}
				l.at[at][l.count] = devPtr(a.List[i*group+t])
			}
			blocks += (n + part - 1) / part
			l.count++
		}
		if blocks == 0 {
			return
		}
		q.args.Reset().Struct(unsafe.Pointer(l), int(unsafe.Sizeof(*l))).I32(part)
		params(q, a, before)
		q.run(k, cuda.Dim{X: blocks}, cuda.Dim{X: threads}, 0)
		before += blocks
	}
}

// width is the number of tensors in a group; 16-bit parameters have one more.
func width(a *tensor.Args, n int) int {
	if a.DType.IsHalf() {
		n++
	}
	return n
}

// tinyOf and normalOf are the smallest numbers that are not flushed to zero, in the type in which elements of type d are computed: see
// internal/kernel.
func tinyOf(d tensor.DType) float64 {
	if d == tensor.Float64 {
		return math.Ldexp(1, -970)
	}
	return 0x1p-103
}

func normalOf(d tensor.DType) float64 {
	if d == tensor.Float64 {
		return math.Float64frombits(1 << 52)
	}
	return 0x1p-126
}

func sgd(q *Queue, k *kernel, a *tensor.Args) { q.lists(k, a, width(a, 3), stepPart, sgdParams) }

// factor adds the address of the gradients' factor: 0 if there is none.
func (q *Queue) factor(a *tensor.Args) *Queue {
	if a.N == 0 {
		q.args.Ptr(0)
		return q
	}
	return q.ptr(a, 0)
}

// sgdParams adds factor, nesterov, first, lr, mu, in, wd and tiny.
func sgdParams(q *Queue, a *tensor.Args, _ int) {
	d := a.DType
	q.factor(a).args.I32(int(truth(a.I[0] != 0))).I32(int(truth(a.I[1] != 0)))
	q.wide(d, a.F[0]).wide(d, a.F[1]).wide(d, 1-a.F[2]).wide(d, a.F[3]).wide(d, tinyOf(d))
}

func adam(q *Queue, k *kernel, a *tensor.Args) { q.lists(k, a, width(a, 4), stepPart, adamParams) }

// adamParams adds factor, step, root, eps, in1, b2, in2, tiny, least, normal, wd and keep.
func adamParams(q *Queue, a *tensor.Args, _ int) {
	lr, beta1, beta2, eps, decay := a.F[0], a.F[1], a.F[2], a.F[3], a.F[4]
	d, t, keep := a.DType, float64(a.I[1]), 1.0
	normal := normalOf(d)
	least := math.Sqrt(2 * normal / (1 - beta2)) // squares of smaller gradients are subnormal
	if a.I[0] != 0 {
		decay, keep = 0, 1-float64(lr*decay)
	}
	q.factor(a).wide(d, -lr/(1-math.Pow(beta1, t))).wide(d, math.Sqrt(1-math.Pow(beta2, t))).wide(d, eps)
	q.wide(d, 1-beta1).wide(d, beta2).wide(d, 1-beta2)
	q.wide(d, tinyOf(d)).wide(d, least).wide(d, normal).wide(d, decay).wide(d, keep)
}

func sumSquares(q *Queue, k *kernel, a *tensor.Args) {
	q.lists(k, a, 1, tensor.SumSquaresBlock, func(q *Queue, a *tensor.Args, before int) {
		q.args.Ptr(devPtr(a.X[0]) + cuda.Ptr(8*(a.I[0]+before)))
	})
}

func gradNorm(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).i64(a.I[0]).run(k, cuda.Dim{X: 1}, cuda.Dim{X: threads}, 0)
}

func clip(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).args.F64(a.F[0]).F64(a.F[1]).F64(a.F[2])
	q.run(k, cuda.Dim{X: 1}, cuda.Dim{X: 1}, 0)
}

var onlyFloat64 = []tensor.DType{tensor.Float64}

var optimKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	tensor.OpSumSquares: floats("optim.cu", "sum_squares", sumSquares),
	tensor.OpGradNorm:   row("optim.cu", "grad_norm", gradNorm, onlyFloat64),
	tensor.OpClip:       row("optim.cu", "clip", clip, onlyFloat64),
	tensor.OpSGD:        floats("optim.cu", "sgd", sgd),
	tensor.OpAdam:       floats("optim.cu", "adam", adam),
}

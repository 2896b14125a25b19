package ops

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// flash says how attention of elements E is computed, whose sums are S: A is the attention, and W the memory of a thread.
type flash[E tensor.Elem, S float, A, W any] struct {
	operands      func(a *A) (*kernel.AttentionOperands[E, S], *kernel.AttentionHalf[S]) // the latter may be nil
	work          func(q *cpu.Queue, thread int) *W
	grow          func(w *W, a *A)
	forward, grad func(a *A, w *W, lo, hi int)
}

// attnWorkspace is what one thread needs. All threads use the operands of the first one.
type attnWorkspace[A, W any] struct {
	a A
	w *W
}

func flashOf[T interface {
	float
	kernel.Float
}]() *flash[T, T, kernel.Attention[T], kernel.AttentionWork[T]] {
	return &flash[T, T, kernel.Attention[T], kernel.AttentionWork[T]]{
		func(a *kernel.Attention[T]) (*kernel.AttentionOperands[T, T], *kernel.AttentionHalf[T]) {
			return &a.AttentionOperands, &a.AttentionHalf
		},
		func(q *cpu.Queue, i int) *kernel.AttentionWork[T] {
			return kernel.NewAttentionWork(cpu.GemmWorkspaceOf[T](q, i).Memory)
		}, (*kernel.AttentionWork[T]).Grow, kernel.AttentionForward[T], kernel.AttentionGrad[T]}
}

var flashBF16 = flash[tensor.BF16, float32, kernel.AttentionBF16, kernel.AttentionWorkBF16]{
	func(a *kernel.AttentionBF16) (*kernel.AttentionOperands[tensor.BF16, float32], *kernel.AttentionHalf[float32]) {
		return &a.AttentionOperands, nil
	},
	func(*cpu.Queue, int) *kernel.AttentionWorkBF16 { return kernel.NewAttentionWorkBF16() },
	(*kernel.AttentionWorkBF16).Grow, kernel.AttentionForwardBF16, kernel.AttentionGradBF16}

// attentionKernels are the kernels of attention, or of its gradient. That of bfloat16 is for CPUs that multiply such numbers. Otherwise it
// is faster to convert the operands.
func attentionKernels(grad bool) (k [tensor.NumDTypes]tensor.Kernel) {
	k[tensor.Float32], k[tensor.Float64] = flashOf[float32]().kernel(grad), flashOf[float64]().kernel(grad)
	if kernel.HasBF16Products() {
		k[tensor.BFloat16] = flashBF16.kernel(grad)
	}
	return k
}

// kernel cuts the work into as many parts as set returns, and gives them to the threads.
func (f *flash[E, S, A, W]) kernel(grad bool) tensor.Kernel {
	run := f.forward
	if grad {
		run = f.grad
	}
	var workspaces cpu.Local[[]attnWorkspace[A, W]]
	part := func(q *cpu.Queue, _ *tensor.Args, lo, hi, thread int) {
		all := *workspaces.Of(q)
		run(&all[0].a, all[thread].w, lo, hi)
	}
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*cpu.Queue)
		all := workspaces.Of(c)
		for len(*all) < c.Threads() {
			*all = append(*all, attnWorkspace[A, W]{w: f.work(c, len(*all))})
		}
		l := &(*all)[0].a
		parts, keys := f.set(l, a)
		for i := range *all {
			f.grow((*all)[i].w, l)
		}
		cost := a.Dim[0] * a.Dim[1] * keys * a.Dim[2] / max(parts, 1) // multiplications of a part, roughly
		c.Run(a, parts, (4*c.Grain()-1)/max(cost, 1)+1, 1, part)
	}
}

// set makes l the attention of the operands of a launch, and returns in how many parts it can be cut, and its number of keys.
func (f *flash[E, S, A, W]) set(l *A, a *tensor.Args) (parts, keys int) {
	*l = *new(A)
	o, half := f.operands(l)
	o.AttentionShape, o.Scale = attentionShape(a), S(a.F[0])
	switch a.Op {
	case OpAttention:
		o.Out, o.LSE = tensor.Operand[E](a, 0), tensor.Operand[S](a, 1)
		o.Pack(tensor.Operand[E](a, 2), nil)
		return o.Blocks(), o.Keys
	case OpAttentionGrad:
		o.Pack(tensor.Operand[E](a, 1), tensor.Operand[E](a, 0))
		o.Out, o.GradOut, o.LSE = tensor.Operand[E](a, 2), tensor.Operand[E](a, 3), tensor.Operand[S](a, 4)
		return o.Groups(), o.Keys
	case OpCrossAttention:
		o.Out, o.LSE = tensor.Operand[E](a, 0), tensor.Operand[S](a, 1)
		o.Q, o.AttentionMasks = tensor.Operand[E](a, 2), attentionMasks(a, 5)
		if half != nil && a.DT[3].IsHalf() {
			half.K16, half.V16, half.Widen = bitsOf(a, 3), bitsOf(a, 4), any(wideners[a.DT[3]]).(func([]S, []uint16))
		} else {
			o.K, o.V = tensor.Operand[E](a, 3), tensor.Operand[E](a, 4)
		}
		return o.Blocks(), o.Keys
	}
	o.GradQ, o.GradK, o.GradV = tensor.Operand[E](a, 0), tensor.Operand[E](a, 1), tensor.Operand[E](a, 2)
	o.Q, o.K, o.V = tensor.Operand[E](a, 3), tensor.Operand[E](a, 4), tensor.Operand[E](a, 5)
	o.Out, o.GradOut, o.LSE = tensor.Operand[E](a, 6), tensor.Operand[E](a, 7), tensor.Operand[S](a, 8)
	o.AttentionMasks, o.GradLSE = attentionMasks(a, 9), tensor.Operand[S](a, 12)
	return o.Groups(), o.Keys
}

func attentionShape(a *tensor.Args) kernel.AttentionShape {
	hd := a.I[0]
	s := kernel.AttentionShape{Batch: a.Dim[0], Queries: a.Dim[1], Keys: a.Dim[3], Heads: a.Dim[2] / hd, KVHeads: a.Dim[4] / hd, HeadDim: hd,
		QStep: a.Dim[2], KVStep: a.Dim[4], Causal: a.I[1] != 0, Offset: a.I[7], Window: a.I[5], SoftCap: a.F[2],
		Drop: a.F[1], Key: a.Key,
		Rows: kernel.Rows{First: a.I[2], Stride: a.I[3], Elems: a.I[4], Cols: a.I[4], Line: a.I[4]}}
	if a.Op == OpAttention || a.Op == OpAttentionGrad { // of qkv
		s.Keys, s.Heads, s.KVHeads, s.KVStep = s.Queries, s.Heads/3, s.Heads/3, s.QStep
	}
	return s
}

// attentionMasks returns the masks, which are the operands from i on.
func attentionMasks(a *tensor.Args, i int) kernel.AttentionMasks {
	if a.I[6] > 0 {
		return kernel.AttentionMasks{Starts: tensor.Operand[int64](a, i)}
	}
	return kernel.AttentionMasks{KeyLengths: tensor.Operand[int64](a, i), QueryDocs: tensor.Operand[int64](a, i+1),
		KeyDocs: tensor.Operand[int64](a, i+2)}
}

// fewQueries: up to this number of queries, 16-bit keys and values are widened block by block. Widening them as a whole would need memory
// of the length of the keys for each new token of a text.
const fewQueries = 16

// withFewQueries adds kernels for 16-bit floats that have none.
func withFewQueries(k [tensor.NumDTypes]tensor.Kernel) [tensor.NumDTypes]tensor.Kernel {
	all, fewer := cpu.ThroughFloat32(k[tensor.Float32]), cpu.ThroughFloat32(k[tensor.Float32], 3, 4)
	for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
		if k[d] == nil {
			k[d] = func(q tensor.Queue, a *tensor.Args) {
				if a.Dim[1] <= fewQueries {
					fewer(q, a)
				} else {
					all(q, a)
				}
			}
		}
	}
	return k
}

// wideners convert 16-bit floats to float32.
var wideners = [tensor.NumDTypes]func(dst []float32, src []uint16){
	tensor.BFloat16: func(dst []float32, src []uint16) { kernel.BF16ToF32(dst, fromBits[tensor.BF16](src)) },
	tensor.Float16:  func(dst []float32, src []uint16) { kernel.F16ToF32(dst, fromBits[tensor.F16](src)) },
}

func fromBits[H tensor.BF16 | tensor.F16](x []uint16) []H {
	return unsafe.Slice((*H)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// bitsOf returns operand i, of a 16-bit type, as bits.
func bitsOf(a *tensor.Args, i int) []uint16 { return unsafe.Slice((*uint16)(a.X[i]), a.Len[i]) }

package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// attnWorkspace is what one thread of the pool needs to compute attention. All threads use the operands of the first one.
type attnWorkspace[A, W any] struct {
	a A
	w *W
}

type attnWorkspaces[T kernel.Float] = []attnWorkspace[kernel.Attention[T], kernel.AttentionWork[T]]

func attention32(q *CPUQueue) *attnWorkspaces[float32] { return &q.attn32 }
func attention64(q *CPUQueue) *attnWorkspaces[float64] { return &q.attn64 }

// attentionOf is the attention of a kernel, without operands.
func attentionOf[T kernel.Float](a *Args) kernel.Attention[T] {
	return kernel.Attention[T]{AttentionShape: attentionShape(a), Scale: T(a.F[0])}
}

// attentionShape is the shape of attention of the operands of a kernel.
func attentionShape(a *Args) kernel.AttentionShape {
	hd := a.I[0]
	s := kernel.AttentionShape{Batch: a.Dim[0], Queries: a.Dim[1], Keys: a.Dim[3], Heads: a.Dim[2] / hd, KVHeads: a.Dim[4] / hd, HeadDim: hd,
		QStep: a.Dim[2], KVStep: a.Dim[4], Causal: a.I[1] != 0, Offset: a.I[7], Window: a.I[5], SoftCap: a.F[2],
		Drop: a.F[1], Key: a.Key,
		Rows: kernel.Rows{First: a.I[2], Stride: a.I[3], Elems: a.I[4], Cols: a.I[4], Line: a.I[4]}}
	if a.Op == OpAttention || a.Op == OpAttentionGrad { // of qkv
		s.Keys, s.Heads, s.KVHeads = a.Dim[1], s.Heads/3, s.Heads/3
	}
	return s
}

// attentionKernel computes OpAttention: operands are output, logarithmic sums, qkv; see Tape.attention.
func attentionKernel[T kernel.Float](workspaces func(q *CPUQueue) *attnWorkspaces[T]) Kernel {
	return attentionLaunch(workspaces, kernel.NewAttentionWork[T], (*kernel.AttentionWork[T]).Grow, func(l *kernel.Attention[T], a *Args) int {
		*l = attentionOf[T](a)
		l.Out, l.LSE = slice[T](a, 0), slice[T](a, 1)
		l.Pack(slice[T](a, 2), nil)
		return l.Blocks()
	}, kernel.AttentionForward[T])
}

// attentionGradKernel computes OpAttentionGrad: operands are the gradient, qkv, output, its gradient, logarithmic sums.
func attentionGradKernel[T kernel.Float](workspaces func(q *CPUQueue) *attnWorkspaces[T]) Kernel {
	return attentionLaunch(workspaces, kernel.NewAttentionWork[T], (*kernel.AttentionWork[T]).Grow, func(l *kernel.Attention[T], a *Args) int {
		*l = attentionOf[T](a)
		l.Pack(slice[T](a, 1), slice[T](a, 0))
		l.Out, l.GradOut, l.LSE = slice[T](a, 2), slice[T](a, 3), slice[T](a, 4)
		return l.Groups()
	}, kernel.AttentionGrad[T])
}

// crossAttentionKernel computes OpCrossAttention: operands are output, logarithmic sums, queries, keys, values, masks.
func crossAttentionKernel[T kernel.Float](workspaces func(q *CPUQueue) *attnWorkspaces[T]) Kernel {
	return attentionLaunch(workspaces, kernel.NewAttentionWork[T], (*kernel.AttentionWork[T]).Grow, func(l *kernel.Attention[T], a *Args) int {
		*l = attentionOf[T](a)
		l.Out, l.LSE = slice[T](a, 0), slice[T](a, 1)
		l.Q = slice[T](a, 2)
		if a.DT[3].IsHalf() {
			l.K16, l.V16, l.Widen = bitsOf(a, 3), bitsOf(a, 4), any(wideners[a.DT[3]]).(func([]T, []uint16))
		} else {
			l.K, l.V = slice[T](a, 3), slice[T](a, 4)
		}
		l.AttentionMasks = attentionMasks(a, 5)
		return l.Blocks()
	}, kernel.AttentionForward[T])
}

// crossAttentionGradKernel computes OpCrossAttentionGrad: operands are the gradients of queries, keys and values, these, the output,
// its gradient, logarithmic sums, masks, the gradient of the sums.
func crossAttentionGradKernel[T kernel.Float](workspaces func(q *CPUQueue) *attnWorkspaces[T]) Kernel {
	return attentionLaunch(workspaces, kernel.NewAttentionWork[T], (*kernel.AttentionWork[T]).Grow, func(l *kernel.Attention[T], a *Args) int {
		*l = attentionOf[T](a)
		l.GradQ, l.GradK, l.GradV = slice[T](a, 0), slice[T](a, 1), slice[T](a, 2)
		l.Q, l.K, l.V = slice[T](a, 3), slice[T](a, 4), slice[T](a, 5)
		l.Out, l.GradOut, l.LSE = slice[T](a, 6), slice[T](a, 7), slice[T](a, 8)
		l.AttentionMasks, l.GradLSE = attentionMasks(a, 9), slice[T](a, 12)
		return l.Groups()
	}, kernel.AttentionGrad[T])
}

// attentionLaunch makes a kernel that cuts the work into as many parts as operands, which sets the attention, returns, and gives them to
// the pool. work makes the memory of a thread, which then grows.
func attentionLaunch[A, W any](workspaces func(q *CPUQueue) *[]attnWorkspace[A, W], work func() *W, grow func(w *W, a *A),
	operands func(l *A, a *Args) int,
	run func(a *A, w *W, lo, hi int)) Kernel {
	fn := func(q *CPUQueue, _ *Args, lo, hi, thread int) {
		all := *workspaces(q)
		run(&all[0].a, all[thread].w, lo, hi)
	}
	return func(q Queue, a *Args) {
		c := q.(*CPUQueue)
		all := workspaces(c)
		for len(*all) < c.pool.n {
			*all = append(*all, attnWorkspace[A, W]{w: work()})
		}
		l := &(*all)[0].a
		parts := operands(l, a)
		for i := range *all {
			grow((*all)[i].w, l)
		}
		cost := a.Dim[0] * a.Dim[1] * attentionShape(a).Keys * a.Dim[2] / max(parts, 1) // multiplications of a part, roughly
		c.pool.run(c, a, parts, (4*c.pool.grain-1)/max(cost, 1)+1, 1, fn)
	}
}

package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// attnWorkspace is what one thread of the pool needs to compute attention.
type attnWorkspace[T kernel.Float] struct {
	a kernel.Attention[T]
	w *kernel.AttentionWork[T]
}

func attention32(q *cpuQueue) *[]attnWorkspace[float32] { return &q.attn32 }
func attention64(q *cpuQueue) *[]attnWorkspace[float64] { return &q.attn64 }

// attentionKernel computes OpAttention: operands are output, logarithmic sums, qkv; see Tape.attention.
func attentionKernel[T kernel.Float](workspaces func(q *cpuQueue) *[]attnWorkspace[T]) Kernel {
	return attentionLaunch(workspaces, func(l *attnWorkspace[T], a *Args) int {
		l.a.Out, l.a.LSE = slice[T](a, 0), slice[T](a, 1)
		l.a.Pack(slice[T](a, 2), nil)
		return l.a.Blocks()
	}, kernel.AttentionForward[T])
}

// attentionGradKernel computes OpAttentionGrad: operands are the gradient, qkv, output, its gradient, logarithmic sums.
func attentionGradKernel[T kernel.Float](workspaces func(q *cpuQueue) *[]attnWorkspace[T]) Kernel {
	return attentionLaunch(workspaces, func(l *attnWorkspace[T], a *Args) int {
		l.a.Pack(slice[T](a, 1), slice[T](a, 0))
		l.a.Out, l.a.GradOut, l.a.LSE = slice[T](a, 2), slice[T](a, 3), slice[T](a, 4)
		return l.a.Groups()
	}, kernel.AttentionGrad[T])
}

// crossAttentionKernel computes OpCrossAttention: operands are output, logarithmic sums, queries, keys, values, masks.
func crossAttentionKernel[T kernel.Float](workspaces func(q *cpuQueue) *[]attnWorkspace[T]) Kernel {
	return attentionLaunch(workspaces, func(l *attnWorkspace[T], a *Args) int {
		l.a.Out, l.a.LSE = slice[T](a, 0), slice[T](a, 1)
		l.a.Q = slice[T](a, 2)
		if a.DT[3].IsHalf() {
			l.a.K16, l.a.V16, l.a.Widen = bitsOf(a, 3), bitsOf(a, 4), any(wideners[a.DT[3]]).(func([]T, []uint16))
		} else {
			l.a.K, l.a.V = slice[T](a, 3), slice[T](a, 4)
		}
		l.a.AttentionMasks = attentionMasks(a, 5)
		return l.a.Blocks()
	}, kernel.AttentionForward[T])
}

// crossAttentionGradKernel computes OpCrossAttentionGrad: operands are the gradients of queries, keys and values, these, the output,
// its gradient, logarithmic sums, masks, the gradient of the sums.
func crossAttentionGradKernel[T kernel.Float](workspaces func(q *cpuQueue) *[]attnWorkspace[T]) Kernel {
	return attentionLaunch(workspaces, func(l *attnWorkspace[T], a *Args) int {
		l.a.GradQ, l.a.GradK, l.a.GradV = slice[T](a, 0), slice[T](a, 1), slice[T](a, 2)
		l.a.Q, l.a.K, l.a.V = slice[T](a, 3), slice[T](a, 4), slice[T](a, 5)
		l.a.Out, l.a.GradOut, l.a.LSE = slice[T](a, 6), slice[T](a, 7), slice[T](a, 8)
		l.a.AttentionMasks, l.a.GradLSE = attentionMasks(a, 9), slice[T](a, 12)
		return l.a.Groups()
	}, kernel.AttentionGrad[T])
}

// attentionLaunch makes a kernel that cuts the work into as many parts as operands returns, and gives them to the pool.
func attentionLaunch[T kernel.Float](workspaces func(q *cpuQueue) *[]attnWorkspace[T], operands func(l *attnWorkspace[T], a *Args) int,
	run func(a *kernel.Attention[T], w *kernel.AttentionWork[T], lo, hi int)) Kernel {
	fn := func(q *cpuQueue, _ *Args, lo, hi, thread int) {
		all := *workspaces(q)
		run(&all[0].a, all[thread].w, lo, hi)
	}
	return func(q Queue, a *Args) {
		c := q.(*cpuQueue)
		all := workspaces(c)
		for len(*all) < c.pool.n {
			*all = append(*all, attnWorkspace[T]{w: kernel.NewAttentionWork[T]()})
		}
		l := &(*all)[0]
		l.a = kernel.Attention[T]{HeadDim: a.I[0], Causal: a.I[1] != 0, Offset: a.I[7], Scale: T(a.F[0]), Drop: a.F[1], Key: a.Key,
			Rows: kernel.Rows{First: a.I[2], Stride: a.I[3], Elems: a.I[4], Cols: a.I[4], FullCols: a.I[5], Col: a.I[6]}}
		l.a.Queries, l.a.Keys, l.a.Heads = a.Dim[1], a.Dim[3], a.Dim[2]/l.a.HeadDim
		l.a.KVHeads, l.a.QStep, l.a.KVStep = a.Dim[4]/l.a.HeadDim, a.Dim[2], a.Dim[4]
		if a.Op == OpAttention || a.Op == OpAttentionGrad { // of qkv
			l.a.Keys, l.a.Heads, l.a.KVHeads = a.Dim[1], l.a.Heads/3, l.a.Heads/3
		}
		parts := operands(l, a)
		work := a.Dim[0] * a.Dim[1] * l.a.Keys * a.Dim[2] / max(parts, 1) // multiplications of a part, roughly
		c.pool.run(c, a, parts, (4*c.pool.grain-1)/max(work, 1)+1, 1, fn)
	}
}

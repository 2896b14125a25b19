package kernel

// AttentionGradBF16 is [AttentionGrad]. Gradients of keys and values are summed over all
// queries that meet them, those of a block of queries over all keys.
func AttentionGradBF16(a *AttentionBF16, w *AttentionWorkBF16, lo, hi int) {
	w.Grow(a)
	dim := a.HeadDim
	for kv := lo; kv < hi; kv++ {
		first := kv * a.group()
		queries, n := a.positions(first, a.Queries), a.positions(first, a.Keys)*dim
		dK, dV := w.dK[:n], w.dV[:n]
		clear(dK)
		clear(dV)
		for w.head = first; w.head < first+a.group(); w.head++ {
			for w.i = 0; w.i < queries; w.i += attnRows {
				w.n = min(attnRows, queries-w.i)
				w.gradient(a)
			}
		}
		roundRows(a.GradK[a.keyAt(first, 0):], a.KVStep, dK, dim)
		roundRows(a.GradV[a.keyAt(first, 0):], a.KVStep, dV, dim)
	}
}

// roundRows rounds rows of dim elements. Those of dst are step apart.
func roundRows(dst []BF16, step int, src []float32, dim int) {
	for r := range len(src) / dim {
		F32ToBF16(dst[r*step:][:dim], row(src, r, dim))
	}
}

// gradient computes the gradient of one block of queries, and adds what the block
// contributes to those of keys and values.
func (w *AttentionWorkBF16) gradient(a *AttentionBF16) {
	dim, add := a.HeadDim, false
	dQ := w.dQ[:w.n*dim]
	keys := a.seen(w.i+w.n-1, 0, a.keysOf(w.head))
	w.outputDots(a)
	for j := 0; j < keys; j += attnCols {
		n := min(attnCols, keys-j)
		if !w.mayAttend(&a.AttentionShape, j, n) {
			continue
		}
		w.scoreGradients(a, j, n)
		q, g, k := a.Q[a.queryAt(w.head, w.i):], a.GradOut[a.outputAt(w.head, w.i):], a.K[a.keyAt(w.head, j):]
		w.product(GemmBF16{TransA: true, M: n, N: dim, K: w.n, Alpha: 1, A: w.pH, LDA: w.cols, B: g, LDB: a.Heads * dim,
			Beta: 1, C: w.dV[j*dim:], LDC: dim})
		w.product(GemmBF16{TransA: true, M: n, N: dim, K: w.n, Alpha: a.Scale, A: w.dSH, LDA: w.cols, B: q, LDB: a.QStep,
			Beta: 1, C: w.dK[j*dim:], LDC: dim})
		w.product(GemmBF16{M: w.n, N: dim, K: n, Alpha: a.Scale, A: w.dSH, LDA: w.cols, B: k, LDB: a.KVStep,
			Beta: added(add), C: dQ, LDC: dim})
		add = true
	}
	if !add {
		clear(dQ)
	}
	roundRows(a.GradQ[a.queryAt(w.head, w.i):], a.QStep, dQ, dim)
}

// outputDots computes sum(GradOut*Out) - GradLSE of each query.
func (w *AttentionWorkBF16) outputDots(a *AttentionBF16) {
	at, dim := a.outputAt(w.head, w.i), a.HeadDim
	var dots [maxBlockRows]float64
	for r := 0; r < w.n; r += maxBlockRows {
		k := min(maxBlockRows, w.n-r)
		for i := range k {
			from := at + (r+i)*a.Heads*dim
			BF16ToF32(row(w.o, i, dim), a.Out[from:from+dim])
			BF16ToF32(row(w.gradO, i, dim), a.GradOut[from:from+dim])
		}
		rowDots(dots[:k], w.gradO, w.o, dim, w.acc[:])
		for i, d := range dots[:k] {
			w.dots[r+i] = float32(d)
		}
	}
	if a.GradLSE != nil {
		for r, g := range a.GradLSE[a.sums(w.head)+w.i:][:w.n] {
			w.dots[r] -= g
		}
	}
}

// scoreGradients computes the probabilities of the block's queries for n keys from j on,
// and the gradients of their scores.
func (w *AttentionWorkBF16) scoreGradients(a *AttentionBF16, j, n int) {
	w.scores(a, j, n)
	w.product(GemmBF16{TransB: true, M: w.n, N: n, K: a.HeadDim, Alpha: 1, A: a.GradOut[a.outputAt(w.head, w.i):], LDA: a.Heads * a.HeadDim,
		B: a.V[a.keyAt(w.head, j):], LDB: a.KVStep, C: w.dS, LDC: w.cols})
	lse := a.LSE[a.sums(w.head)+w.i:]
	for r := 0; r < w.n; r += maxBlockRows {
		k := min(maxBlockRows, w.n-r)
		lo, hi := r*w.cols, (r+k)*w.cols
		p, d := w.p[lo:hi], w.dS[lo:hi]
		softCap(a.SoftCap, p, w.slopes)
		w.hide(&a.AttentionShape, p, r, j)
		expScaled(p, p, lse[r:r+k], w.ones[:k], 0, w.cols, false)
		w.dropRows(&a.AttentionShape, d, r, j)
		softmaxGrad(d, d, p, w.dots[r:r+k], w.cols, false)
		if a.SoftCap != 0 {
			Mul(d, d, w.slopes[:len(d)])
		}
		w.dropRows(&a.AttentionShape, p, r, j)
		F32ToBF16(w.pH[lo:hi], p)
		F32ToBF16(w.dSH[lo:hi], d)
	}
	w.clearUnseen(a, j)
}

// clearUnseen makes zeros of what queries have for keys from j on that they do not see:
// NaN must not reach these.
func (w *AttentionWorkBF16) clearUnseen(a *AttentionBF16, j int) {
	lse := a.LSE[a.sums(w.head)+w.i:]
	for r := range w.n {
		seen := a.seen(w.i+r, j, w.keys)
		if a.seesNoKey(float64(lse[r])) {
			seen = 0
		}
		if seen < w.keys {
			clear(row(w.pH, r, w.cols)[seen:])
			clear(row(w.dSH, r, w.cols)[seen:])
		}
	}
}

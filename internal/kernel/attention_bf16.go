package kernel

import "math"

// AttentionBF16 is [Attention] of bfloat16 matrices. Scores, probabilities, their sums
// and LSE are float32. Probabilities, and gradients of scores, are rounded to bfloat16
// where they are multiplied. Results are summed in float32 and rounded once.
type AttentionBF16 struct {
	AttentionOperands[BF16, float32]
}

// HasBF16Products reports whether this CPU multiplies bfloat16 numbers. Without that,
// [Attention] of converted matrices is faster than [AttentionBF16].
func HasBF16Products() bool { return active.bf16[0].pair == 2 }

// AttentionWorkBF16 is the memory of one thread that computes attention of bfloat16
// matrices.
type AttentionWorkBF16 struct {
	AttentionWork[float32]
	g          GemmBF16
	keys, cols int    // of the block of scores, and the elements of a row of it: whole vectors
	pH, dSH    []BF16 // probabilities and gradients of scores, rounded
	hidden     [attnCols]float32
	ones, dots [attnRows]float32
	rescale    [maxBlockRows]float64
	acc        [maxBlockRows]lanes
	o, gradO   []float32 // [attnRows][HeadDim]: outputs and their gradients
	dQ         []float32 // [attnRows][HeadDim]
	dK, dV     []float32 // [Keys][HeadDim]
}

// NewAttentionWorkBF16 returns the memory that a thread needs; see Grow.
func NewAttentionWorkBF16() *AttentionWorkBF16 {
	w := &AttentionWorkBF16{pH: make([]BF16, attnRows*attnCols), dSH: make([]BF16, attnRows*attnCols)}
	w.ws, w.p, w.dS = make([]float32, GemmBF16Workspace()), make([]float32, attnRows*attnCols), make([]float32, attnRows*attnCols)
	w.slopes = make([]float32, maxBlockRows*attnCols)
	Fill(w.hidden[:], float32(math.Inf(-1)))
	Fill(w.ones[:], 1)
	return w
}

// Grow makes room for a head of a. The functions that use w do so, too; before, it can
// be done for all threads, of which each may get its first part at any time.
func (w *AttentionWorkBF16) Grow(a *AttentionBF16) {
	room(&w.o, attnRows*a.HeadDim)
	if a.GradOut != nil {
		room(&w.gradO, attnRows*a.HeadDim)
		room(&w.dQ, attnRows*a.HeadDim)
		room(&w.dK, a.Keys*a.HeadDim)
		room(&w.dV, a.Keys*a.HeadDim)
	}
}

// room returns n elements of x, which grows.
func room(x *[]float32, n int) []float32 {
	if len(*x) < n {
		*x = make([]float32, n)
	}
	return (*x)[:n]
}

// product computes g. Products of few rows are no exception, so that the bits of a
// query do not depend on the number of queries.
func (w *AttentionWorkBF16) product(g GemmBF16) {
	w.g = g
	w.g.check()
	active.bf16[0].packedBlock(&w.g, w.ws, 0, g.M, 0, g.N)
}

// added is the Beta of a product that is added to its result, or overwrites it.
func added(add bool) float32 {
	if add {
		return 1
	}
	return 0
}

// AttentionForwardBF16 is [AttentionForward].
func AttentionForwardBF16(a *AttentionBF16, w *AttentionWorkBF16, lo, hi int) {
	w.Grow(a)
	for item := lo; item < hi; item++ {
		if w.take(&a.AttentionShape, item); w.n > 0 {
			w.forward(a)
		}
	}
}

// forward computes the outputs of one block of queries.
func (w *AttentionWorkBF16) forward(a *AttentionBF16) {
	rows, dim := w.n, a.HeadDim
	for r := range rows {
		w.rowMax[r], w.rowSum[r] = math.Inf(-1), 0
	}
	all := a.keysOf(w.head)
	keys := a.seen(w.i+rows-1, 0, all)
	o, add := w.o[:rows*dim], false
	for j := 0; j < keys; j += attnCols {
		n := min(attnCols, keys-j)
		if !w.mayAttend(&a.AttentionShape, j, n) {
			continue
		}
		w.scores(a, j, n)
		for r := 0; r < rows; r += maxBlockRows {
			k := min(maxBlockRows, rows-r)
			s := w.p[r*w.cols : (r+k)*w.cols]
			softCap(a.SoftCap, s, nil)
			w.hide(&a.AttentionShape, s, r, j)
			w.exponentials(s, r, k)
			if add {
				w.rescaleRows(o, r, k, dim)
			}
			w.dropRows(&a.AttentionShape, s, r, j)
			F32ToBF16(w.pH[r*w.cols:][:len(s)], s)
		}
		w.product(GemmBF16{M: rows, N: dim, K: n, Alpha: 1, A: w.pH, LDA: w.cols, B: a.V[a.keyAt(w.head, j):], LDB: a.KVStep,
			Beta: added(add), C: o, LDC: dim})
		add = true
	}
	out, lse := a.Out[a.outputAt(w.head, w.i):], a.LSE[a.sums(w.head)+w.i:]
	for r := range rows {
		sum := w.rowMax[r] + math.Log(w.rowSum[r])
		if lse[r] = float32(sum); a.seen(w.i+r, 0, all) == 0 || a.seesNoKey(sum) {
			clear(out[r*a.Heads*dim:][:dim])
			continue
		}
		x := row(o, r, dim)
		scaled(x, x, float32(1/w.rowSum[r]))
		F32ToBF16(out[r*a.Heads*dim:][:dim], x)
	}
}

// scores computes the scores of the block's queries with n keys from j on.
func (w *AttentionWorkBF16) scores(a *AttentionBF16, j, n int) {
	w.keys, w.cols = n, (n+vectorStep-1)&^(vectorStep-1)
	w.product(GemmBF16{TransB: true, M: w.n, N: n, K: a.HeadDim, Alpha: a.Scale, A: a.Q[a.queryAt(w.head, w.i):], LDA: a.QStep,
		B: a.K[a.keyAt(w.head, j):], LDB: a.KVStep, C: w.p, LDC: w.cols})
}

// hide makes -Inf of the scores in rows s, from r on, of keys from j on that a query
// does not see.
func (w *AttentionWorkBF16) hide(a *AttentionShape, s []float32, r, j int) {
	for ; len(s) > 0; r, s = r+1, s[w.cols:] {
		seen := a.seen(w.i+r, j, w.keys)
		w.hideKeys(a, s[:seen], r, j)
		if seen < w.cols {
			copy(s[seen:w.cols], w.hidden[:])
		}
	}
}

// dropRows is drop for rows x, from r on.
func (w *AttentionWorkBF16) dropRows(a *AttentionShape, x []float32, r, j int) {
	for ; a.Drop != 0 && len(x) > 0; r, x = r+1, x[w.cols:] {
		w.drop(a, x[:a.seen(w.i+r, j, w.keys)], r, j)
	}
}

// exponentials is that of [AttentionWork] for k rows s, from r on.
func (w *AttentionWorkBF16) exponentials(s []float32, r, k int) {
	var tops [maxBlockRows]float32
	var sums [maxBlockRows]float64
	largest(tops[:k], s, w.cols)
	for i := range k {
		old := w.rowMax[r+i]
		top := max(float64(tops[i]), old)
		w.rowMax[r+i], tops[i], w.rescale[i] = top, float32(top), 1
		switch {
		case math.IsInf(top, -1): // no key yet that counts
			tops[i] = 0
		case top != old:
			w.rescale[i] = exp[float32](old - top)
		}
	}
	expSumsOf(sums[:k], s, s, tops[:k], w.cols, w.acc[:])
	for i := range k {
		w.rowSum[r+i] = float64(w.rowSum[r+i]*w.rescale[i]) + sums[i]
	}
}

// rescaleRows multiplies the outputs so far of k rows, from r on.
func (w *AttentionWorkBF16) rescaleRows(o []float32, r, k, dim int) {
	for i, f := range w.rescale[:k] {
		if x := row(o, r+i, dim); f != 1 {
			scaled(x, x, float32(f))
		}
	}
}

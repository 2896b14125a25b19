package kernel

import "math"

// Attention is scaled dot-product self-attention (Vaswani et al. 2017) in blocks, without the matrix of all probabilities:
// Dao et al., "FlashAttention" (2022). A block of queries meets one block of keys after the other and keeps the largest
// score and the sum of exponentials of each row so far; the gradient computes the probabilities anew from their
// logarithmic sums. So the memory beside the operands is that of a block, whatever the number of steps.
//
// All of a head's operands lie in rows: QKV is [batch, Steps, 3, Heads, HeadDim], Out is [batch, Steps, Heads, HeadDim] and
// LSE, ln(sum(exp(score))) of each query, is [batch, Heads, Steps].
type Attention[T Float] struct {
	Steps, Heads, HeadDim int
	Causal                bool // step i sees steps 0 to i
	Scale                 T    // of the scores
	QKV, Out, LSE         []T
	GradOut, GradQKV      []T // of AttentionGrad; shaped as Out and QKV

	// Drop is the probability with which [Dropout], under Key, drops elements of the probabilities
	// [batch, Heads, Steps, Steps]; Rows says where these lie.
	Drop float64
	Key  uint64
	Rows Rows
}

// Blocks of queries and keys. A block of scores, its gradient, and the keys and values that it needs fit in the second-level
// cache.
const (
	attnRows = 64
	attnCols = 256 // a multiple of attnRows and of vectorStep
)

// AttentionWork is the memory of one thread that computes attention.
type AttentionWork[T Float] struct {
	ws, s, d   []T // workspace of GEMM; scores and their gradients
	top, sum   [attnRows]float64
	g          Gemm[T]
	head, i, n int // the head, its first query in the block, and the number of queries
}

// NewAttentionWork returns the memory that a thread needs.
func NewAttentionWork[T Float]() *AttentionWork[T] {
	return &AttentionWork[T]{ws: make([]T, WorkspaceLen[T]()), s: make([]T, attnRows*attnCols), d: make([]T, attnRows*attnCols)}
}

// Blocks returns the number of parts of [AttentionForward], all heads of the batch together.
func (a *Attention[T]) Blocks() int { return len(a.LSE) / max(a.Steps, 1) * a.headBlocks() }

func (a *Attention[T]) headBlocks() int { return (a.Steps + attnRows - 1) / attnRows }

// matrix returns part 0, 1 or 2 (queries, keys, values) of a head in x, shaped as QKV, from a step on. Its rows are
// 3*Heads*HeadDim elements apart.
func (a *Attention[T]) matrix(x []T, part, head, step int) []T {
	b, h := head/a.Heads, head%a.Heads
	return x[((b*a.Steps+step)*3+part)*a.Heads*a.HeadDim+h*a.HeadDim:]
}

// output is matrix for x shaped as Out.
func (a *Attention[T]) output(x []T, head, step int) []T {
	b, h := head/a.Heads, head%a.Heads
	return x[((b*a.Steps+step)*a.Heads+h)*a.HeadDim:]
}

// seen is the number of keys from j on, of n, that query i sees.
func (a *Attention[T]) seen(i, j, n int) int {
	if a.Causal {
		return min(n, i+1-j)
	}
	return n
}

// AttentionForward computes parts lo..hi of Out and LSE.
func AttentionForward[T Float](a *Attention[T], w *AttentionWork[T], lo, hi int) {
	n := a.headBlocks()
	for item := lo; item < hi; item++ {
		// The first block of a causal head costs least and the last one most: by turns, parts of a range cost about
		// the same.
		b := item % n / 2
		if item%n%2 == 1 {
			b = n - 1 - b
		}
		w.head, w.i = item/n, b*attnRows
		w.n = min(attnRows, a.Steps-w.i)
		w.forward(a)
	}
}

// forward computes the outputs of one block of queries.
func (w *AttentionWork[T]) forward(a *Attention[T]) {
	ld, out := a.Heads*a.HeadDim, a.output(a.Out, w.head, w.i)
	keys := a.seen(w.i+w.n-1, 0, a.Steps)
	for j := 0; j < keys; j += attnCols {
		n := min(attnCols, keys-j)
		w.scores(a, j, n)
		for r := range w.n {
			s, seen := row(w.s, r, attnCols), a.seen(w.i+r, j, n)
			padded := padUnseen(s, seen)
			if factor := w.exponentials(r, s[:padded], j == 0); j > 0 && factor != 1 {
				o := out[r*ld:][:a.HeadDim]
				scaled(o, o, T(factor))
			}
			w.drop(a, s[:seen], r, j)
			clear(s[seen:])
		}
		beta := T(1)
		if j == 0 {
			beta = 0
		}
		w.product(Gemm[T]{M: w.n, N: a.HeadDim, K: n, Alpha: 1, A: w.s, LDA: attnCols, B: a.matrix(a.QKV, 2, w.head, j), LDB: 3 * ld,
			Beta: beta, C: out, LDC: ld})
	}
	lse := a.LSE[w.head*a.Steps+w.i:]
	for r := range w.n {
		o := out[r*ld:][:a.HeadDim]
		scaled(o, o, T(1/w.sum[r]))
		lse[r] = T(w.top[r] + math.Log(w.sum[r]))
	}
}

// scores computes the scores of the block's queries with n keys from j on.
func (w *AttentionWork[T]) scores(a *Attention[T], j, n int) {
	ld := 3 * a.Heads * a.HeadDim
	w.product(Gemm[T]{TransB: true, M: w.n, N: n, K: a.HeadDim, Alpha: a.Scale, A: a.matrix(a.QKV, 0, w.head, w.i), LDA: ld,
		B: a.matrix(a.QKV, 1, w.head, j), LDB: ld, C: w.s, LDC: attnCols})
}

// padUnseen lets exp give 0 for a few scores behind the first seen ones of a row, so that whole vectors are computed, and
// returns their number.
func padUnseen[T Float](s []T, seen int) int {
	n := (seen + vectorStep - 1) &^ (vectorStep - 1)
	Fill(s[seen:n], T(math.Inf(-1)))
	return n
}

func (w *AttentionWork[T]) product(g Gemm[T]) {
	w.g = g
	GemmBlock(&w.g, w.ws, 0, g.M, 0, g.N)
}

// exponentials replaces scores s of row r by exp(s-top), where top is the largest one so far, and adds them to the row's
// sum. It returns what to multiply the output so far by.
func (w *AttentionWork[T]) exponentials(r int, s []T, first bool) float64 {
	old, sum := w.top[r], w.sum[r]
	if first {
		old, sum = math.Inf(-1), 0
	}
	var t [1]T
	largest(t[:], s, len(s))
	top := max(float64(t[0]), old)
	if math.IsInf(top, -1) { // no key yet that counts
		w.top[r], w.sum[r] = top, 0
		clear(s)
		return 1
	}
	factor := exp[T](old - top)
	var e [1]float64
	var acc [1]lanes
	t[0] = T(top)
	expSumsOf(e[:], s, s, t[:], len(s), acc[:])
	w.top[r], w.sum[r] = top, float64(sum*factor)+e[0]
	return factor
}

// drop applies dropout to x: probabilities of row r from key j on, or their gradients.
func (w *AttentionWork[T]) drop(a *Attention[T], x []T, r, j int) {
	if a.Drop != 0 {
		at := (w.head*a.Steps+w.i+r)*a.Steps + j
		limit, scale := dropLimit[T](a.Drop)
		dropRun(x, x, limit, scale, a.Key, uint64(a.Rows.Global(at)))
	}
}

// AttentionGrad computes GradQKV for heads lo..hi of the batch, from GradOut and what [AttentionForward] computed.
//
// With P the probabilities, D their mask of dropout and dP = D*(GradOut Vᵀ), it is dV = (D*P)ᵀ GradOut,
// dS = P*(dP - sum(GradOut*Out)), dQ = Scale*dS K and dK = Scale*dSᵀ Q.
func AttentionGrad[T Float](a *Attention[T], w *AttentionWork[T], lo, hi int) {
	for w.head = lo; w.head < hi; w.head++ {
		for part := range 3 {
			g := a.matrix(a.GradQKV, part, w.head, 0)
			for i := range a.Steps {
				clear(g[i*3*a.Heads*a.HeadDim:][:a.HeadDim])
			}
		}
		for j := 0; j < a.Steps; j += attnCols {
			w.i = 0
			if a.Causal {
				w.i = j
			}
			for ; w.i < a.Steps; w.i += attnRows {
				w.n = min(attnRows, a.Steps-w.i)
				w.gradient(a, j, a.seen(w.i+w.n-1, j, min(attnCols, a.Steps-j)))
			}
		}
	}
}

// gradient adds what the block of queries and n keys from j on contribute.
func (w *AttentionWork[T]) gradient(a *Attention[T], j, n int) {
	ld := a.Heads * a.HeadDim
	out, g := a.output(a.Out, w.head, w.i), a.output(a.GradOut, w.head, w.i)
	w.scores(a, j, n)
	w.product(Gemm[T]{TransB: true, M: w.n, N: n, K: a.HeadDim, Alpha: 1, A: g, LDA: ld, B: a.matrix(a.QKV, 2, w.head, j), LDB: 3 * ld,
		C: w.d, LDC: attnCols})
	lse := a.LSE[w.head*a.Steps+w.i:]
	one := [1]T{1}
	for r := range w.n {
		s, d, seen := row(w.s, r, attnCols), row(w.d, r, attnCols), a.seen(w.i+r, j, n)
		padded := padUnseen(s, seen)
		expScaled(s[:padded], s[:padded], lse[r:r+1], one[:], 0, padded, false)
		w.drop(a, d[:seen], r, j)
		sum := [1]T{T(dot(g[r*ld:][:a.HeadDim], out[r*ld:][:a.HeadDim]))}
		softmaxGrad(d[:padded], d[:padded], s[:padded], sum[:], padded, false)
		w.drop(a, s[:seen], r, j)
		clear(s[seen:]) // NaN must not reach keys that the query does not see
		clear(d[seen:])
	}
	grad := func(part, step int) []T { return a.matrix(a.GradQKV, part, w.head, step) }
	in := func(part, step int) []T { return a.matrix(a.QKV, part, w.head, step) }
	w.product(Gemm[T]{TransA: true, M: n, N: a.HeadDim, K: w.n, Alpha: 1, A: w.s, LDA: attnCols, B: g, LDB: ld,
		Beta: 1, C: grad(2, j), LDC: 3 * ld})
	w.product(Gemm[T]{M: w.n, N: a.HeadDim, K: n, Alpha: a.Scale, A: w.d, LDA: attnCols, B: in(1, j), LDB: 3 * ld,
		Beta: 1, C: grad(0, w.i), LDC: 3 * ld})
	w.product(Gemm[T]{TransA: true, M: n, N: a.HeadDim, K: w.n, Alpha: a.Scale, A: w.d, LDA: attnCols, B: in(0, w.i), LDB: 3 * ld,
		Beta: 1, C: grad(1, j), LDC: 3 * ld})
}

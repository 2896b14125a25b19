package kernel

import "math"

// Attention is scaled dot-product attention (Vaswani et al. 2017) in blocks, without the matrix of all probabilities:
// Dao et al., "FlashAttention" (2022). A block of queries meets one block of keys after the other and keeps the largest
// score and the sum of exponentials of each row so far; the gradient computes the probabilities anew from their
// logarithmic sums. So the memory beside the operands is that of a block, whatever the number of positions.
//
// All of a head's operands lie in rows: Q is [batch, Queries, Heads, HeadDim], K and V are [batch, Keys, KVHeads, HeadDim], where a
// position of Q may be QStep elements from the next, and of K and V KVStep. Out is shaped as Q and has no gaps, and LSE,
// ln(sum(exp(score))) of each query, is [batch, Heads, Queries].
type Attention[T Float] struct {
	AttentionOperands[T, T]
	AttentionHalf[T]
}

// AttentionOperands are those of elements E whose sums are S.
type AttentionOperands[E, S any] struct {
	AttentionShape
	Scale               S // of the scores
	Q, K, V             []E
	Out                 []E
	LSE                 []S
	GradOut             []E // of AttentionGrad; shaped as Out
	GradQ, GradK, GradV []E // shaped as Q, K and V
	GradLSE             []S // of AttentionGrad; shaped as LSE, nil for 0
}

// AttentionShape is an attention without its operands.
type AttentionShape struct {
	Batch, Queries, Keys int
	Heads, KVHeads       int // Heads/KVHeads heads of queries in a row share one of keys and values (Ainslie et al., "GQA", 2023)
	HeadDim              int
	QStep, KVStep        int
	Causal               bool // query i sees keys 0 to i+Offset
	Offset               int
	Window               int     // with Causal: the last so many of these keys; 0: all
	SoftCap              float64 // scores s are SoftCap·tanh(s/SoftCap); 0: s
	AttentionMasks

	// Drop is the probability with which [Dropout], under Key, drops elements of the probabilities
	// [batch, Heads, Queries, Keys]; Rows says where these lie.
	Drop float64
	Key  uint64
	Rows Rows
}

// Pack makes queries, keys and values parts of qkv [batch, Steps, 3, Heads, HeadDim], and their gradients of grad.
func (a *AttentionOperands[E, S]) Pack(qkv, grad []E) {
	a.Q, a.K, a.V = unpacked(&a.AttentionShape, qkv)
	if grad != nil {
		a.GradQ, a.GradK, a.GradV = unpacked(&a.AttentionShape, grad)
	}
}

// unpacked returns the queries, keys and values in qkv, and sets their steps.
func unpacked[E any](a *AttentionShape, qkv []E) (q, k, v []E) {
	width := a.Heads * a.HeadDim
	a.QStep, a.KVStep = 3*width, 3*width
	return qkv, qkv[width:], qkv[2*width:]
}

// Blocks of queries and keys. A block of scores, its gradient, and the keys and values that it needs fit in the second-level
// cache.
const (
	attnRows = 64
	attnCols = 256 // a multiple of attnRows and of vectorStep
)

// AttentionWork is the memory of one thread that computes attention.
type AttentionWork[T Float] struct {
	ws, p, dS      []T // workspace of GEMM; scores and their gradients
	wide           []T // 16-bit keys or values of a block
	slopes         []T // derivatives of the scores by those without SoftCap, of a few rows
	touched        uint16
	rowMax, rowSum [attnRows]float64
	g              Gemm[T]
	head, i, n     int // the head, its first query in the block, and the number of queries
}

// NewAttentionWork returns the memory that a thread needs. ws is its workspace for products, of [WorkspaceLen] elements.
func NewAttentionWork[T Float](ws []T) *AttentionWork[T] {
	return &AttentionWork[T]{ws: ws, p: make([]T, attnRows*attnCols), dS: make([]T, attnRows*attnCols), slopes: make([]T, attnCols)}
}

// Blocks returns the number of parts of [AttentionForward], all heads of the batch together.
func (a *AttentionShape) Blocks() int { return a.Batch * a.Heads * a.headBlocks() }

// Groups returns the number of parts of [AttentionGrad]: heads of keys and values of the batch.
func (a *AttentionShape) Groups() int { return a.Batch * a.KVHeads }

// group is how many heads of queries share one of keys and values.
func (a *AttentionShape) group() int { return a.Heads / a.KVHeads }

func (a *AttentionShape) headBlocks() int { return (a.Queries + attnRows - 1) / attnRows }

// queries returns a head's rows of x, shaped as Q, from a position on.
func (a *Attention[T]) queries(x []T, head, at int) []T { return x[a.queryAt(head, at):] }

// keys returns the rows that a head meets of x, shaped as K, from a position on.
func (a *Attention[T]) keys(x []T, head, at int) []T { return x[a.keyAt(head, at):] }

// output is queries for x shaped as Out.
func (a *Attention[T]) output(x []T, head, at int) []T { return x[a.outputAt(head, at):] }

// queryAt, keyAt and outputAt are where queries, keys and output begin.
func (a *AttentionShape) queryAt(head, at int) int {
	return (a.start(head, a.Queries)+at)*a.QStep + head%a.Heads*a.HeadDim
}

func (a *AttentionShape) keyAt(head, at int) int {
	return (a.start(head, a.Keys)+at)*a.KVStep + head%a.Heads/a.group()*a.HeadDim
}

func (a *AttentionShape) outputAt(head, at int) int {
	return ((a.start(head, a.Queries)+at)*a.Heads + head%a.Heads) * a.HeadDim
}

// seen is the number of keys from j on, of n, that query i sees.
func (a *AttentionShape) seen(i, j, n int) int {
	if a.Causal {
		return max(0, min(n, i+a.Offset+1-j))
	}
	return n
}

// AttentionForward computes parts lo..hi of Out and LSE. The output of a query that sees no key is 0, and its LSE -Inf.
func AttentionForward[T Float](a *Attention[T], w *AttentionWork[T], lo, hi int) {
	for item := lo; item < hi; item++ {
		if w.take(&a.AttentionShape, item); w.n > 0 {
			w.forward(a)
		}
	}
}

// take makes a part of [AttentionForward] the current block of queries.
func (w *AttentionWork[T]) take(a *AttentionShape, item int) {
	// The first block of a causal head costs least and the last one most: by turns, parts of a range cost about
	// the same.
	n := a.headBlocks()
	b := item % n / 2
	if item%n%2 == 1 {
		b = n - 1 - b
	}
	w.head, w.i = item/n, b*attnRows
	w.n = min(attnRows, a.positions(w.head, a.Queries)-w.i) // without padding, a short sequence has fewer blocks
}

// forward computes the outputs of one block of queries.
func (w *AttentionWork[T]) forward(a *Attention[T]) {
	ld, out := a.Heads*a.HeadDim, a.output(a.Out, w.head, w.i)
	for r := range w.n {
		w.rowMax[r], w.rowSum[r] = math.Inf(-1), 0
	}
	all := a.keysOf(w.head)
	keys := a.seen(w.i+w.n-1, 0, all)
	beta := T(0)
	for j := 0; j < keys; j += attnCols {
		n := min(attnCols, keys-j)
		if !w.mayAttend(&a.AttentionShape, j, n) {
			continue
		}
		w.scores(a, j, n)
		for r := range w.n {
			s, seen := row(w.p, r, attnCols), a.seen(w.i+r, j, n)
			if seen > 0 {
				softCap(a.SoftCap, s[:seen], nil)
				w.hideKeys(&a.AttentionShape, s[:seen], r, j)
				padded := padUnseen(s, seen)
				if rescale := w.exponentials(r, s[:padded]); beta != 0 && rescale != 1 {
					o := out[r*ld:][:a.HeadDim]
					scaled(o, o, T(rescale))
				}
				w.drop(&a.AttentionShape, s[:seen], r, j)
			}
			clear(s[seen:])
		}
		v, step := w.block(a, a.V, a.V16, j, n)
		w.product(Gemm[T]{M: w.n, N: a.HeadDim, K: n, Alpha: 1, A: w.p, LDA: attnCols, B: v, LDB: step, Beta: beta, C: out, LDC: ld})
		beta = 1
	}
	lse := a.LSE[a.sums(w.head)+w.i:]
	for r := range w.n {
		o := out[r*ld:][:a.HeadDim]
		lse[r] = T(w.rowMax[r] + math.Log(w.rowSum[r]))
		if a.seen(w.i+r, 0, all) == 0 || a.seesNoKey(float64(lse[r])) {
			clear(o)
			continue
		}
		scaled(o, o, T(1/w.rowSum[r]))
	}
}

// scores computes the scores of the block's queries with n keys from j on.
func (w *AttentionWork[T]) scores(a *Attention[T], j, n int) {
	k, step := w.block(a, a.K, a.K16, j, n)
	w.product(Gemm[T]{TransB: true, M: w.n, N: n, K: a.HeadDim, Alpha: a.Scale, A: a.queries(a.Q, w.head, w.i), LDA: a.QStep,
		B: k, LDB: step, C: w.p, LDC: attnCols})
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

// exponentials replaces scores s of row r by exp(s-rowMax), where rowMax is the largest one so far, and adds them to the row's
// sum. It returns what to multiply the output so far by.
func (w *AttentionWork[T]) exponentials(r int, s []T) float64 {
	old, sum := w.rowMax[r], w.rowSum[r]
	var t [1]T
	largest(t[:], s, len(s))
	top := max(float64(t[0]), old)
	if math.IsInf(top, -1) { // no key yet that counts
		w.rowMax[r], w.rowSum[r] = top, 0
		clear(s)
		return 1
	}
	rescale := exp[T](old - top)
	var e [1]float64
	var acc [1]lanes
	t[0] = T(top)
	expSumsOf(e[:], s, s, t[:], len(s), acc[:])
	w.rowMax[r], w.rowSum[r] = top, float64(sum*rescale)+e[0]
	return rescale
}

// drop applies dropout to x: probabilities of row r from key j on, or their gradients.
func (w *AttentionWork[T]) drop(a *AttentionShape, x []T, r, j int) {
	if a.Drop != 0 {
		at := (w.head*a.Queries+w.i+r)*a.Keys + j
		limit, scale := dropLimit[T](a.Drop)
		dropRun(x, x, limit, scale, a.Key, uint64(a.Rows.Global(at)))
	}
}

// AttentionGrad computes GradQ, GradK and GradV for heads lo..hi of keys and values of the batch, from GradOut and what
// [AttentionForward] computed.
//
// With P the probabilities, D their mask of dropout and dP = D*(GradOut Vᵀ), it is dV = (D*P)ᵀ GradOut,
// dS = P*(dP - sum(GradOut*Out) + GradLSE), times the slope of SoftCap, dQ = Scale*dS K and dK = Scale*dSᵀ Q.
func AttentionGrad[T Float](a *Attention[T], w *AttentionWork[T], lo, hi int) {
	for kv := lo; kv < hi; kv++ {
		first := kv * a.group()
		keys := a.keysOf(first)
		queries, rows := a.positions(first, a.Queries), a.positions(first, a.Keys)
		zeroRows(a.keys(a.GradK, first, 0), rows, a.HeadDim, a.KVStep)
		zeroRows(a.keys(a.GradV, first, 0), rows, a.HeadDim, a.KVStep)
		for w.head = first; w.head < first+a.group(); w.head++ {
			zeroRows(a.queries(a.GradQ, w.head, 0), queries, a.HeadDim, a.QStep)
			for j := 0; j < keys; j += attnCols {
				w.i = 0
				if a.Causal {
					w.i = max(0, j-a.Offset) / attnRows * attnRows
				}
				for ; w.i < queries; w.i += attnRows {
					w.n = min(attnRows, queries-w.i)
					if n := a.seen(w.i+w.n-1, j, min(attnCols, keys-j)); n > 0 && w.mayAttend(&a.AttentionShape, j, n) {
						w.gradient(a, j, n)
					}
				}
			}
		}
	}
}

func zeroRows[T Float](x []T, rows, cols, step int) {
	for i := range rows {
		clear(x[i*step:][:cols])
	}
}

// gradient adds what the block of queries and n keys from j on contribute.
func (w *AttentionWork[T]) gradient(a *Attention[T], j, n int) {
	ld := a.Heads * a.HeadDim
	out, g := a.output(a.Out, w.head, w.i), a.output(a.GradOut, w.head, w.i)
	w.scores(a, j, n)
	w.product(Gemm[T]{TransB: true, M: w.n, N: n, K: a.HeadDim, Alpha: 1, A: g, LDA: ld, B: a.keys(a.V, w.head, j), LDB: a.KVStep,
		C: w.dS, LDC: attnCols})
	lse := a.LSE[a.sums(w.head)+w.i:]
	one := [1]T{1}
	for r := range w.n {
		s, d, seen := row(w.p, r, attnCols), row(w.dS, r, attnCols), a.seen(w.i+r, j, n)
		if a.seesNoKey(float64(lse[r])) {
			seen = 0
		}
		if seen > 0 {
			softCap(a.SoftCap, s[:seen], w.slopes)
			w.hideKeys(&a.AttentionShape, s[:seen], r, j)
			padded := padUnseen(s, seen)
			expScaled(s[:padded], s[:padded], lse[r:r+1], one[:], 0, padded, false)
			w.drop(&a.AttentionShape, d[:seen], r, j)
			sum := [1]T{T(dot(g[r*ld:][:a.HeadDim], out[r*ld:][:a.HeadDim]))}
			if a.GradLSE != nil {
				sum[0] -= a.GradLSE[a.sums(w.head)+w.i+r]
			}
			softmaxGrad(d[:padded], d[:padded], s[:padded], sum[:], padded, false)
			if a.SoftCap != 0 {
				Mul(d[:seen], d[:seen], w.slopes[:seen])
			}
			w.drop(&a.AttentionShape, s[:seen], r, j)
		}
		clear(s[seen:]) // NaN must not reach keys that the query does not see
		clear(d[seen:])
	}
	w.product(Gemm[T]{TransA: true, M: n, N: a.HeadDim, K: w.n, Alpha: 1, A: w.p, LDA: attnCols, B: g, LDB: ld,
		Beta: 1, C: a.keys(a.GradV, w.head, j), LDC: a.KVStep})
	w.product(Gemm[T]{M: w.n, N: a.HeadDim, K: n, Alpha: a.Scale, A: w.dS, LDA: attnCols, B: a.keys(a.K, w.head, j), LDB: a.KVStep,
		Beta: 1, C: a.queries(a.GradQ, w.head, w.i), LDC: a.QStep})
	w.product(Gemm[T]{TransA: true, M: n, N: a.HeadDim, K: w.n, Alpha: a.Scale, A: w.dS, LDA: attnCols, B: a.queries(a.Q, w.head, w.i),
		LDB: a.QStep, Beta: 1, C: a.keys(a.GradK, w.head, j), LDC: a.KVStep})
}

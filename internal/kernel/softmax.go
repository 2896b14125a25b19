package kernel

import "math"

// The kernels in this file treat x as rows of cols elements and compute rows
// lo..hi. Row sums are in float64, in 16 interleaved accumulators.

// softWork is the memory for the passes over a block of rows.
type softWork[T Float] struct {
	tops, scale, zeros [maxBlockRows]T
	sums               [maxBlockRows]float64
	acc                [maxBlockRows]lanes
}

// logSumExps returns ln(sum(exp(x))) of k rows: -Inf if all elements are -Inf, NaN
// if one is NaN.
func (w *softWork[T]) logSumExps(x []T, k, cols int) []float64 {
	tops, sums := w.tops[:k], w.sums[:k]
	largest(tops, x, cols)
	expSums(sums, x, tops, cols, w.acc[:])
	for r, m := range tops {
		if !math.IsInf(float64(m), 0) {
			sums[r] = float64(m) + math.Log(sums[r])
			continue
		}
		sums[r] = float64(m) // exp(x-m) is NaN
		for _, v := range row(x, r, cols) {
			if v != v {
				sums[r] = math.NaN()
			}
		}
	}
	return sums
}

// softmaxCols is the longest row whose exponentials Softmax keeps in the caches
// when its output bypasses them.
const softmaxCols = 8 << 10

// Softmax computes dst = exp(x) / sum(exp(x)) in each row. A row of -Inf gives NaN, as in PyTorch.
func Softmax[T Float](dst, x []T, cols, lo, hi int) {
	if cols <= softmaxCols && rowsPastCaches(dst, cols, x) {
		softmaxPast(dst, x, cols, lo, hi)
		return
	}
	softmax(dst, x, nil, cols, lo, hi)
}

func softmaxPast[T Float](dst, x []T, cols, lo, hi int) {
	var e [softmaxCols]T
	softmax(dst, x, e[:], cols, lo, hi)
	storeFence()
}

// softmax is Softmax with the exponentials in e, or in dst if that is nil.
func softmax[T Float](dst, x, e []T, cols, lo, hi int) {
	var w softWork[T]
	step := blockRows[T](cols)
	for ; lo < hi; lo += step {
		k := min(step, hi-lo)
		d, x := dst[lo*cols:(lo+k)*cols], x[lo*cols:(lo+k)*cols]
		largest(w.tops[:k], x, cols)
		exps := d
		if e != nil {
			exps = e[:k*cols]
		}
		expSumsOf(w.sums[:k], exps, x, w.tops[:k], cols, w.acc[:])
		for r, s := range w.sums[:k] {
			w.scale[r] = T(1 / s)
		}
		normalize(d, exps, nil, nil, w.zeros[:k], w.scale[:k], cols, e != nil)
	}
}

// SoftmaxCausal is Softmax with the causal attention mask. Rows are queries and
// columns are keys. Row r is at query position q = (first+r)%queries, and columns after
// q+(cols-queries) get probability 0: the queries are at the positions of the last
// keys. A row that sees no column (queries > cols) is 0.
func SoftmaxCausal[T Float](dst, x []T, cols, lo, hi, first, queries int) {
	for r := lo; r < hi; r++ {
		d, seen := row(dst, r, cols), max(0, (first+r)%queries+cols-queries+1)
		softmax(d[:seen], row(x, r, cols)[:seen], nil, seen, 0, 1)
		clear(d[seen:])
	}
}

// SoftmaxGrad computes dst = y*(g - sum(g*y)) in each row, where y is the output of [Softmax] or [SoftmaxCausal].
func SoftmaxGrad[T Float](dst, g, y []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, y)
	var w softWork[T]
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		d, g, y := dst[lo*cols:], g[lo*cols:], y[lo*cols:]
		rowDots(w.sums[:k], g, y, cols, w.acc[:])
		for r, s := range w.sums[:k] {
			w.scale[r] = T(s)
		}
		softmaxGrad(d, g, y, w.scale[:k], cols, far)
	}
	rowsDone(far)
}

// LogSoftmax computes dst = x - ln(sum(exp(x))) in each row.
func LogSoftmax[T Float](dst, x []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, x)
	var w softWork[T]
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		d, x := dst[lo*cols:], x[lo*cols:]
		lse := w.logSumExps(x, k, cols)
		done := vecLogSoftmax(d, x, lse, cols, far)
		for r := range lse {
			d, x := row(d, r, cols), row(x, r, cols)
			for i := done; i < cols; i++ {
				d[i] = T(float64(x[i]) - lse[r])
			}
		}
	}
	rowsDone(far)
}

// LogSoftmaxGrad computes dst = g - exp(y)*sum(g) in each row, where y is the output of [LogSoftmax].
func LogSoftmaxGrad[T Float](dst, g, y []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, y)
	var w softWork[T]
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		d, g, y := dst[lo*cols:], g[lo*cols:], y[lo*cols:]
		rowSums(w.sums[:k], g, cols, w.acc[:])
		for r, s := range w.sums[:k] {
			w.scale[r] = T(s)
		}
		done := vecLogSoftmaxGrad(d, g, y, w.scale[:k], cols, far)
		for r, s := range w.scale[:k] {
			d, g, y := row(d, r, cols), row(g, r, cols), row(y, r, cols)
			for i := done; i < cols; i++ {
				d[i] = g[i] - T(expNear(y[i])*s)
			}
		}
	}
	rowsDone(far)
}

// LogSumExp computes dst[r] = ln(sum(exp(x))) of each row; -Inf for a row of -Inf, +Inf for a row with +Inf.
func LogSumExp[T Float](dst, x []T, cols, lo, hi int) {
	var w softWork[T]
	for step := blockRows[T](cols); lo < hi; lo += step {
		for r, l := range w.logSumExps(x[lo*cols:], min(step, hi-lo), cols) {
			dst[lo+r] = T(l)
		}
	}
}

// LogSumExpGrad computes dst = g[r]*exp(x - lse[r]) in each row r, where lse is the output of [LogSumExp].
func LogSumExpGrad[T Float](dst, g, x, lse []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, x)
	expScaled(dst[lo*cols:], x[lo*cols:], lse[lo:hi], g[lo:hi], 0, cols, far)
	rowsDone(far)
}

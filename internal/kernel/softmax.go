package kernel

import "math"

// The kernels in this file treat x as rows of cols elements and compute rows lo..hi. Row sums are accumulated in float64,
// in 16 interleaved accumulators.

// row returns row r of x.
func row[T any](x []T, r, cols int) []T { return x[r*cols : r*cols+cols : r*cols+cols] }

// largest returns the largest number in x, -Inf if there is none. It ignores NaN: the exponentials turn the row to NaN anyway.
func largest[T Float](x []T) float64 {
	m := T(math.Inf(-1))
	if len(x) >= vectorStep {
		var lanes [vectorStep]T
		Fill(lanes[:], m)
		x = x[vecMaximum(x, &lanes):]
		for _, v := range lanes {
			if v > m {
				m = v
			}
		}
	}
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return float64(m)
}

// logSumExp returns ln(sum(exp(x))): -Inf if all elements are -Inf, NaN if one is NaN.
func logSumExp[T Float](x []T) float64 {
	m := largest(x)
	if math.IsInf(m, 0) { // exp(x-m) would be NaN
		for _, v := range x {
			if v != v {
				return math.NaN()
			}
		}
		return m
	}
	var s [16]float64
	for i, v := range x[vecExpSum(x, &s, T(m)):] {
		s[i&15] += float64(expNear(v - T(m)))
	}
	return m + math.Log(total(&s))
}

// Softmax computes dst = exp(x) / sum(exp(x)) in each row. A row of -Inf gives NaN, as in PyTorch.
func Softmax[T Float](dst, x []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		softmaxRow(row(dst, r, cols), row(x, r, cols))
	}
}

func softmaxRow[T Float](dst, x []T) {
	scaled(dst, dst, T(1/expSum(dst, x, T(largest(x)))))
}

// expSum computes dst = exp(x-m) and returns its sum.
func expSum[T Float](dst, x []T, m T) float64 {
	var s [16]float64
	k := vecExpSumStore(dst, x, &s, m)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		e := expNear(x[i] - m)
		dst[i] = e
		s[i&15] += float64(e)
	}
	return total(&s)
}

// expScaled computes dst = scale*(exp(x-lse) - off).
func expScaled[T Float](dst, x []T, lse, off, scale T, far bool) {
	for i := vecSoftmaxLossGrad(dst, x, lse, off, scale, far); i < len(dst); i++ {
		dst[i] = scale * (expNear(x[i]-lse) - off)
	}
}

// SoftmaxCausal is Softmax under the causal attention mask. Rows are queries, columns keys: row r stands at query position
// q = r%queries, and columns beyond q+(cols-queries) get probability 0 (the queries are the last of the keys). A row that sees
// no column (queries > cols) is 0.
func SoftmaxCausal[T Float](dst, x []T, cols, lo, hi, queries int) {
	for r := lo; r < hi; r++ {
		d, seen := row(dst, r, cols), max(0, r%queries+cols-queries+1)
		softmaxRow(d[:seen], row(x, r, cols)[:seen])
		clear(d[seen:])
	}
}

// SoftmaxGrad computes dst = y*(g - sum(g*y)) in each row, where y is the output of [Softmax] or [SoftmaxCausal].
func SoftmaxGrad[T Float](dst, g, y []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, y)
	for r := lo; r < hi; r++ {
		g, y := row(g, r, cols), row(y, r, cols)
		softmaxGradRow(row(dst, r, cols), g, y, T(dot(g, y)), far)
	}
	rowsDone(far)
}

// softmaxGradRow computes dst = y*(g-s).
func softmaxGradRow[T Float](dst, g, y []T, s T, far bool) {
	for i := vecSoftmaxGrad(dst, g, y, s, far); i < len(dst); i++ {
		dst[i] = y[i] * (g[i] - s)
	}
}

// LogSoftmax computes dst = x - ln(sum(exp(x))) in each row.
func LogSoftmax[T Float](dst, x []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		d, x := row(dst, r, cols), row(x, r, cols)
		lse := logSumExp(x)
		for i := vecLogSoftmax(d, x, lse); i < len(d); i++ {
			d[i] = T(float64(x[i]) - lse)
		}
	}
}

// LogSoftmaxGrad computes dst = g - exp(y)*sum(g) in each row, where y is the output of [LogSoftmax].
func LogSoftmaxGrad[T Float](dst, g, y []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, y)
	for r := lo; r < hi; r++ {
		d, g, y := row(dst, r, cols), row(g, r, cols), row(y, r, cols)
		s := T(rowSum(g))
		for i := vecLogSoftmaxGrad(d, g, y, s, far); i < len(d); i++ {
			d[i] = g[i] - T(expNear(y[i])*s)
		}
	}
	rowsDone(far)
}

// LogSumExp computes dst[r] = ln(sum(exp(x))) of each row; -Inf for a row of -Inf, +Inf for a row with +Inf.
func LogSumExp[T Float](dst, x []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		dst[r] = T(logSumExp(row(x, r, cols)))
	}
}

// LogSumExpGrad computes dst = g[r]*exp(x - lse[r]) in each row r, where lse is the output of [LogSumExp].
func LogSumExpGrad[T Float](dst, g, x, lse []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, x)
	for r := lo; r < hi; r++ {
		expScaled(row(dst, r, cols), row(x, r, cols), lse[r], 0, g[r], far)
	}
	rowsDone(far)
}

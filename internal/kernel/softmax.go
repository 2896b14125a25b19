package kernel

import "math"

// The kernels in this file treat x as rows of cols elements and compute rows lo..hi. Row sums are accumulated in float64
// from left to right.

// row returns row r of x.
func row[T any](x []T, r, cols int) []T { return x[r*cols : r*cols+cols : r*cols+cols] }

// largest returns the largest number in x, -Inf if there is none. It ignores NaN: the exponentials turn the row to NaN anyway.
func largest[T Float](x []T) float64 {
	m := T(math.Inf(-1))
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
	s := 0.0
	for _, v := range x {
		s += exp[T](float64(v) - m)
	}
	return m + math.Log(s)
}

// Softmax computes dst = exp(x) / sum(exp(x)) in each row. A row of -Inf gives NaN, as in PyTorch.
func Softmax[T Float](dst, x []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		softmaxRow(row(dst, r, cols), row(x, r, cols))
	}
}

func softmaxRow[T Float](dst, x []T) {
	x = x[:len(dst)]
	m, s := largest(x), 0.0
	for i := range dst {
		e := exp[T](float64(x[i]) - m)
		dst[i] = T(e)
		s += e
	}
	scale := T(1 / s)
	for i := range dst {
		dst[i] *= scale
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
	for r := lo; r < hi; r++ {
		d, g, y := row(dst, r, cols), row(g, r, cols), row(y, r, cols)
		s := T(dot(g, y))
		for i := range d {
			d[i] = y[i] * (g[i] - s)
		}
	}
}

// dot returns the inner product of a and b in float64.
func dot[T Float](a, b []T) float64 {
	b = b[:len(a)]
	s := 0.0
	for i, v := range a {
		s += float64(float64(v) * float64(b[i]))
	}
	return s
}

// LogSoftmax computes dst = x - ln(sum(exp(x))) in each row.
func LogSoftmax[T Float](dst, x []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		d, x := row(dst, r, cols), row(x, r, cols)
		lse := logSumExp(x)
		for i := range d {
			d[i] = T(float64(x[i]) - lse)
		}
	}
}

// LogSoftmaxGrad computes dst = g - exp(y)*sum(g) in each row, where y is the output of [LogSoftmax].
func LogSoftmaxGrad[T Float](dst, g, y []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		d, g, y := row(dst, r, cols), row(g, r, cols), row(y, r, cols)
		s := 0.0
		for _, v := range g {
			s += float64(v)
		}
		for i := range d {
			d[i] = T(float64(g[i]) - float64(exp[T](float64(y[i]))*s))
		}
	}
}

// LogSumExp computes dst[r] = ln(sum(exp(x))) of each row; -Inf for a row of -Inf, +Inf for a row with +Inf.
func LogSumExp[T Float](dst, x []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		dst[r] = T(logSumExp(row(x, r, cols)))
	}
}

// LogSumExpGrad computes dst = g[r]*exp(x - lse[r]) in each row r, where lse is the output of [LogSumExp].
func LogSumExpGrad[T Float](dst, g, x, lse []T, cols, lo, hi int) {
	for r := lo; r < hi; r++ {
		d, x := row(dst, r, cols), row(x, r, cols)
		m, s := float64(lse[r]), float64(g[r])
		for i := range d {
			d[i] = T(s * exp[T](float64(x[i])-m))
		}
	}
}

package kernel

import "math"

// The normalizations treat x as rows of cols elements. Row sums are accumulated in float64, in 16 interleaved
// accumulators, and column sums in float64 from the first row to the last; the elementwise part is computed in T.

// LayerNorm computes, for rows lo..hi, dst = (x-mean)*rstd*w + b (Ba, Kiros and Hinton 2016), where mean[r] is the mean of row r and
// rstd[r] = 1/sqrt(variance + eps) with the biased variance in two passes. w and b have cols elements; nil stands for
// ones and zeros.
func LayerNorm[T Float](dst, mean, rstd, x, w, b []T, cols, lo, hi int, eps float64) {
	far := rowsPastCaches(dst, cols, x)
	for r := lo; r < hi; r++ {
		d, x := row(dst, r, cols), row(x, r, cols)
		m64 := rowSum(x) / float64(cols)
		m, s := T(m64), T(1/math.Sqrt(sumSquaresAround(x, m64)/float64(cols)+eps))
		mean[r], rstd[r] = m, s
		normalize(d, x, w, b, m, s, far)
	}
	rowsDone(far)
}

// normalize computes dst = (x-m)*s*w + b; nil w and b stand for ones and zeros.
func normalize[T Float](dst, x, w, b []T, m, s T, far bool) {
	k := 0
	switch {
	case w != nil && b != nil:
		k = vecCenterWB(dst, x, w, b, m, s, far)
	case w != nil:
		k = vecCenterW(dst, x, w, m, s, far)
	case b == nil:
		k = vecCenter(dst, x, m, s, far)
	}
	for i := k; i < len(dst); i++ {
		v := (x[i] - m) * s
		if w != nil {
			v = T(v * w[i])
		}
		if b != nil {
			v += b[i]
		}
		dst[i] = v
	}
}

// LayerNormGradX computes, for rows lo..hi, the gradient of [LayerNorm] with respect to x: with h = (x-mean)*rstd and u = g*w,
// dst = rstd*(u - mean(u) - h*mean(u*h)). w may be nil.
func LayerNormGradX[T Float](dst, g, x, w, mean, rstd []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, x)
	for r := lo; r < hi; r++ {
		d, g, x := row(dst, r, cols), row(g, r, cols), row(x, r, cols)
		m, s := mean[r], rstd[r]
		su, suh := normSums(g, x, w, m, s)
		normGrad(d, g, x, w, m, s, T(su/float64(cols)), T(suh/float64(cols)), far)
	}
	rowsDone(far)
}

// normGrad computes dst = s*(u - a - h*b), where u = g*w and h = (x-m)*s.
func normGrad[T Float](dst, g, x, w []T, m, s, a, b T, far bool) {
	if w == nil {
		k := vecNormGrad(dst, g, x, m, s, a, b, far)
		dst = dst[k:]
		g, x = g[k:][:len(dst)], x[k:][:len(dst)]
		for i := range dst {
			dst[i] = s * (g[i] - a - T((x[i]-m)*s*b))
		}
		return
	}
	k := vecNormGradW(dst, g, x, w, m, s, a, b, far)
	dst = dst[k:]
	g, x, w = g[k:][:len(dst)], x[k:][:len(dst)], w[k:][:len(dst)]
	for i := range dst {
		dst[i] = s * (T(g[i]*w[i]) - a - T((x[i]-m)*s*b))
	}
}

// normSums returns the sums of u and u*h over a row, where u = g*w and h = (x-m)*s.
func normSums[T Float](g, x, w []T, m, s T) (su, suh float64) {
	var a, b [16]float64
	k := 0
	if w == nil {
		k = vecNormSums(g, x, &a, &b, m, s)
	} else {
		k = vecNormSumsW(g, x, w, &a, &b, m, s)
		w = w[k:]
	}
	g = g[k:]
	x = x[k:][:len(g)]
	for i, u := range g {
		if w != nil {
			u = T(u * w[i])
		}
		a[i&15] += float64(u)
		b[i&15] += float64(float64(u) * float64((x[i]-m)*s))
	}
	return total(&a), total(&b)
}

// LayerNormGradW computes, for columns lo..hi, the gradients of [LayerNorm] with respect to its weight and bias,
// dw = sum over rows of g*(x-mean)*rstd and db = sum over rows of g, added to dw and db if acc. dw or db may be nil.
func LayerNormGradW[T Float](dw, db, g, x, mean, rstd []T, rows, cols, lo, hi int, acc bool) {
	var tw, tb [sumTile]float64
	for lo < hi {
		k := min(sumTile, hi-lo)
		w, b := tw[:k], tb[:k]
		clear(w)
		clear(b)
		for r := range rows {
			g, x := g[r*cols+lo:][:k], x[r*cols+lo:][:k]
			m, s := mean[r], rstd[r]
			for i := vecWeightBiasGrad(w, b, g, x, m, s); i < len(g); i++ {
				w[i] += float64(float64(g[i]) * float64((x[i]-m)*s))
				b[i] += float64(g[i])
			}
		}
		if dw != nil {
			storeSums(dw[lo:lo+k], w, acc)
		}
		if db != nil {
			storeSums(db[lo:lo+k], b, acc)
		}
		lo += k
	}
}

// storeSums rounds s into dst, or adds it to dst if acc.
func storeSums[T Float](dst []T, s []float64, acc bool) {
	for i, v := range s[:len(dst)] {
		if acc {
			v += float64(dst[i])
		}
		dst[i] = T(v)
	}
}

// RMSNorm computes, for rows lo..hi, dst = x*rstd*w (Zhang and Sennrich 2019), where rstd[r] = 1/sqrt(mean(x*x) + eps).
// w has cols elements; nil stands for ones.
func RMSNorm[T Float](dst, rstd, x, w []T, cols, lo, hi int, eps float64) {
	far := rowsPastCaches(dst, cols, x)
	for r := lo; r < hi; r++ {
		d, x := row(dst, r, cols), row(x, r, cols)
		s := T(1 / math.Sqrt(SumSquares(x)/float64(cols)+eps))
		rstd[r] = s
		normalize(d, x, w, nil, 0, s, far)
	}
	rowsDone(far)
}

// RMSNormGradX computes, for rows lo..hi, the gradient of [RMSNorm] with respect to x: with h = x*rstd and u = g*w,
// dst = rstd*(u - h*mean(u*h)). w may be nil.
func RMSNormGradX[T Float](dst, g, x, w, rstd []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, x)
	for r := lo; r < hi; r++ {
		d, g, x := row(dst, r, cols), row(g, r, cols), row(x, r, cols)
		s := rstd[r]
		_, suh := normSums(g, x, w, 0, s)
		normGrad(d, g, x, w, 0, s, 0, T(suh/float64(cols)), far)
	}
	rowsDone(far)
}

// RMSNormGradW computes, for columns lo..hi, the gradient of [RMSNorm] with respect to its weight,
// dw = sum over rows of g*x*rstd, added to dw if acc.
func RMSNormGradW[T Float](dw, g, x, rstd []T, rows, cols, lo, hi int, acc bool) {
	var tw [sumTile]float64
	for lo < hi {
		k := min(sumTile, hi-lo)
		w := tw[:k]
		clear(w)
		for r := range rows {
			g, x := g[r*cols+lo:][:k], x[r*cols+lo:][:k]
			s := rstd[r]
			for i := vecWeightGrad(w, g, x, 0, s); i < len(g); i++ {
				w[i] += float64(float64(g[i]) * float64(x[i]*s))
			}
		}
		storeSums(dw[lo:lo+k], w, acc)
		lo += k
	}
}

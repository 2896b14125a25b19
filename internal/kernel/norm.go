package kernel

import "math"

// The normalizations treat x as rows of cols elements. Row sums are in float64, in
// 16 interleaved accumulators. Column sums are in float64, from the first row to
// the last. The elementwise part is computed in T.

// LayerNorm computes, for rows lo..hi, dst = (x-mean)*rstd*w + b (Ba, Kiros and
// Hinton 2016). mean[r] is the mean of row r, and rstd[r] = 1/sqrt(variance + eps)
// with the biased variance. w and b have cols elements; nil means ones and zeros.
func LayerNorm[T Float](dst, mean, rstd, x, w, b []T, cols, lo, hi int, eps float64) {
	far := rowsPastCaches(dst, cols, x)
	var center, variance [maxBlockRows]float64
	var acc [2 * maxBlockRows]lanes
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		m, s, d, x := mean[lo:lo+k], rstd[lo:lo+k], dst[lo*cols:], x[lo*cols:]
		rowMoments(center[:k], variance[:k], x, cols, acc[:])
		for r := range k {
			m[r], s[r] = T(center[r]), T(1/math.Sqrt(variance[r]+eps))
		}
		normalize(d, x, w, b, m, s, cols, far)
	}
	rowsDone(far)
}

// LayerNormGradX computes, for rows lo..hi, the gradient of [LayerNorm] with respect to x: with h = (x-mean)*rstd and u = g*w,
// dst = rstd*(u - mean(u) - h*mean(u*h)). w may be nil.
func LayerNormGradX[T Float](dst, g, x, w, mean, rstd []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, x)
	var su, suh [maxBlockRows]float64
	var a, b [maxBlockRows]T
	var acc [2 * maxBlockRows]lanes
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		m, s := mean[lo:lo+k], rstd[lo:lo+k]
		d, g, x := dst[lo*cols:], g[lo*cols:], x[lo*cols:]
		normSums(su[:k], suh[:k], g, x, w, m, s, cols, acc[:])
		for r := range k {
			a[r], b[r] = T(su[r]/float64(cols)), T(suh[r]/float64(cols))
		}
		normGrad(d, g, x, w, m, s, a[:k], b[:k], cols, far)
	}
	rowsDone(far)
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
			next := min(r+rowsAhead, rows-1)*cols + lo
			nextG, nextX := g[next:][:k], x[next:][:k]
			g, x := g[r*cols+lo:][:k], x[r*cols+lo:][:k]
			m, s := mean[r], rstd[r]
			for i := vecWeightBiasGrad(w, b, g, x, nextG, nextX, m, s); i < len(g); i++ {
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

// RMSNorm computes, for rows lo..hi, dst = x*rstd*w (Zhang and Sennrich 2019),
// where rstd[r] = 1/sqrt(mean(x*x) + eps). w has cols elements; nil means ones.
func RMSNorm[T Float](dst, rstd, x, w []T, cols, lo, hi int, eps float64) {
	far := rowsPastCaches(dst, cols, x)
	var sums, centers [maxBlockRows]float64
	var zeros [maxBlockRows]T
	var acc [maxBlockRows]lanes
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		s, d, x := rstd[lo:lo+k], dst[lo*cols:], x[lo*cols:]
		squaresAround(sums[:k], x, centers[:k], cols, acc[:])
		for r := range k {
			s[r] = T(1 / math.Sqrt(sums[r]/float64(cols)+eps))
		}
		normalize(d, x, w, nil, zeros[:k], s, cols, far)
	}
	rowsDone(far)
}

// RMSNormGradX computes, for rows lo..hi, the gradient of [RMSNorm] with respect to x: with h = x*rstd and u = g*w,
// dst = rstd*(u - h*mean(u*h)). w may be nil.
func RMSNormGradX[T Float](dst, g, x, w, rstd []T, cols, lo, hi int) {
	far := rowsPastCaches(dst, cols, g, x)
	var su, suh [maxBlockRows]float64
	var zeros, b [maxBlockRows]T
	var acc [2 * maxBlockRows]lanes
	for step := blockRows[T](cols); lo < hi; lo += step {
		k := min(step, hi-lo)
		z, s := zeros[:k], rstd[lo:lo+k]
		d, g, x := dst[lo*cols:], g[lo*cols:], x[lo*cols:]
		normSums(su[:k], suh[:k], g, x, w, z, s, cols, acc[:])
		for r := range k {
			b[r] = T(suh[r] / float64(cols))
		}
		normGrad(d, g, x, w, z, s, z, b[:k], cols, far)
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
			next := min(r+rowsAhead, rows-1)*cols + lo
			nextG, nextX := g[next:][:k], x[next:][:k]
			g, x := g[r*cols+lo:][:k], x[r*cols+lo:][:k]
			s := rstd[r]
			for i := vecWeightGrad(w, g, x, nextG, nextX, 0, s); i < len(g); i++ {
				w[i] += float64(float64(g[i]) * float64(x[i]*s))
			}
		}
		storeSums(dw[lo:lo+k], w, acc)
		lo += k
	}
}

// NormGradWBF16 is the gradient dw of [LayerNormGradW] or, with mean nil, of
// [RMSNormGradW], rounded once: it has their bits between conversions of all of dw,
// g and x.
func NormGradWBF16(dw, g, x []BF16, mean, rstd []float32, rows, cols, lo, hi int, acc bool) {
	var sums [sumTile]float64
	var wideG, wideX [sumTile]float32
	for lo < hi {
		k := min(sumTile, hi-lo)
		w, wg, wx := sums[:k], wideG[:k], wideX[:k]
		clear(w)
		for r := range rows {
			BF16ToF32(wg, g[r*cols+lo:][:k])
			BF16ToF32(wx, x[r*cols+lo:][:k])
			m, s := float32(0), rstd[r]
			if mean != nil {
				m = mean[r]
			}
			for i := vecWeightGrad(w, wg, wx, wg, wx, m, s); i < k; i++ {
				w[i] += float64(float64(wg[i]) * float64((wx[i]-m)*s))
			}
		}
		if acc {
			BF16ToF32(wg, dw[lo:lo+k])
		}
		storeSums(wg, w, acc)
		F32ToBF16(dw[lo:lo+k], wg)
		lo += k
	}
}

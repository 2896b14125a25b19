package kernel

import (
	"math"
	"unsafe"
)

// Some kernels need several passes over a row. They do each pass for a block of
// rows, which stays in the first-level cache. So no row waits for the sum of
// another one, and a call does enough work. The longest pass prefetches the next
// block. The functions here are such passes. x, dst and so on begin at the first
// row of a block. Slices with one element for each row have as many elements as
// there are rows; the others have that many rows of cols elements.

const (
	blockBytes   = 8 << 10
	maxBlockRows = 16
)

// blockRows returns the number of rows of a block.
func blockRows[T any](cols int) int {
	return max(1, min(maxBlockRows, blockBytes/int(unsafe.Sizeof(*new(T)))/max(1, cols)))
}

// row returns row r of x.
func row[T any](x []T, r, cols int) []T { return x[r*cols : r*cols+cols : r*cols+cols] }

// lanes are the 16 interleaved accumulators of a row: element i goes to number i%16.
type lanes = [16]float64

// rowSums sums each row in float64. acc is its workspace.
func rowSums[T Float](sums []float64, x []T, cols int, acc []lanes) {
	acc = acc[:len(sums)]
	clear(acc)
	k := vecSumWide(x, acc, cols)
	for r := range sums {
		a := &acc[r]
		for i, v := range row(x, r, cols)[k:] {
			a[i&15] += float64(v)
		}
		sums[r] = total(a)
	}
}

// rowSum is rowSums of one row.
func rowSum[T Float](x []T) float64 {
	var s [1]float64
	var acc [1]lanes
	rowSums(s[:], x, len(x), acc[:])
	return s[0]
}

// squaresAround sums (x-m)**2 of each row in float64.
func squaresAround[T Float](sums []float64, x []T, m []float64, cols int, acc []lanes) {
	acc = acc[:len(sums)]
	clear(acc)
	k := vecSquaresAround(x, m, acc, cols)
	for r := range sums {
		a := &acc[r]
		for i, v := range row(x, r, cols)[k:] {
			a[i&15] += square(float64(v) - m[r])
		}
		sums[r] = total(a)
	}
}

// rowMoments computes the mean and the biased variance of each row of m. In float32
// it is one pass: the sums in float64 lose less than the elements lost when they
// were rounded to float32.
func rowMoments[T Float](mean, variance []float64, x []T, cols int, acc []lanes) {
	n := float64(cols)
	if !single[T]() {
		rowSums(mean, x, cols, acc)
		for r := range mean {
			mean[r] /= n
		}
		squaresAround(variance, x, mean, cols, acc)
		for r := range variance {
			variance[r] /= n
		}
		return
	}
	a, b := acc[:len(mean)], acc[maxBlockRows:][:len(mean)]
	clear(a)
	clear(b)
	k := vecMoments(x, a, b, cols)
	for r := range mean {
		a, b := &a[r], &b[r]
		for i, v := range row(x, r, cols)[k:] {
			a[i&15] += float64(v)
			b[i&15] += square(float64(v))
		}
		m := total(a) / n
		mean[r], variance[r] = m, max(0, total(b)/n-float64(m*m))
	}
}

// rowDots computes the inner products of the rows of a and b in float64.
func rowDots[T Float](dots []float64, a, b []T, cols int, acc []lanes) {
	acc = acc[:len(dots)]
	clear(acc)
	k := vecDot(a, b, acc, cols)
	for r := range dots {
		s, a, b := &acc[r], row(a, r, cols)[k:], row(b, r, cols)[k:]
		for i, v := range a {
			s[i&15] += float64(float64(v) * float64(b[i]))
		}
		dots[r] = total(s)
	}
}

// dot returns the inner product of a and b in float64.
func dot[T Float](a, b []T) float64 {
	var s [1]float64
	var acc [1]lanes
	rowDots(s[:], a, b, len(a), acc[:])
	return s[0]
}

// largest computes the largest number of each row, -Inf if there is none. It
// ignores NaN: the exponentials make the row NaN anyway.
func largest[T Float](tops, x []T, cols int) {
	Fill(tops, T(math.Inf(-1)))
	k := vecMaximum(x, tops, cols)
	for r, m := range tops {
		for _, v := range row(x, r, cols)[k:] {
			if v > m {
				m = v
			}
		}
		tops[r] = m
	}
}

// expSums sums exp(x-m) of each row, where m is at least the largest number.
func expSums[T Float](sums []float64, x, m []T, cols int, acc []lanes) {
	acc = acc[:len(sums)]
	clear(acc)
	k := vecExpSum(x, m, acc, cols)
	for r := range sums {
		a := &acc[r]
		for i, v := range row(x, r, cols)[k:] {
			a[i&15] += float64(expNear(v - m[r]))
		}
		sums[r] = total(a)
	}
}

// expSumsOf is expSums that also stores dst = exp(x-m).
func expSumsOf[T Float](sums []float64, dst, x, m []T, cols int, acc []lanes) {
	acc = acc[:len(sums)]
	clear(acc)
	k := vecExpSumStore(dst, x, m, acc, cols)
	for r := range sums {
		a, d, x := &acc[r], row(dst, r, cols)[k:], row(x, r, cols)[k:]
		for i := range d {
			e := expNear(x[i] - m[r])
			d[i] = e
			a[i&15] += float64(e)
		}
		sums[r] = total(a)
	}
}

// expScaled computes dst = scale*(exp(x-lse) - off).
func expScaled[T Float](dst, x, lse, scale []T, off T, cols int, far bool) {
	k := vecSoftmaxLossGrad(dst, x, lse, scale, off, cols, far)
	for r := range lse {
		d, x := row(dst, r, cols)[k:], row(x, r, cols)[k:]
		for i := range d {
			d[i] = scale[r] * (expNear(x[i]-lse[r]) - off)
		}
	}
}

// softmaxGrad computes dst = y*(g-s).
func softmaxGrad[T Float](dst, g, y, s []T, cols int, far bool) {
	k := vecSoftmaxGrad(dst, g, y, s, cols, far)
	for r := range s {
		d, g, y := row(dst, r, cols)[k:], row(g, r, cols)[k:], row(y, r, cols)[k:]
		for i := range d {
			d[i] = y[i] * (g[i] - s[r])
		}
	}
}

// normalize computes dst = (x-m)*s*w + b; nil w and b mean ones and zeros.
func normalize[T Float](dst, x, w, b, m, s []T, cols int, far bool) {
	k := 0
	switch {
	case w != nil && b != nil:
		k = vecCenterWB(dst, x, w, b, m, s, cols, far)
	case w != nil:
		k = vecCenterW(dst, x, w, m, s, cols, far)
	case b == nil:
		k = vecCenter(dst, x, m, s, cols, far)
	}
	for r := range m {
		d, x := row(dst, r, cols), row(x, r, cols)
		for i := k; i < cols; i++ {
			v := (x[i] - m[r]) * s[r]
			if w != nil {
				v = T(v * w[i])
			}
			if b != nil {
				v += b[i]
			}
			d[i] = v
		}
	}
}

// normSums computes the sums of u and of u*h over each row, where u = g*w and h = (x-m)*s.
func normSums[T Float](su, suh []float64, g, x, w, m, s []T, cols int, acc []lanes) {
	a, b := acc[:len(m)], acc[maxBlockRows:][:len(m)]
	clear(a)
	clear(b)
	k := 0
	if w == nil {
		k = vecNormSums(g, x, m, s, a, b, cols)
	} else {
		k = vecNormSumsW(g, x, w, m, s, a, b, cols)
	}
	for r := range m {
		g, x := row(g, r, cols), row(x, r, cols)
		for i := k; i < cols; i++ {
			u := g[i]
			if w != nil {
				u = T(u * w[i])
			}
			a[r][i&15] += float64(u)
			b[r][i&15] += float64(float64(u) * float64((x[i]-m[r])*s[r]))
		}
		su[r], suh[r] = total(&a[r]), total(&b[r])
	}
}

// normGrad computes dst = s*(u - a - h*b), where u = g*w and h = (x-m)*s.
func normGrad[T Float](dst, g, x, w, m, s, a, b []T, cols int, far bool) {
	k := 0
	if w == nil {
		k = vecNormGrad(dst, g, x, m, s, a, b, cols, far)
	} else {
		k = vecNormGradW(dst, g, x, w, m, s, a, b, cols, far)
	}
	for r := range m {
		d, g, x := row(dst, r, cols), row(g, r, cols), row(x, r, cols)
		for i := k; i < cols; i++ {
			u := g[i]
			if w != nil {
				u = T(u * w[i])
			}
			d[i] = s[r] * (u - a[r] - T((x[i]-m[r])*s[r]*b[r]))
		}
	}
}

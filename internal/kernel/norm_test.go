package kernel

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

const normEps = 1e-5

// normNaive normalizes one row by the definition; rms does not subtract the mean.
func normNaive(x []float64, rms bool) (h []float64, mean, rstd float64) {
	n := float64(len(x))
	if !rms {
		for _, v := range x {
			mean += v / n
		}
	}
	variance := 0.0
	for _, v := range x {
		variance += (v - mean) * (v - mean) / n
	}
	rstd = 1 / math.Sqrt(variance+normEps)
	for _, v := range x {
		h = append(h, (v-mean)*rstd)
	}
	return h, mean, rstd
}

func TestNormForward(t *testing.T) { bothFloats(t, testNormForward[float32], testNormForward[float64]) }

func testNormForward[T Float](t *testing.T) {
	for _, cols := range testSizes[1:] {
		x, w, b := normals[T](testRows*cols, 1), normals[T](cols, 2), normals[T](cols, 3)
		Affine(x, x, 2, 5)
		for _, rms := range []bool{false, true} {
			plain, full := make([]float64, 0), make([]float64, 0)
			means, rstds := make([]float64, testRows), make([]float64, testRows)
			for r := range testRows {
				var h []float64
				h, means[r], rstds[r] = normNaive(float64s(x[r*cols:][:cols]), rms)
				for i, v := range h {
					plain = append(plain, v)
					shift := float64(b[i])
					if rms {
						shift = 0
					}
					full = append(full, v*float64(w[i])+shift)
				}
			}
			mean, rstd := make([]T, testRows), make([]T, testRows)
			forward := func(dst, x, w, b []T, lo, hi int) {
				if rms {
					RMSNorm(dst, rstd, x, w, cols, lo, hi, normEps)
				} else {
					LayerNorm(dst, mean, rstd, x, w, b, cols, lo, hi, normEps)
				}
			}
			got, msg := make([]T, len(x)), fmt.Sprint("cols ", cols, " rms ", rms)
			forward(got, x, nil, nil, 0, testRows)
			if cols > 1 { // with one column, all digits cancel
				requireNear(t, plain, got, 1e-5, 1e-12, msg)
			}
			forward(got, x, w, b, 0, testRows)
			if cols > 1 {
				requireNear(t, full, got, 1e-5, 1e-12, msg)
			}
			requireNear(t, means, mean, 1e-6, 1e-14, msg)
			requireNear(t, rstds, rstd, 1e-6, 1e-11, msg)
			requireCutsAgree(t, testRows, len(x), func(dst []T, lo, hi int) { forward(dst, x, w, b, lo, hi) }, msg)
			in := clone(x)
			forward(in, in, w, b, 0, testRows)
			requireSame(t, got, in, msg+" in place")
		}
	}
}

// normGrads holds inputs and the gradients of sum(g*norm(x)) by central differences.
type normGrads[T Float] struct {
	x, w, b, g []T
	dx, dw, db []float64
	rows, cols int
}

func newNormGrads[T Float](rows, cols int, useW bool, forward func(dst, x, w, b []float64)) *normGrads[T] {
	c := &normGrads[T]{x: normals[T](rows*cols, 1), g: normals[T](rows*cols, 4), b: normals[T](cols, 3), rows: rows, cols: cols}
	w := make([]float64, cols)
	Fill(w, 1)
	if useW {
		c.w = normals[T](cols, 2)
		w = float64s(c.w)
	}
	x, b, g := float64s(c.x), float64s(c.b), float64s(c.g)
	c.dx = rowGradient(x, g, func(d, x []float64) { forward(d, x, w, b) })
	c.dw = rowGradient(w, g, func(d, w []float64) { forward(d, x, w, b) })
	c.db = rowGradient(b, g, func(d, b []float64) { forward(d, x, w, b) })
	return c
}

// check compares a weight gradient, plain and accumulated, whole and in cuts.
func (c *normGrads[T]) check(t *testing.T, want []float64, f func(dst []T, lo, hi int, acc bool), msg string) {
	t.Helper()
	start := normals[T](c.cols, 9)
	for _, acc := range []bool{false, true} {
		sums := clone(want)
		if acc {
			addTo(sums, float64s(start))
		}
		got := clone(start)
		f(got, 0, c.cols, acc)
		requireNear(t, sums, got, 1e-5, 1e-8, msg)
		requireCutsAgree(t, c.cols, c.cols, func(dst []T, lo, hi int) {
			copy(dst[lo:hi], start[lo:hi])
			f(dst, lo, hi, acc)
		}, msg)
	}
}

func TestLayerNormGrad(t *testing.T) {
	bothFloats(t, testLayerNormGrad[float32], testLayerNormGrad[float64])
}

func testLayerNormGrad[T Float](t *testing.T) {
	const rows, cols = 3, 70
	for _, useW := range []bool{false, true} {
		c := newNormGrads[T](rows, cols, useW, func(d, x, w, b []float64) {
			LayerNorm(d, make([]float64, rows), make([]float64, rows), x, w, b, cols, 0, rows, normEps)
		})
		mean, rstd, got := make([]T, rows), make([]T, rows), make([]T, rows*cols)
		LayerNorm(got, mean, rstd, c.x, c.w, c.b, cols, 0, rows, normEps)
		gradX := func(dst, g, x []T, lo, hi int) { LayerNormGradX(dst, g, x, c.w, mean, rstd, cols, lo, hi) }
		gradX(got, c.g, c.x, 0, rows)
		requireNear(t, c.dx, got, 1e-5, 1e-8, "dx")
		requireCutsAgree(t, rows, len(got), func(dst []T, lo, hi int) { gradX(dst, c.g, c.x, lo, hi) }, "dx")
		inG, inX := clone(c.g), clone(c.x)
		gradX(inG, inG, c.x, 0, rows)
		gradX(inX, c.g, inX, 0, rows)
		requireSame(t, got, inG, "dx in place of g")
		requireSame(t, got, inX, "dx in place of x")
		c.check(t, c.dw, func(dst []T, lo, hi int, acc bool) {
			LayerNormGradW(dst, nil, c.g, c.x, mean, rstd, rows, cols, lo, hi, acc)
		}, "dw")
		c.check(t, c.db, func(dst []T, lo, hi int, acc bool) {
			LayerNormGradW(nil, dst, c.g, c.x, mean, rstd, rows, cols, lo, hi, acc)
		}, "db")
		dw, db := make([]T, cols), make([]T, cols)
		LayerNormGradW(dw, db, c.g, c.x, mean, rstd, rows, cols, 0, cols, false)
		requireNear(t, c.dw, dw, 1e-5, 1e-8, "dw with db")
		requireNear(t, c.db, db, 1e-5, 1e-8, "db with dw")
	}
}

func TestRMSNormGrad(t *testing.T) { bothFloats(t, testRMSNormGrad[float32], testRMSNormGrad[float64]) }

func testRMSNormGrad[T Float](t *testing.T) {
	const rows, cols = 3, 70
	for _, useW := range []bool{false, true} {
		c := newNormGrads[T](rows, cols, useW, func(d, x, w, _ []float64) {
			RMSNorm(d, make([]float64, rows), x, w, cols, 0, rows, normEps)
		})
		rstd, got := make([]T, rows), make([]T, rows*cols)
		RMSNorm(got, rstd, c.x, c.w, cols, 0, rows, normEps)
		RMSNormGradX(got, c.g, c.x, c.w, rstd, cols, 0, rows)
		requireNear(t, c.dx, got, 1e-5, 1e-8, "dx")
		requireCutsAgree(t, rows, len(got), func(dst []T, lo, hi int) {
			RMSNormGradX(dst, c.g, c.x, c.w, rstd, cols, lo, hi)
		}, "dx")
		inG, inX := clone(c.g), clone(c.x)
		RMSNormGradX(inG, inG, c.x, c.w, rstd, cols, 0, rows)
		RMSNormGradX(inX, c.g, inX, c.w, rstd, cols, 0, rows)
		requireSame(t, got, inG, "dx in place of g")
		requireSame(t, got, inX, "dx in place of x")
		c.check(t, c.dw, func(dst []T, lo, hi int, acc bool) {
			RMSNormGradW(dst, c.g, c.x, rstd, rows, cols, lo, hi, acc)
		}, "dw")
	}
}

// TestLayerNormPrecision: with a mean 1000 times the deviation, a one-pass variance
// in float32 would be wrong.
func TestLayerNormPrecision(t *testing.T) {
	const cols = 512
	x := normals[float32](cols, 1)
	Affine(x, x, 1, 1000)
	want, _, rstd64 := normNaive(float64s(x), false)
	dst, mean, rstd := make([]float32, cols), make([]float32, 1), make([]float32, 1)
	LayerNorm(dst, mean, rstd, x, nil, nil, cols, 0, 1, normEps)
	assert.InEpsilon(t, rstd64, float64(rstd[0]), 1e-6)
	requireNear(t, want, dst, 1e-4, 0, "LayerNorm")
}

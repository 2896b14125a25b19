package kernel

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// crossEntropyNaive is the definition in PyTorch's documentation: the cross-entropy
// of the softmax and the smoothed target.
func crossEntropyNaive[T Float](x []T, label int64, smoothing float64) float64 {
	_, lse := softmaxNaive(x, len(x))
	loss := 0.0
	for j, v := range x {
		target := smoothing / float64(len(x))
		if int64(j) == label {
			target += 1 - smoothing
		}
		loss -= target * (float64(v) - lse)
	}
	return loss
}

func TestCrossEntropy(t *testing.T) {
	bothFloats(t, testCrossEntropy[float32], testCrossEntropy[float64])
}

func testCrossEntropy[T Float](t *testing.T) {
	const ignore = -100
	for _, cols := range testSizes[1:] {
		for _, smoothing := range []float64{0, 0.1, 1} {
			x := normals[T](testRows*cols, 1)
			label := integers[int64](testRows, 2, 0, cols)
			label[3] = ignore
			want, wantLSE := make([]float64, testRows), make([]float64, testRows)
			for r := range want {
				_, wantLSE[r] = softmaxNaive(x[r*cols:][:cols], cols)
				if label[r] != ignore {
					want[r] = crossEntropyNaive(x[r*cols:][:cols], label[r], smoothing)
				}
			}
			loss, lse, msg := make([]T, testRows), make([]T, testRows), fmt.Sprint(cols, smoothing)
			CrossEntropy(loss, lse, x, label, cols, 0, testRows, smoothing, ignore)
			requireNear(t, want, loss, 1e-6, 1e-13, msg)
			requireNear(t, wantLSE, lse, 1e-6, 1e-13, msg)
			requireCutsAgree(t, testRows, testRows, func(dst []T, lo, hi int) {
				CrossEntropy(dst, lse, x, label, cols, lo, hi, smoothing, ignore)
			}, msg)
		}
	}
}

func TestCrossEntropyGrad(t *testing.T) {
	bothFloats(t, testCrossEntropyGrad[float32], testCrossEntropyGrad[float64])
}

func testCrossEntropyGrad[T Float](t *testing.T) {
	const rows, cols, ignore = 4, 9, 2
	x, label := normals[T](rows*cols, 1), []int64{0, 2, 8, 5} // the second row is ignored
	for _, smoothing := range []float64{0, 0.1} {
		for _, g := range [][]T{normals[T](rows, 3), {0.25}} {
			up := make([]float64, rows)
			for r := range up {
				up[r] = float64(g[min(r, len(g)-1)])
			}
			want := rowGradient(float64s(x), up, func(d, x []float64) {
				CrossEntropy(d, make([]float64, rows), x, label, cols, 0, rows, smoothing, ignore)
			})
			lse, got := make([]T, rows), make([]T, rows*cols)
			CrossEntropy(make([]T, rows), lse, x, label, cols, 0, rows, smoothing, ignore)
			CrossEntropyGrad(got, x, lse, label, g, cols, 0, rows, smoothing, ignore)
			requireNear(t, want, got, 1e-6, 1e-9, fmt.Sprint(smoothing, g))
			requireCutsAgree(t, rows, len(got), func(dst []T, lo, hi int) {
				CrossEntropyGrad(dst, x, lse, label, g, cols, lo, hi, smoothing, ignore)
			}, "cross-entropy gradient")
			in := clone(x)
			CrossEntropyGrad(in, in, lse, label, g, cols, 0, rows, smoothing, ignore)
			requireSame(t, got, in, "in place")
		}
	}
}

func TestCrossEntropyMaskedClass(t *testing.T) {
	x := []float64{1, math.Inf(-1), 2}
	loss, lse, grad := make([]float64, 1), make([]float64, 1), make([]float64, 3)
	CrossEntropy(loss, lse, x, []int64{0}, 3, 0, 1, 0, -100)
	assert.InDelta(t, math.Log(1+math.E), loss[0], 1e-15)
	CrossEntropyGrad(grad, x, lse, []int64{0}, []float64{1}, 3, 0, 1, 0, -100)
	assert.InDeltaSlice(t, []float64{1/(1+math.E) - 1, 0, math.E / (1 + math.E)}, grad, 1e-15)
}

func TestElementLosses(t *testing.T) {
	bothFloats(t, testElementLosses[float32], testElementLosses[float64])
}

func testElementLosses[T Float](t *testing.T) {
	for _, n := range testSizes {
		x, y := logits[T](n, 1), make([]T, n)
		Affine(x, x, 1, -60)
		fillUniform(y, 2, 0, 0, 1)
		mse, bce := make([]float64, n), make([]float64, n)
		for i := range x {
			u, v := float64(x[i]), float64(y[i])
			mse[i] = (u - v) * (u - v)
			bce[i] = -v*math.Log(sigmoidNaive(u)) - (1-v)*math.Log(sigmoidNaive(-u))
		}
		got := make([]T, n)
		MSE(got, x, y)
		requireNear(t, mse, got, 1e-6, 1e-14, "MSE")
		BCEWithLogits(got, x, y)
		requireNear(t, bce, got, 1e-6, 1e-13, "BCE")
		for _, g := range [][]T{normals[T](n, 3), {0.25}} {
			up := make([]float64, n)
			for i := range up {
				up[i] = float64(g[min(i, len(g)-1)])
			}
			testLossGrad(t, "MSE", x, y, g, up, MSE[float64], MSEGrad[T])
			testLossGrad(t, "BCE", x, y, g, up, BCEWithLogits[float64], BCEWithLogitsGrad[T])
		}
	}
	got := make([]T, 4)
	BCEWithLogits(got, []T{1000, -1000, 1000, -1000}, []T{1, 0, 0, 1})
	require.Equal(t, []T{0, 0, 1000, 1000}, got)
}

func testLossGrad[T Float](t *testing.T, name string, x, y, g []T, up []float64,
	f func(dst, x, y []float64), grad func(dst, g, x, y []T),
) {
	const h = 1e-5
	n := len(x)
	want, lo, hi, y64 := make([]float64, n), float64s(x), float64s(x), float64s(y)
	Affine(lo, lo, 1, -h)
	Affine(hi, hi, 1, h)
	f(lo, lo, y64)
	f(hi, hi, y64)
	for i := range want {
		want[i] = up[i] * (hi[i] - lo[i]) / (2 * h)
	}
	got := make([]T, n)
	grad(got, g, x, y)
	requireNear(t, want, got, 1e-6, 1e-7, name+" gradient")
	in := clone(x)
	grad(in, g, in, y)
	requireSame(t, got, in, name+" gradient in place of x")
	if len(g) == n {
		in = clone(g)
		grad(in, in, x, y)
		requireSame(t, got, in, name+" gradient in place of g")
	}
}

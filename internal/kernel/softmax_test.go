package kernel

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// softmaxNaive returns the probabilities of the first seen columns, and their
// ln(sum(exp(x))).
func softmaxNaive[T Float](x []T, seen int) (p []float64, lse float64) {
	p = make([]float64, len(x))
	m, s := math.Inf(-1), 0.0
	for _, v := range x[:seen] {
		m = max(m, float64(v))
	}
	for _, v := range x[:seen] {
		s += math.Exp(float64(v) - m)
	}
	for i, v := range x[:seen] {
		p[i] = math.Exp(float64(v)-m) / s
	}
	return p, m + math.Log(s)
}

// logits returns rows of numbers with a wide range.
func logits[T Float](n int, key uint64) []T {
	x := normals[T](n, key)
	Affine(x, x, 5, 60)
	return x
}

const testRows = 7

func TestSoftmax(t *testing.T) { bothFloats(t, testSoftmax[float32], testSoftmax[float64]) }

func testSoftmax[T Float](t *testing.T) {
	for _, cols := range testSizes {
		x, msg := logits[T](testRows*cols, 1), fmt.Sprint("cols ", cols)
		var prob, logProb, lse, causal []float64
		for r := range testRows {
			p, l := softmaxNaive(x[r*cols:][:cols], cols)
			prob = append(prob, p...)
			lse = append(lse, l)
			for _, v := range x[r*cols:][:cols] {
				logProb = append(logProb, float64(v)-l)
			}
			queries := min(3, max(1, cols))
			p, _ = softmaxNaive(x[r*cols:][:cols], min(cols, r%queries+cols-queries+1))
			causal = append(causal, p...)
		}
		for name, c := range map[string]struct {
			want []float64
			f    func(dst, x []T, lo, hi int)
		}{
			"Softmax":    {prob, func(dst, x []T, lo, hi int) { Softmax(dst, x, cols, lo, hi) }},
			"LogSoftmax": {logProb, func(dst, x []T, lo, hi int) { LogSoftmax(dst, x, cols, lo, hi) }},
			"Causal":     {causal, func(dst, x []T, lo, hi int) { SoftmaxCausal(dst, x, cols, lo, hi, 0, min(3, max(1, cols))) }},
			"LogSumExp":  {lse, func(dst, x []T, lo, hi int) { LogSumExp(dst, x, cols, lo, hi) }},
		} {
			got := make([]T, len(c.want))
			c.f(got, x, 0, testRows)
			requireNear(t, c.want, got, 1e-6, 1e-13, name+" "+msg)
			requireCutsAgree(t, testRows, len(c.want), func(dst []T, lo, hi int) { c.f(dst, x, lo, hi) }, name+" "+msg)
			if name != "LogSumExp" {
				in := clone(x)
				c.f(in, in, 0, testRows)
				requireSame(t, got, in, name+" in place")
			}
		}
	}
}

func TestSoftmaxSpecial(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	cases := []struct{ x, soft, log, lse []float64 }{
		{[]float64{-inf, -inf}, []float64{nan, nan}, []float64{nan, nan}, []float64{-inf}},
		{[]float64{-inf, 3}, []float64{0, 1}, []float64{-inf, 0}, []float64{3}},
		{[]float64{nan, 1}, []float64{nan, nan}, []float64{nan, nan}, []float64{nan}},
		{[]float64{nan, -inf}, []float64{nan, nan}, []float64{nan, nan}, []float64{nan}},
		{[]float64{inf, nan}, []float64{nan, nan}, []float64{nan, nan}, []float64{nan}},
		{[]float64{inf, 1}, []float64{nan, nan}, []float64{nan, -inf}, []float64{inf}},
		{[]float64{1e30, 0}, []float64{1, 0}, []float64{0, -1e30}, []float64{1e30}},
	}
	for _, c := range cases {
		dst, msg := make([]float64, 2), fmt.Sprint(c.x)
		Softmax(dst, c.x, 2, 0, 1)
		requireSame(t, c.soft, dst, msg)
		LogSoftmax(dst, c.x, 2, 0, 1)
		requireSame(t, c.log, dst, msg)
		LogSumExp(dst, c.x, 2, 0, 1)
		requireSame(t, c.lse, dst[:1], msg)
	}
}

func TestSoftmaxCausalMask(t *testing.T) {
	x, dst := make([]float64, 4*3), make([]float64, 4*3)
	SoftmaxCausal(dst, x, 3, 0, 4, 0, 2) // two heads of two queries, which see 2 and 3 keys
	assert.InDeltaSlice(t, []float64{.5, .5, 0, 1. / 3, 1. / 3, 1. / 3, .5, .5, 0, 1. / 3, 1. / 3, 1. / 3}, dst, 1e-15)
	Fill(x, math.NaN())
	SoftmaxCausal(dst, x, 1, 0, 3, 0, 3) // the first two queries see nothing
	requireSame(t, []float64{0, 0, math.NaN()}, dst[:3], "more queries than keys")
}

// rowGradient returns the gradient of sum(g*f(x)) by central differences, where f maps rows x cols numbers to as many outputs as g has.
func rowGradient(x, g []float64, f func(dst, x []float64)) []float64 {
	const h = 1e-5
	grad, y := make([]float64, len(x)), make([]float64, len(g))
	for i := range x {
		for _, sign := range []float64{1, -1} {
			moved := clone(x)
			moved[i] += sign * h
			f(y, moved)
			for j, v := range y {
				grad[i] += sign * v * g[j] / (2 * h)
			}
		}
	}
	return grad
}

func TestSoftmaxGrads(t *testing.T) {
	bothFloats(t, testSoftmaxGrads[float32], testSoftmaxGrads[float64])
}

func testSoftmaxGrads[T Float](t *testing.T) {
	const rows, cols = 3, 9
	x, g, g1 := normals[T](rows*cols, 1), normals[T](rows*cols, 2), normals[T](rows, 3)
	y, ly, lse := make([]T, rows*cols), make([]T, rows*cols), make([]T, rows)
	SoftmaxCausal(y, x, cols, 0, rows, 0, 3)
	LogSoftmax(ly, x, cols, 0, rows)
	LogSumExp(lse, x, cols, 0, rows)
	x64 := float64s(x)
	cases := map[string]struct {
		want []float64
		up   []T
		save []T
		f    func(dst, g, save []T, lo, hi int)
	}{
		"Softmax": {
			rowGradient(x64, float64s(g), func(d, x []float64) { SoftmaxCausal(d, x, cols, 0, rows, 0, 3) }), g, y,
			func(dst, g, y []T, lo, hi int) { SoftmaxGrad(dst, g, y, cols, lo, hi) },
		},
		"LogSoftmax": {
			rowGradient(x64, float64s(g), func(d, x []float64) { LogSoftmax(d, x, cols, 0, rows) }), g, ly,
			func(dst, g, y []T, lo, hi int) { LogSoftmaxGrad(dst, g, y, cols, lo, hi) },
		},
		"LogSumExp": {
			rowGradient(x64, float64s(g1), func(d, x []float64) { LogSumExp(d, x, cols, 0, rows) }), g1, x,
			func(dst, g, x []T, lo, hi int) { LogSumExpGrad(dst, g, x, lse, cols, lo, hi) },
		},
	}
	for name, c := range cases {
		got := make([]T, rows*cols)
		c.f(got, c.up, c.save, 0, rows)
		requireNear(t, c.want, got, 2e-6, 1e-9, name)
		requireCutsAgree(t, rows, len(got), func(dst []T, lo, hi int) { c.f(dst, c.up, c.save, lo, hi) }, name)
		in := clone(c.save)
		c.f(in, c.up, in, 0, rows)
		requireSame(t, got, in, name+" in place of the saved tensor")
		if len(c.up) == len(got) {
			in = clone(c.up)
			c.f(in, in, c.save, 0, rows)
			requireSame(t, got, in, name+" in place of g")
		}
	}
}

// TestExpNear goes through the float32 numbers (many more in the long runs): the error stays below 1 ulp, small results are 0, large
// ones infinite, and nothing is denormal.
func TestExpNear(t *testing.T) {
	t.Parallel()
	step := uint32(10007)
	if reliability.Long(t) {
		step = 7
	}
	worst := 0.0
	for u := uint64(0); u < 1<<32; u += uint64(step) {
		x := math.Float32frombits(uint32(u))
		got, right := expNear(x), false
		switch want := math.Exp(float64(x)); {
		case x != x:
			right = got != got
		case x > 88:
			right = math.IsInf(float64(got), 1)
		case x < -87:
			right = got == 0
		default:
			right = got >= smallestNormal[float32]()
			worst = max(worst, ulpsApart(want, got))
		}
		if !right {
			require.Failf(t, "wrong", "of %v it is %v", x, got)
		}
	}
	t.Logf("largest error: %.3f ulp", worst)
	assert.Less(t, worst, 1.0)
}

func TestLongExpNear(t *testing.T) { reliability.AsLong(t, TestExpNear) }

package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

type unaryCase[T Float] struct {
	name string
	f    func(dst, x []T)
	want func(x float64) float64
	ulps float64 // bound on the error for T
}

func sigmoidNaive(x float64) float64 {
	if x < 0 {
		return math.Exp(x) / (1 + math.Exp(x))
	}
	return 1 / (1 + math.Exp(-x))
}

func geluTanhNaive(x float64) float64 {
	u := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
	return x / (1 + math.Exp(-2*u)) // no cancellation in the lower tail
}

func geluNaive(x float64) float64 { return 0.5 * x * math.Erfc(-x/math.Sqrt2) }

func unaryCases[T Float]() []unaryCase[T] {
	fast, gelu, geluTanh := 2.5, 100.0, 500.0 // in the lower tail the square of x is rounded, and its cube
	if !single[T]() {                         // and the naive formulas err, too
		fast, gelu = 3, 200
	}
	return []unaryCase[T]{
		{"Neg", Neg[T], func(x float64) float64 { return -x }, 0},
		{"Abs", Abs[T], math.Abs, 0},
		{"Exp", Exp[T], math.Exp, fast},
		{"Log", Log[T], math.Log, fast},
		{"Sqrt", Sqrt[T], math.Sqrt, 0.5},
		{"Square", Square[T], func(x float64) float64 { return x * x }, 0.5},
		{"Recip", Recip[T], func(x float64) float64 { return 1 / x }, 0.5},
		{"Sin", Sin[T], math.Sin, fast},
		{"Cos", Cos[T], math.Cos, fast},
		{"Tanh", Tanh[T], math.Tanh, fast},
		{"Sigmoid", Sigmoid[T], sigmoidNaive, fast},
		{"ReLU", ReLU[T], func(x float64) float64 { return max(x, 0) }, 0},
		{"GELU", GELU[T], geluNaive, gelu},
		{"GELUTanh", GELUTanh[T], geluTanhNaive, geluTanh},
		{"SiLU", SiLU[T], func(x float64) float64 { return x * sigmoidNaive(x) }, fast},
	}
}

func TestUnary(t *testing.T) { bothFloats(t, testUnary[float32], testUnary[float64]) }

func testUnary[T Float](t *testing.T) {
	for _, c := range unaryCases[T]() {
		for _, n := range testSizes {
			x := normals[T](n, 1)
			Affine(x, x, 3, 0.25)
			dst, want := make([]T, n), make([]float64, n)
			for i, v := range x {
				want[i] = c.want(float64(v))
			}
			c.f(dst, x)
			requireUlps(t, want, dst, c.ulps, c.name)
			c.f(x, x)
			requireSame(t, dst, x, c.name+" in place")
		}
	}
}

func TestUnarySpecial(t *testing.T) {
	bothFloats(t, testUnarySpecial[float32], testUnarySpecial[float64])
}

func testUnarySpecial[T Float](t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	zero := math.Copysign(0, -1)
	x := []float64{nan, inf, -inf, 0, zero, 1e30, -1e30}
	want := map[string][]float64{
		"Neg":      {nan, -inf, inf, zero, 0, -1e30, 1e30},
		"Abs":      {nan, inf, inf, 0, 0, 1e30, 1e30},
		"Exp":      {nan, inf, 0, 1, 1, inf, 0},
		"Log":      {nan, inf, nan, -inf, -inf, math.Log(1e30), nan},
		"Sqrt":     {nan, inf, nan, 0, zero, 1e15, nan},
		"Square":   {nan, inf, inf, 0, 0, 1e60, 1e60},
		"Recip":    {nan, 0, zero, inf, -inf, 1e-30, -1e-30},
		"Sin":      {nan, nan, nan, 0, zero},
		"Cos":      {nan, nan, nan, 1, 1},
		"Tanh":     {nan, 1, -1, 0, zero, 1, -1},
		"Sigmoid":  {nan, 1, 0, 0.5, 0.5, 1, 0},
		"ReLU":     {nan, inf, 0, 0, 0, 1e30, 0},
		"GELU":     {nan, inf, nan, 0, zero, 1e30, zero},
		"GELUTanh": {nan, inf, nan, 0, zero, 1e30, zero},
		"SiLU":     {nan, inf, nan, 0, zero, 1e30, zero},
	}
	for _, c := range unaryCases[T]() {
		for i, w := range want[c.name] {
			got := make([]T, 1)
			c.f(got, []T{T(x[i])})
			require.LessOrEqual(t, ulpsApart(w, got[0]), 4.0, "%s(%g): want %g, got %g", c.name, x[i], w, got[0])
			if w == 0 {
				assert.Equal(t, math.Signbit(w), math.Signbit(float64(got[0])), "%s(%g): sign of zero", c.name, x[i])
			}
		}
	}
}

// float32Bound is what doc.go states of a float32 function: its error is at most ulps(x) ulp, or at most tiny.
type float32Bound struct {
	name string
	f    func(dst, x []float32)
	want func(x float64) float64
	ulps func(x float64) float64
	tiny float64
}

func float32Bounds() []float32Bound {
	ones := filled[float32](1<<12, 1)
	one := filled[float64](1, 1)
	flat := func(n float64) func(float64) float64 { return func(float64) float64 { return n } }
	slope := func(f func(dst, g, x []float32)) func(dst, x []float32) {
		return func(dst, x []float32) { f(dst, ones[:len(x)], x) }
	}
	slope64 := func(f func(dst, g, x []float64)) func(float64) float64 {
		return func(x float64) float64 {
			y := []float64{x}
			f(y, one, y)
			return y[0]
		}
	}
	lower := func(x float64) float64 { return min(x, 0) }
	return []float32Bound{
		{"Exp", Exp[float32], math.Exp, flat(1), 0},
		{"Tanh", Tanh[float32], math.Tanh, flat(2.5), 0},
		{"Sigmoid", Sigmoid[float32], sigmoidNaive, flat(2.5), 1e-38},
		{"SiLU", SiLU[float32], func(x float64) float64 { return x * sigmoidNaive(x) }, flat(2.5), 1e-36},
		{"GELU", GELU[float32], geluNaive, func(x float64) float64 { return 8 + lower(x)*lower(x) }, 1e-37},
		{"GELUTanh", GELUTanh[float32], geluTanhNaive, func(x float64) float64 {
			return 5 - 4*lower(x) - 0.25*lower(x)*lower(x)*lower(x)
		}, 1e-37},
		{"SiLUGrad", slope(SiLUGrad[float32]), slope64(SiLUGrad[float64]), flat(0), 3e-7},
		{"GELUGrad", slope(GELUGrad[float32]), slope64(GELUGrad[float64]), flat(0), 3e-7},
		{"GELUTanhGrad", slope(GELUTanhGrad[float32]), slope64(GELUTanhGrad[float64]), flat(0), 3e-7},
	}
}

// TestFloat32Error goes through the float32 numbers (many more in the long runs) and checks these bounds.
func TestFloat32Error(t *testing.T) {
	step := uint32(9973)
	if reliability.Long(t) {
		step = 17
	}
	x, y := make([]float32, 1<<12), make([]float32, 1<<12)
	for _, c := range float32Bounds() {
		worst, share, at := 0.0, 0.0, float32(0)
		for u := uint64(0); u < 1<<32; u += uint64(len(x)) * uint64(step) {
			for i := range x {
				x[i] = math.Float32frombits(uint32(u) + uint32(i)*step)
			}
			c.f(y, x)
			for i, v := range x {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), -1) {
					continue
				}
				want := c.want(float64(v))
				if math.Abs(want-float64(y[i])) <= c.tiny {
					continue
				}
				d := ulpsApart(want, y[i])
				worst = max(worst, d)
				if s := d / c.ulps(float64(v)); s > share {
					share, at = s, v
				}
			}
		}
		assert.LessOrEqual(t, share, 1.0, "%s at %g", c.name, at)
		t.Logf("%s: at most %.3f ulp, %.3f of the bound at %g", c.name, worst, share, at)
	}
}

func TestLongFloat32Error(t *testing.T) { reliability.AsLong(t, TestFloat32Error) }

func TestAffineFill(t *testing.T) { bothFloats(t, testAffine[float32], testAffine[float64]) }

func testAffine[T Float](t *testing.T) {
	for _, n := range testSizes {
		x, affine := normals[T](n, 1), make([]T, n)
		Affine(affine, x, 3, 0.1)
		for i := range x {
			p := T(T(3) * x[i])
			require.Equal(t, p+T(0.1), affine[i])
		}
		Fill(x, 2)
		for _, v := range x {
			require.Equal(t, T(2), v)
		}
	}
}

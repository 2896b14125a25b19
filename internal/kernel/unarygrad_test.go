package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

type gradCase[T Float] struct {
	name     string
	f        func(dst, x []T)
	grad     func(dst, g, xy []T)
	output   bool // grad takes the output of f
	positive bool // defined for x > 0
}

func gradCases[T Float]() []gradCase[T] {
	return []gradCase[T]{
		{"Exp", Exp[T], Mul[T], true, false},
		{"Log", Log[T], Div[T], false, true},
		{"Sqrt", Sqrt[T], SqrtGrad[T], true, true},
		{"Square", Square[T], SquareGrad[T], false, false},
		{"Recip", Recip[T], RecipGrad[T], true, true},
		{"Abs", Abs[T], AbsGrad[T], false, false},
		{"Sin", Sin[T], SinGrad[T], false, false},
		{"Cos", Cos[T], CosGrad[T], false, false},
		{"Tanh", Tanh[T], TanhGrad[T], true, false},
		{"Sigmoid", Sigmoid[T], SigmoidGrad[T], true, false},
		{"ReLU", ReLU[T], ReLUGrad[T], true, false},
		{"GELU", GELU[T], GELUGrad[T], false, false},
		{"GELUTanh", GELUTanh[T], GELUTanhGrad[T], false, false},
		{"SiLU", SiLU[T], SiLUGrad[T], false, false},
	}
}

// TestUnaryGrad compares the gradients with central differences in float64, and float32 with float64.
func TestUnaryGrad(t *testing.T) {
	single := gradCases[float32]()
	for k, c := range gradCases[float64]() {
		for _, n := range testSizes {
			x32 := normals[float32](n, 3)
			for i := range x32 {
				x32[i] += float32(math.Copysign(0.1, float64(x32[i]))) // away from kinks and poles
				if c.positive {
					x32[i] = float32(math.Abs(float64(x32[i])))
				}
			}
			g32 := normals[float32](n, 4)
			x, g := float64s(x32), float64s(g32)
			want := make([]float64, n)
			for i := range x {
				const h = 1e-5
				y := make([]float64, 2)
				c.f(y, []float64{x[i] + h, x[i] - h})
				want[i] = g[i] * (y[0] - y[1]) / (2 * h)
			}
			got := runGrad(t, c, g, x)
			requireNear(t, want, got, 0, 2e-7, c.name)
			requireNear(t, got, runGrad(t, single[k], g32, x32), 1e-6, 0, c.name+" float32")
		}
	}
}

// runGrad returns the gradient and checks that it may be computed in place of either argument.
func runGrad[T Float](t *testing.T, c gradCase[T], g, x []T) []T {
	xy, dst := clone(x), make([]T, len(x))
	if c.output {
		c.f(xy, x)
	}
	c.grad(dst, g, xy)
	inG, inX := clone(g), clone(xy)
	c.grad(inG, inG, xy)
	c.grad(inX, g, inX)
	requireSame(t, dst, inG, c.name+" in place of g")
	requireSame(t, dst, inX, c.name+" in place of x")
	return dst
}

func TestGradSpecial(t *testing.T) {
	nan := math.NaN()
	edges := []float64{-20, -700} // where the slopes of GELUTanh and SiLU end
	GELUTanhGrad(edges[:1], []float64{5}, edges[:1])
	SiLUGrad(edges[1:], []float64{5}, edges[1:])
	require.InDeltaSlice(t, []float64{0, 0}, edges, 1e-250)
	x := []float64{-2, math.Copysign(0, -1), 0, 3, nan}
	cases := []struct {
		name string
		grad func(dst, g, x []float64)
		x    []float64
		want []float64
	}{
		{"Abs", AbsGrad[float64], x, []float64{-5, 0, 0, 5, nan}},
		{"ReLU", ReLUGrad[float64], x, []float64{0, 0, 0, 5, 5}},
		{"GELUTanh", GELUTanhGrad[float64], []float64{-1e200, 1e200, nan}, []float64{edges[0], 5, nan}},
		{"SiLU", SiLUGrad[float64], []float64{-1e200, 1e200, nan}, []float64{edges[1], 5, nan}},
		{"GELU", GELUGrad[float64], []float64{-1e100, 1e100, nan}, []float64{0, 5, nan}},
	}
	for _, c := range cases {
		dst, g := make([]float64, len(c.x)), make([]float64, len(c.x))
		Fill(g, 5)
		c.grad(dst, g, c.x)
		requireSame(t, c.want, dst, c.name)
	}
	require.Panics(t, func() { ReLUGrad(make([]float64, 3), make([]float64, 2), make([]float64, 3)) })
}

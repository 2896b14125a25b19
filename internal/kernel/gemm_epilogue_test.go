package kernel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var activations = []Activation{NoActivation, ActReLU, ActGELU, ActGELUTanh, ActSiLU}

// fused gives the case a From (none, a bias, a matrix), an activation and its own
// output, depending on i.
func (c *gemmCase[T]) fused(i int) {
	c.g.Beta = 0
	if i%3 == 1 {
		c.from, c.g.From, _ = c.matrix(false, 1, c.g.N, 0)
	} else if i%3 == 2 {
		c.from, c.g.From, c.g.LDFrom = c.matrix(false, c.g.M, c.g.N, i%2)
	}
	c.g.Act = activations[i/3%5]
	if i/15%2 == 1 {
		c.out, c.g.Out, _ = c.matrix(false, c.g.M, c.g.N, c.g.LDC-c.g.N)
	}
}

// separate computes C and Out of g with one operation after the other.
func separate[T Float](e *testEngine[T], c *gemmCase[T]) (sum, out []T) {
	g, sum := c.withC()
	out = append([]T(nil), c.out...)
	if g.From != nil {
		for i := range g.M {
			copy(g.C[i*g.LDC:i*g.LDC+g.N], g.From[i*g.LDFrom:])
		}
		g.Beta = 1
	}
	g.From, g.Act, g.Out = nil, NoActivation, nil
	e.block(&g, e.workspaceOf(0), 0, g.M, 0, g.N)
	if c.g.Act == NoActivation {
		return sum, out
	}
	dst := g.C
	if out != nil {
		dst = inner(out)
	}
	for i := range g.M {
		row := g.C[i*g.LDC : i*g.LDC+g.N]
		Activate(c.g.Act, dst[i*g.LDC:i*g.LDC+g.N], row)
	}
	return sum, out
}

// Fused operations have the bits of separate ones, however C is cut.
func TestGemmEpilogue(t *testing.T) {
	onEveryISA(t, gemmEpilogue[float32], gemmEpilogue[float64])
}

func gemmEpilogue[T Float](t *testing.T, e *testEngine[T]) {
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range many(t, 60, 120) {
		tr := transposes[i%4]
		s := [][3]int{{1 + rng.IntN(60), 1 + rng.IntN(90), rng.IntN(50)}, {e.mc + 7, finishColumns*e.cols + 9, 5}, {9, 40, e.kc + 3},
			{17, 10, e.kc + 9}}[[7]int{0, 3, 1, 0, 2, 3, 0}[i%7]]
		c := newCase[T](uint64(i), tr[0], tr[1], s[0], s[1], s[2], i%2).real()
		c.fused(i)
		sum, out := separate(e, c)
		got, gotOut := c.runFused(t, e, []int{0, s[0]}, []int{0, s[1]})
		requireSameBits(t, sum, got, caseName(c), i)
		requireSameBits(t, out, gotOut, caseName(c), i)
		got, gotOut = c.runFused(t, e, randomCuts(rng, s[0]), randomCuts(rng, s[1]))
		requireSameBits(t, sum, got, caseName(c), "cut", i)
		requireSameBits(t, out, gotOut, caseName(c), "cut", i)
	}
}

// runFused returns C and Out with their guards, computed block by block.
func (c *gemmCase[T]) runFused(t *testing.T, e *testEngine[T], rows, cols []int) (sum, out []T) {
	t.Helper()
	g, sum := c.withC()
	if c.out != nil {
		out = append([]T(nil), c.out...)
		g.Out = inner(out)
	}
	for i := range len(rows) - 1 {
		for j := range len(cols) - 1 {
			e.block(&g, e.workspaceOf(0), rows[i], rows[i+1], cols[j], cols[j+1])
		}
	}
	e.requireGuards(t)
	return sum, out
}

// The reference gives the same for exact numbers.
func TestRefGemmEpilogue(t *testing.T) {
	e := &testEngine[float64]{engine: isas[len(isas)-1].gemm64}
	for i := range 30 {
		c := newCase[float64](uint64(i), false, true, 5, 9, 3, 2)
		c.fused(i)
		sum, out := separate(e, c)
		g, buf := c.withC()
		if c.out != nil {
			g.Out = inner(append([]float64(nil), c.out...))
		}
		RefGemm(&g)
		requireSameBits(t, sum, buf)
		if c.out != nil {
			requireSameBits(t, inner(out), g.Out)
		}
	}
}

func TestGemmRefusesWrongEpilogue(t *testing.T) {
	ws := make([]float32, WorkspaceLen[float32]())
	for name, change := range map[string]func(g *Gemm[float32]){
		"Out is 3 x 4":       func(g *Gemm[float32]) { g.Out = g.C[1:] },
		"From is 1 x 4":      func(g *Gemm[float32]) { g.From = g.C[:3] },
		"From is 3 x 4":      func(g *Gemm[float32]) { g.From, g.LDFrom = g.C[:10], 4 },
		"both From and Beta": func(g *Gemm[float32]) { g.From, g.Beta = g.C, 1 },
	} {
		g := newCase[float32](1, false, false, 3, 4, 5, 0).g
		change(&g)
		assert.Contains(t, panicText(func() { GemmBlock(&g, ws, 0, 3, 0, 4) }), name)
	}
}

func TestActivateGradColSum(t *testing.T) {
	for _, s := range isas {
		withISA(s, func() { testGradColSum[float32](t); testGradColSum[float64](t) })
	}
}

func testGradColSum[T Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 30 {
		act := activations[i%5]
		rows, cols := []int{1, 7, 150}[i%3], 1+rng.IntN(600)
		c := newCase[T](uint64(i), false, false, rows, cols, 1, 0).real()
		g, s := inner(c.c), append([]T(nil), inner(c.c)...)
		rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
		want, sums := make([]T, rows*cols), make([]T, cols)
		for r := range rows {
			activateGrad(act, want[r*cols:(r+1)*cols], g[r*cols:], s[r*cols:])
		}
		ColSum(sums, want, rows, cols, cols, 0, cols, false)
		got, gotSums := make([]T, rows*cols), filled(cols, T(7))
		cut := rng.IntN(cols + 1)
		ActivateGradColSum(act, gotSums, got, g, s, rows, cols, cut, cols)
		ActivateGradColSum(act, gotSums, got, g, s, rows, cols, 0, cut)
		requireSameBits(t, want, got, act)
		requireSameBits(t, sums, gotSums, act)
		ActivateGradColSum(act, nil, s, g, s, rows, cols, 0, cols) // in place
		requireSameBits(t, want, s, act)
	}
	require.True(t, ActGELU.NeedsInput() && !ActReLU.NeedsInput())
}

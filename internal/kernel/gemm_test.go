package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestGemmExact(t *testing.T) {
	onEveryISA(t, gemmExact[float32], gemmExact[float64])
}

// gemmExact compares the bits of small shapes with RefGemm, including guards. The
// numbers are integers, so there are no rounding errors.
func gemmExact[T Float](t *testing.T, e *testEngine[T]) {
	rng := rand.New(rand.NewPCG(7, 7))
	size := func() int { return 1 + rng.IntN(70) }
	scale := []T{0, 1, 0.5}
	for i := range many(t, 108, 324) {
		tr, pad := transposes[i%4], i%3*5
		c := newCase[T](uint64(i), tr[0], tr[1], size(), size(), size(), pad)
		c.g.Alpha, c.g.Beta = scale[i/4%3], scale[i/12%3]
		requireSameBits(t, c.reference(), c.run(t, e), caseName(c))
	}
}

func TestLongGemm(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for name, test := range map[string]func(t *testing.T){
		"Exact": TestGemmExact, "Blocks": TestGemmBlocks, "Rounding": TestGemmRounding, "Partition": TestGemmPartition,
		"Turned": TestGemmTurned, "CallsAreShort": TestGemmAssemblyCallsAreShort, "Epilogue": TestGemmEpilogue,
		"FewColumns": TestGemmFewColumns,
	} {
		t.Run(name, test)
	}
}

func caseName[T Float](c *gemmCase[T]) string {
	g := c.g
	return fmt.Sprintf("%s %dx%dx%d alpha %v beta %v strides %d %d %d",
		transName(g.TransA, g.TransB), g.M, g.N, g.K, g.Alpha, g.Beta, g.LDA, g.LDB, g.LDC)
}

// Every height and width of a micro-tile, with one and several turns of k.
func TestGemmEveryTile(t *testing.T) {
	onEveryISA(t, gemmEveryTile[float32], gemmEveryTile[float64])
}

func gemmEveryTile[T Float](t *testing.T, e *testEngine[T]) {
	for m := 1; m <= e.rows; m++ {
		for n := 1; n <= e.cols; n++ {
			k := 1 + (5*m+n)%19
			c := newCase[T](uint64(m*100+n), false, n%2 == 0, m, n, k, n%3)
			c.g.Beta = T(m % 2)
			requireSameBits(t, c.reference(), c.run(t, e), caseName(c))
		}
	}
}

// Products with few columns, which may be computed as dot products: every remainder
// of rows, columns and K, also in parts.
func TestGemmFewColumns(t *testing.T) {
	onEveryISA(t, gemmFewColumns[float32], gemmFewColumns[float64])
}

func gemmFewColumns[T Float](t *testing.T, e *testEngine[T]) {
	for n := 1; n <= 16; n++ {
		if single[T]() != (n%2 == 0) && !reliability.Long(t) {
			continue
		}
		for m := 1; m <= 11; m += 1 + n%3 {
			c := newCase[T](uint64(m*100+n), false, true, m, n, dotLeast+(3*m+n)%35, m%2*3)
			c.g.Alpha, c.g.Beta = 0.5, []T{0, 1, 0.5}[n%3]
			requireSameBits(t, c.reference(), c.run(t, e), caseName(c))
			c.real()
			want := c.run(t, e)
			requireSameBits(t, want, runCut(t, c, e, randomCuts(c.rng, m), randomCuts(c.rng, n)), caseName(c))
		}
	}
}

// Shapes as large as the blocks and larger: K, rows in L2 and columns in L3.
func TestGemmBlocks(t *testing.T) {
	onEveryISA(t, gemmBlocks[float32], gemmBlocks[float64])
}

func gemmBlocks[T Float](t *testing.T, e *testEngine[T]) {
	for i, s := range [][3]int{
		{e.mc, 5, e.kc}, {e.mc + 21, 67, 30}, {29, e.nc + 35, 20},
		{31, 45, 2*e.kc + 7}, {2*e.mc + 1, e.cols + 1, 40}, {e.mc + 1, 3, e.kc + 1},
	} {
		for v, tr := range transposes {
			if later(t, i/2+v, 2) {
				continue
			}
			c := newCase[T](uint64(i), tr[0], tr[1], s[0], s[1], s[2], 3)
			c.g.Alpha, c.g.Beta = 0.5, T(i%2)
			requireSameBits(t, c.reference(), c.run(t, e), caseName(c))
		}
	}
}

func TestGemmRounding(t *testing.T) {
	onEveryISA(t, gemmRounding[float32], gemmRounding[float64])
}

// gemmRounding compares real numbers of random sign. Partial sums of k products
// below 1 stay near sqrt(k). Each of the k additions, in either result, has an
// error of at most eps times that.
func gemmRounding[T Float](t *testing.T, e *testEngine[T]) {
	eps := 0x1p-24
	if !single[T]() {
		eps = 0x1p-53
	}
	for i, k := range []int{1, 2, 17, 100, 431, 1030} {
		for v, tr := range transposes {
			if later(t, i+v, 2) {
				continue
			}
			c := newCase[T](uint64(i), tr[0], tr[1], 15, 37, k, i).real()
			c.g.Alpha, c.g.Beta = 0.3, 0.7
			want, got := c.reference(), c.run(t, e)
			tol := 2 * eps * float64(k+4) * math.Sqrt(float64(k+4))
			for p := range want {
				require.InDelta(t, float64(want[p]), float64(got[p]), tol, caseName(c))
			}
		}
	}
}

func TestGemmIgnoresCWithBetaZero(t *testing.T) {
	onEveryISA(t, gemmIgnoresC[float32], gemmIgnoresC[float64])
}

func gemmIgnoresC[T Float](t *testing.T, e *testEngine[T]) {
	for i, s := range [][3]int{{1, 1, 1}, {17, 35, 9}, {30, 70, 2*e.kc + 1}, {5, 7, 0}} {
		c := newCase[T](uint64(i), false, true, s[0], s[1], s[2], 2)
		want := c.reference()
		copy(c.c, filled(len(c.c), T(math.NaN())))
		got := c.run(t, e)
		for p := range got {
			row, col := (p-guard)/c.g.LDC, (p-guard)%c.g.LDC
			if p < guard || row >= s[0] || col >= s[1] {
				require.True(t, isNaN(got[p]), "wrote outside C at %d", p-guard)
			} else {
				require.Equal(t, want[p], got[p], caseName(c))
			}
		}
	}
}

func TestGemmPropagatesNaNAndInf(t *testing.T) {
	onEveryISA(t, gemmPropagates[float32], gemmPropagates[float64])
}

func gemmPropagates[T Float](t *testing.T, e *testEngine[T]) {
	nan, inf := T(math.NaN()), T(math.Inf(1))
	for i := range 120 {
		tr := transposes[i%4]
		c := newCase[T](uint64(i), tr[0], tr[1], 1+i%37, 1+i%41, 1+i%23, 0)
		for _, v := range [][]T{{nan}, {inf}, {inf, -inf}, {-inf, nan}}[i/4%4] {
			x := c.g.A
			if i/16%2 == 1 {
				x = c.g.B
			}
			x[c.rng.IntN(len(x))] = v
		}
		want := c.reference()
		require.NotEqual(t, 0, countNonFinite(inner(want)), "the case tests nothing")
		requireSameBits(t, want, c.run(t, e), caseName(c))
	}
}

func countNonFinite[T Float](x []T) (n int) {
	for _, v := range x {
		if v-v != 0 {
			n++
		}
	}
	return n
}

// If Alpha or K is zero, A and B are not read and may be nil.
func TestGemmDegenerate(t *testing.T) {
	onEveryISA(t, gemmDegenerate[float32], gemmDegenerate[float64])
}

func gemmDegenerate[T Float](t *testing.T, e *testEngine[T]) {
	for _, s := range [][3]int{{0, 5, 3}, {5, 0, 3}, {0, 0, 0}, {5, 40, 0}} {
		for _, beta := range []T{0, 1, 0.5} {
			c := newCase[T](1, false, false, s[0], s[1], s[2], 1)
			c.g.Beta = beta
			want, got := c.reference(), c.run(t, e)
			requireSameBits(t, want, got, caseName(c))
			for i := range s[0] {
				for j := range s[1] {
					p := guard + i*c.g.LDC + j
					require.Equal(t, beta*c.c[p], got[p])
				}
			}
		}
	}
	c := newCase[T](1, false, false, 9, 9, 9, 1)
	c.g.Alpha, c.g.Beta = 0, 0.5
	for i := range c.g.A {
		c.g.A[i] = T(math.NaN())
	}
	got := c.run(t, e)
	assert.Zero(t, countNonFinite(got))
	requireSameBits(t, c.reference(), got)
}

func TestGemmRefusesWrongSlices(t *testing.T) {
	ws := make([]float32, WorkspaceLen[float32]())
	for name, change := range map[string]func(g *Gemm[float32]){
		"A is 3 x 5":  func(g *Gemm[float32]) { g.A = g.A[:14] },
		"B is 5 x 4":  func(g *Gemm[float32]) { g.B = nil },
		"C is 3 x 4":  func(g *Gemm[float32]) { g.C = g.C[1:] },
		"A is 5 x 3":  func(g *Gemm[float32]) { g.TransA, g.LDA = true, 2 },
		"B is 5 x -4": func(g *Gemm[float32]) { g.N = -4 },
	} {
		g := newCase[float32](1, false, false, 3, 4, 5, 0).g
		change(&g)
		assert.Contains(t, panicText(func() { GemmBlock(&g, ws, 0, 3, 0, 4) }), name)
		assert.Contains(t, panicText(func() { RefGemm(&g) }), name)
	}
	g := newCase[float32](1, false, false, 3, 4, 5, 0).g
	assert.Contains(t, panicText(func() { GemmBlock(&g, ws[1:], 0, 3, 0, 4) }), "workspace of")
	assert.Contains(t, panicText(func() { GemmBlock(&g, ws, 0, 4, 0, 4) }), "rows [0, 4)")
	assert.Contains(t, panicText(func() { GemmBlock(&g, ws, 0, 3, -1, 4) }), "columns [-1, 4)")
}

func panicText(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return ""
}

type celsius float64

func TestGemmOfNamedType(t *testing.T) {
	c := newCase[celsius](3, false, true, 20, 30, 40, 1)
	g, buf := c.withC()
	GemmBlock(&g, make([]celsius, WorkspaceLen[celsius]()), 0, g.M, 0, g.N)
	requireSameBits(t, c.reference(), buf)
}

func TestGemmDoesNotAllocate(t *testing.T) {
	c := newCase[float32](3, false, true, 20, 30, 40, 1)
	ws := make([]float32, WorkspaceLen[float32]())
	assert.Zero(t, testing.AllocsPerRun(20, func() {
		g := Gemm[float32]{TransB: true, M: 20, N: 30, K: 40, Alpha: 1, A: c.g.A, LDA: c.g.LDA, B: c.g.B, LDB: c.g.LDB, C: c.g.C, LDC: c.g.LDC}
		GemmBlock(&g, ws, 0, g.M, 0, g.N)
	}))
}

package kernel

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Few rows of A: every length around a turn, columns around a call, everything that
// can be added, and all cuts.
func TestFewRows(t *testing.T) { onEveryISA(t, testFewRows[float32], testFewRows[float64]) }

func testFewRows[T Float](t *testing.T, e *testEngine[T]) {
	for k := fewRowsLeast - 1; k <= fewRowsLeast+33; k++ {
		m, n := 1+k%(fewRows+1), 1+k%19
		c := newCase[T](uint64(k), false, true, m, n, k, k%3)
		c.g.Alpha, c.g.Beta = T(1+k/4%2), T(k%3)
		requireSameBits(t, c.reference(), c.run(t, e), caseName(c))
		c.real()
		requireSameBits(t, c.run(t, e), runCut(t, c, e, randomCuts(c.rng, m), randomCuts(c.rng, n)), caseName(c))
		if k%2 == 0 {
			c.g.Beta, c.g.From, c.g.LDFrom, c.g.Act = 0, make([]T, n*m), n*(k/2%2), ActReLU
			for i := range c.g.From {
				c.g.From[i] = T(i%5) - 2
			}
			assert.InDeltaSlice(t, c.reference(), c.run(t, e), 1e-4, caseName(c))
		}
	}
	long := newCase[T](1, false, true, 2, 5, 2*dotTurns*dotVectors*dotLanes+7, 0)
	requireSameBits(t, long.reference(), long.run(t, e), "several calls a row")
}

func TestFewRowsBF16(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		for k := fewRowsLeast - 1; k <= fewRowsLeast+33; k++ {
			c := newBF16(uint64(k), false, true, 1+k%(fewRows+1), 1+k%19, k, k%3, k%2 == 0, smallInt).withBias(smallInt)
			c.g.Beta = float32(k % 3)
			requireSameBits(t, c.reference(), c.run(t, e), c)
		}
		long := newBF16(1, false, true, 2, 5, 2*dotTurns*dotVectors*dotLanes+7, 0, true, smallInt)
		requireSameBits(t, long.reference(), long.run(t, e), long)
	})
}

// Few rows of A have the bits of the reference: with each remainder of K, columns
// around a tile and a call, any numbers, and all cuts.
func TestFewRowsBF16HaveTheBitsOfTheReference(t *testing.T) {
	anything := func(r *rand.Rand) float32 { return BF16(r.Uint32()).Float32() }
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		if e.dotsOfPairs == nil {
			return
		}
		ws := make([]float32, e.workspace())
		for i := range 2 * (2*pairLanes + 3) {
			value := []func(r *rand.Rand) float32{realNumber, anything, smallInt, realNumber}[i%4]
			m, n, k := 1+i%fewRows, 1+i*37%(2*pairColumns+3), fewRowsLeast+i%(2*pairLanes+3)+2*pairLanes*(i%3)
			c := newBF16(uint64(i), false, true, m, n, k, i%5, i/3%2 == 0, value).withBias(value)
			c.g.Alpha, c.g.Beta = 1-float32(i/2%3)/2, float32(i/7%3)/2
			want := c.reference()
			requireSameBits(t, want, c.run(t, e), c)
			requireSameBits(t, want, c.result(func(g *GemmBF16) {
				row, column := m/2, min(n, e.cols+3)
				e.block(g, ws, 0, row, 0, n)
				e.block(g, ws, row, m, 0, column)
				e.block(g, ws, row, m, column, n)
			}), "cut", c)
		}
	})
}

// Lengths with which fewer and fewer rows fit in a call, and rows that are too long
// for one. See TestGemmAssemblyCallsAreShort for the limit of a call.
func TestFewRowsBF16OfAnyLength(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		if e.dotsOfPairs == nil {
			return
		}
		watched, calls := *e, 0
		watched.dotsOfPairs = func(h, rows, k int, a []BF16, as int, b []BF16, bs int, sums []float32) {
			calls++
			assert.True(t, h*rows*k <= pairWork || rows == 1, "%d x %d x %d in a call", h, rows, k)
			e.dotsOfPairs(h, rows, k, a, as, b, bs, sums)
		}
		for _, k := range []int{pairWork / fewRows / pairColumns, pairWork/fewRows/3 + 1, pairWork/fewRows + 3, keptB / fewRows, keptB/fewRows + 1} {
			c := newBF16(uint64(k), false, true, fewRows, 3, k, 0, true, func(*rand.Rand) float32 { return 1 })
			calls = 0
			requireSameBits(t, filled(fewRows*3, float32(k)), inner(c.run(t, &watched)), c)
			assert.Equal(t, fewRows*k <= keptB, calls > 0, k)
		}
	})
}

func TestFewRowsAllocateNothing(t *testing.T) {
	ws := make([]float32, max(WorkspaceLen[float32](), GemmBF16Workspace()))
	g := newCase[float32](1, false, true, 1, 9, 100, 0).g
	half := newBF16(1, false, true, 1, 40, 100, 0, false, smallInt).g
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		GemmBlock(&g, ws, 0, 1, 0, 9)
		GemmBF16Block(&half, ws, 0, 1, 0, 40)
	}))
}

// BenchmarkFewRows is the head of GPT-2 for one token. Its speed is that of reading
// B.
func BenchmarkFewRows(b *testing.B) {
	const n, k = 50257, 768
	ws := make([]float32, max(WorkspaceLen[float32](), GemmBF16Workspace()))
	best := func(b *testing.B, bytes int, f func()) {
		least := time.Hour
		for b.Loop() {
			start := time.Now()
			f()
			least = min(least, time.Since(start))
		}
		b.ReportMetric(float64(bytes)/float64(least), "GB/s")
	}
	b.Run("float32", func(b *testing.B) {
		g := &Gemm[float32]{TransB: true, M: 1, N: n, K: k, Alpha: 1, A: make([]float32, k), LDA: k, B: make([]float32, n*k), LDB: k, C: make([]float32, n), LDC: n}
		for i := range g.B {
			g.B[i] = float32(i % 7)
		}
		best(b, 4*n*k, func() { GemmBlock(g, ws, 0, 1, 0, n) })
	})
	b.Run("bfloat16", func(b *testing.B) {
		g := &GemmBF16{TransB: true, M: 1, N: n, K: k, Alpha: 1, A: make([]BF16, k), LDA: k, B: make([]BF16, n*k), LDB: k, H: make([]BF16, n), LDC: n}
		for i := range g.B {
			g.B[i] = ToBF16(float32(i % 7))
		}
		best(b, 2*n*k, func() { GemmBF16Block(g, ws, 0, 1, 0, n) })
	})
}

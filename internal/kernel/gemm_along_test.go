package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// randomRows is a range of rows of m: often one.
func randomRows(rng *rand.Rand, m int) (lo, hi int) {
	lo = rng.IntN(m)
	return lo, min(m, lo+1+rng.IntN(2)*rng.IntN(fewRows+2))
}

// Rows have the same bits in every product that they are part of, alone too, and
// however its result is cut.
func TestRowsHaveTheBitsOfTheBatch(t *testing.T) {
	onEveryISA(t, testRowsOfBatch[float32], testRowsOfBatch[float64])
}

func testRowsOfBatch[T Float](t *testing.T, e *testEngine[T]) {
	rng := rand.New(rand.NewPCG(5, 1))
	for i := range 90 {
		tr := transposes[[]int{1, 1, 1, 0, 2, 3}[i%6]]
		m, n, k := fewRows+1+rng.IntN(2*fewRows), 1+rng.IntN(70), 1+rng.IntN(100)
		if i%4 == 1 {
			k += e.kc * rng.IntN(3)
		}
		c := newCase[T](uint64(i), tr[0], tr[1], m, n, k, rng.IntN(3)).real()
		c.g.Alpha, c.g.Beta = []T{1, 0.3}[rng.IntN(2)], []T{0, 1, 0.7}[rng.IntN(3)]
		if i%5 < 2 {
			c.fused(rng.IntN(30))
		}
		want, wantOut := c.runFused(t, e, []int{0, m}, []int{0, n})
		for range 3 {
			lo, hi := randomRows(rng, m)
			got, gotOut := c.rows(lo, hi).runFused(t, e, randomCuts(rng, hi-lo), randomCuts(rng, n))
			at, end := lo*c.g.LDC, (hi-1)*c.g.LDC+n
			requireSameBits(t, inner(want)[at:end], inner(got), caseName(c), lo, hi)
			if wantOut != nil {
				requireSameBits(t, inner(wantOut)[at:end], inner(gotOut), caseName(c), lo, hi)
			}
		}
	}
}

// rows is the product of rows [lo, hi) alone.
func (c *gemmCase[T]) rows(lo, hi int) *gemmCase[T] {
	r := *c
	g := &r.g
	g.M = hi - lo
	if g.TransA {
		g.A = g.A[lo:]
	} else {
		g.A = g.A[lo*g.LDA:]
	}
	g.From = g.From[lo*g.LDFrom:]
	part := func(buf []T) []T { return buf[lo*g.LDC : (hi-1)*g.LDC+g.N+2*guard] }
	if r.c = part(c.c); c.out != nil {
		r.out = part(c.out)
	}
	return &r
}

func TestRowsHaveTheBitsOfTheBatchBF16(t *testing.T) {
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		rng, ws := rand.New(rand.NewPCG(5, 2)), make([]float32, e.workspace())
		for i := range 60 {
			tr := transposes[[]int{1, 1, 1, 0, 2, 3}[i%6]]
			m, n, k := fewRows+1+rng.IntN(fewRows), 1+rng.IntN(50), 1+rng.IntN(70)
			if i%6 == 1 {
				m, n, k = fewRows+1, 16+rng.IntN(8), e.pair*e.kc+k
			}
			c := newBF16(uint64(i), tr[0], tr[1], m, n, k, rng.IntN(3), i%2 == 0, realNumber).withBias(realNumber)
			c.g.Alpha, c.g.Beta = []float32{1, 0.3}[rng.IntN(2)], []float32{0, 1, 0.7}[rng.IntN(3)]
			want := c.run(t, e)
			for range 3 {
				lo, hi := randomRows(rng, m)
				cuts := randomCuts(rng, n)
				got := c.result(func(g *GemmBF16) {
					part := rowsOfBF16(*g, lo, hi)
					for j := range len(cuts) - 1 {
						e.block(&part, ws, 0, hi-lo, cuts[j], cuts[j+1])
					}
				})
				at, end := guard+lo*c.g.LDC, guard+(hi-1)*c.g.LDC+n
				requireSameBits(t, want[at:end], got[at:end], c, lo, hi)
			}
		}
	})
}

// rowsOfBF16 is the product of rows [lo, hi) of g alone.
func rowsOfBF16(g GemmBF16, lo, hi int) GemmBF16 {
	g.M = hi - lo
	if g.TransA {
		g.A = g.A[lo:]
	} else {
		g.A = g.A[lo*g.LDA:]
	}
	if g.H != nil {
		g.H = g.H[lo*g.LDC:]
	} else {
		g.C = g.C[lo*g.LDC:]
	}
	return g
}

// The kernels for few rows have the bits of the others: every number of rows, each
// remainder of K and of columns, several blocks of K, and any numbers.
func TestFewRows(t *testing.T) { onEveryISA(t, testFewRows[float32], testFewRows[float64]) }

func testFewRows[T Float](t *testing.T, e *testEngine[T]) {
	if e.along == nil {
		return
	}
	packing := &testEngine[T]{engine: new(engine[T])}
	*packing.engine = *e.engine
	packing.along = nil
	for i := range 12 * fewRows {
		m, n, k := 1+i%fewRows, e.cols+i%19, alongLeast+i%(2*e.lanes)+i%3*i%5*e.kc/2
		c := newCase[T](uint64(i), false, true, m, n, k, i%3).real()
		c.g.Alpha, c.g.Beta = T(2-i/4%2), T(i%3)/2
		if i%7 == 0 {
			c.a[guard+c.rng.IntN(len(c.g.A))] = T(math.Inf(1))
			c.b[guard+c.rng.IntN(len(c.g.B))] = T(math.NaN())
		}
		p := gemmPass[T]{engine: e.engine, i1: m}
		require.True(t, p.alongPays(&c.g), caseName(c))
		requireSameBits(t, c.run(t, packing), c.run(t, e), caseName(c))
	}
}

func TestFewRowsBF16(t *testing.T) {
	anything := func(r *rand.Rand) float32 { return BF16(r.Uint32()).Float32() }
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		if e.along == nil {
			return
		}
		packing := *e
		packing.along = nil
		ws, nan := make([]float32, e.workspace()), filled(1<<13, float32(math.NaN()))
		for i := range 12 * fewRows {
			value := []func(r *rand.Rand) float32{realNumber, anything, realNumber}[i/2%3]
			m, n, k := 1+i%fewRows, e.cols+i*37%(2*e.cols+3), alongLeast+i%(2*e.pair*e.lanes+1)+i%3*i%5*e.kc/2
			c := newBF16(uint64(i), false, true, m, n, k, i%5, i/3%2 == 0, value).withBias(value)
			c.g.Alpha, c.g.Beta = 1-float32(i/2%3)/2, float32(i/7%3)/2
			require.True(t, e.alongPays(&c.g, m), c)
			if i/2%3 == 2 {
				c.g.Alpha = 1
			}
			if i%7 == 0 {
				c.g.Bias = nil
			}
			got := c.result(func(g *GemmBF16) {
				copy(ws, nan)
				e.block(g, ws, 0, m, 0, n)
			})
			requireSameBits(t, c.run(t, &packing), got, c)
		}
		g := GemmBF16{TransB: true, M: 1, N: e.cols, K: e.pair * keptB}
		require.True(t, e.alongPays(&g, 1))
		require.False(t, e.alongPays(&g, 2), "A has no room in the workspace")
	})
}

func TestFewRowsAllocateNothing(t *testing.T) {
	ws := make([]float32, max(WorkspaceLen[float32](), GemmBF16Workspace()))
	g := newCase[float32](1, false, true, 3, 33, 100, 0).g
	half := newBF16(1, false, true, 3, 40, 100, 0, false, smallInt).g
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		GemmBlock(&g, ws, 0, 3, 0, 33)
		GemmBF16Block(&half, ws, 0, 3, 0, 40)
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
		g := &Gemm[float32]{TransB: true, M: 1, N: n, K: k, Alpha: 1, A: make([]float32, k), LDA: k, B: make([]float32, n*k), LDB: k,
			C: make([]float32, n), LDC: n}
		for i := range g.B {
			g.B[i] = float32(i % 7)
		}
		best(b, 4*n*k, func() { GemmBlock(g, ws, 0, 1, 0, n) })
	})
	b.Run("bfloat16", func(b *testing.B) {
		g := &GemmBF16{TransB: true, M: 1, N: n, K: k, Alpha: 1, A: make([]BF16, k), LDA: k, B: make([]BF16, n*k), LDB: k,
			H: make([]BF16, n), LDC: n}
		for i := range g.B {
			g.B[i] = ToBF16(float32(i % 7))
		}
		best(b, 2*n*k, func() { GemmBF16Block(g, ws, 0, 1, 0, n) })
	})
}

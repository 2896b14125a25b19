package kernel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// The bits of C must not depend on how it is cut into blocks.
func TestGemmPartition(t *testing.T) {
	onEveryISA(t, gemmPartition[float32], gemmPartition[float64])
}

func gemmPartition[T Float](t *testing.T, e *testEngine[T]) {
	shapes := [][3]int{{1, 9, 33}, {64, 10, 100}, {67, 131, 50}, {33, 65, 2*e.kc + 5}, {e.mc + 9, 70, 40}, {20, e.nc + 30, 20}}
	for i, s := range shapes {
		for v, tr := range transposes {
			if later(t, i+v, 2) {
				continue
			}
			c := newCase[T](uint64(i), tr[0], tr[1], s[0], s[1], s[2], v).real()
			c.g.Alpha, c.g.Beta = 0.3, []T{0, 1, 0.7, 0}[v]
			want := c.run(t, e)
			for range 3 {
				rows, cols := randomCuts(c.rng, s[0]), randomCuts(c.rng, s[1])
				requireSameBits(t, want, runCut(t, c, e, rows, cols), caseName(c), rows, cols)
			}
			for _, threads := range []int{2, 3, 4} {
				rows, cols := partCuts(s[0], threads), partCuts(s[1], 2)
				requireSameBits(t, want, runCut(t, c, e, rows, cols), caseName(c), rows, cols)
			}
		}
	}
}

// randomCuts are the bounds of up to five random parts of n, empty ones included.
func randomCuts(rng *rand.Rand, n int) []int {
	at := []int{0}
	for range rng.IntN(4) {
		last := at[len(at)-1]
		at = append(at, last+rng.IntN(n-last+1))
	}
	return append(at, n)
}

func partCuts(n, parts int) []int {
	at := []int{0}
	for i := range parts {
		_, hi := GemmPart(n, parts, i)
		at = append(at, hi)
	}
	return at
}

// runCut computes all blocks of a cut at the same time.
func runCut[T Float](t *testing.T, c *gemmCase[T], e *testEngine[T], rows, cols []int) []T {
	g, buf := c.withC()
	var wg sync.WaitGroup
	for i := range len(rows) - 1 {
		ws := e.workspaceOf(i)
		wg.Go(func() {
			for j := range len(cols) - 1 {
				e.block(&g, ws, rows[i], rows[i+1], cols[j], cols[j+1])
			}
		})
	}
	wg.Wait()
	e.requireGuards(t)
	return buf
}

func TestGemmPartCoversEachIndexOnce(t *testing.T) {
	for n := range 300 {
		for parts := 1; parts <= 7; parts++ {
			next := 0
			for i := range parts {
				lo, hi := GemmPart(n, parts, i)
				require.Equal(t, next, lo)
				require.GreaterOrEqual(t, hi, lo)
				require.True(t, lo%partUnit == 0 || lo == n)
				require.LessOrEqual(t, hi-lo, largestPart(n, parts))
				next = hi
			}
			require.Equal(t, n, next)
		}
	}
}

func TestGemmSplit(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 4, 7, 16} {
		for _, s := range [][3]int{{64, 512, 784}, {512, 784, 64}, {1024, 1024, 1024}, {4096, 16, 4096}, {16, 4096, 4096}, {300, 300, 300}} {
			rows, cols := GemmSplit(s[0], s[1], s[2], threads)
			name := fmt.Sprint(s, threads, rows, cols)
			require.LessOrEqual(t, rows*cols, threads, name)
			for i := range rows {
				lo, hi := GemmPart(s[0], rows, i)
				require.Less(t, lo, hi, name)
			}
			for i := range cols {
				lo, hi := GemmPart(s[1], cols, i)
				require.Less(t, lo, hi, name)
			}
			if s[0]*s[1]*s[2] >= 1<<27 {
				require.Greater(t, rows*cols, threads*2/3, name)
			}
		}
	}
	for _, s := range [][3]int{{0, 5, 5}, {1, 1, 1}, {16, 16, 16}, {64, 64, 0}, {5, 0, 5}} {
		rows, cols := GemmSplit(s[0], s[1], s[2], 4)
		assert.Equal(t, [2]int{1, 1}, [2]int{rows, cols}, s)
	}
	rows, cols := GemmSplit(64, 512, 784, 2)
	assert.Equal(t, [2]int{1, 2}, [2]int{rows, cols}, "the long side is cut")
	rows, cols = GemmSplit(2048, 64, 784, 2)
	assert.Equal(t, [2]int{2, 1}, [2]int{rows, cols}, "the long side is cut")
}

// Blocks of few rows are computed transposed, and a block of all rows is not: the
// bits are the same.
func TestGemmTurned(t *testing.T) { onEveryISA(t, testTurned[float32], testTurned[float64]) }

func testTurned[T Float](t *testing.T, e *testEngine[T]) {
	if !e.crop || e.transpose == nil {
		return
	}
	for i, s := range [][2]int{{64, 400}, {65, 784}, {200, 70}, {33, 1100}, {17, 700}} {
		m, n := packCost*e.cols+1, s[0]
		for kind := range 5 {
			if (i+2*kind)%5 > 1 && !reliability.Long(t) {
				continue
			}
			c := newCase[T](uint64(i), false, true, m, n, s[1], i%3).real()
			switch kind {
			case 1:
				c.g.Beta = 1
			case 2: // a bias
				c.g.From, c.g.Act = inner(c.b)[:n], ActReLU
			case 3:
				c.g.From, c.g.LDFrom, c.g.Beta = clone(c.g.C), c.g.LDC, 0
			case 4:
				c.g.Beta, c.g.Alpha = 0.5, 0.5
			}
			want := c.run(t, e)
			rows := []int{e.lanes, 2*e.lanes - 1, 2 * e.lanes, 4 * e.lanes}[(i+kind)%4]
			g, buf := c.withC()
			for lo := 0; lo < m; lo += rows {
				hi := min(m, lo+rows)
				p := gemmPass[T]{engine: e.engine, i0: lo, i1: hi}
				require.Equal(t, kind < 4 && hi < m, p.turns(&g), "%s: %d rows", caseName(c), hi-lo)
				e.block(&g, e.workspaceOf(0), lo, hi, 0, n/2)
				e.block(&g, e.workspaceOf(0), lo, hi, n/2, n)
			}
			requireSameBits(t, want, buf, caseName(c), "kind", kind, "rows", rows)
			e.requireGuards(t)
		}
	}
}

// watch wraps all assembly of e and returns the largest work of one call:
// multiply-adds, and packed elements.
func watch[T Float](e *testEngine[T]) (products, packed *int) {
	products, packed = new(int), new(int)
	watched := *e.engine
	tile, transpose := e.tile, e.transpose
	watched.tile = func(tiles, h, n, k int, a, b operand[T], c []T, cs int, from operand[T], alpha T) {
		*products = max(*products, tiles*h*e.cols*k)
		tile(tiles, h, n, k, a, b, c, cs, from, alpha)
	}
	if transpose != nil {
		watched.transpose = func(dst *T, ds int, src *T, ss, w, blocks int) {
			*packed = max(*packed, w*blocks*e.lanes)
			transpose(dst, ds, src, ss, w, blocks)
		}
		for i, copyRows := range e.copyRows {
			if copyRows == nil {
				continue
			}
			watched.copyRows[i] = func(dst *T, ds int, src *T, ss, n int) {
				*packed = max(*packed, n*(i+1)*e.lanes)
				copyRows(dst, ds, src, ss, n)
			}
		}
	}
	e.engine = &watched
	return products, packed
}

// Go cannot preempt assembly, and the garbage collector waits for it. No call may
// last 200 µs, even on a processor that does one multiply-add or one element per
// nanosecond.
func TestGemmAssemblyCallsAreShort(t *testing.T) {
	if len(isas) == 1 {
		t.Skip("all kernels are in Go, which can be preempted")
	}
	onEveryVectorISA(t, func(t *testing.T, s *isa) { gemmCallsAreShort(t, &testEngine[float32]{engine: s.gemm32}) },
		func(t *testing.T, s *isa) { gemmCallsAreShort(t, &testEngine[float64]{engine: s.gemm64}) })
}

func gemmCallsAreShort[T Float](t *testing.T, e *testEngine[T]) {
	const limit = 400_000
	products, packed := watch(e)
	for i, s := range [][3]int{{400, 400, 1100}, {14, 3000, 600}, {3000, 20, 600}, {64, 1100, 1100}, {30, 20, 20000}} {
		if single[T]() != (i%2 == 0) && !reliability.Long(t) {
			continue
		}
		tr := transposes[i%4]
		c := newCase[T](uint64(i), tr[0], tr[1], s[0], s[1], s[2], 0)
		e.block(&c.g, e.workspaceOf(0), 0, s[0], 0, s[1])
	}
	assert.Positive(t, *products)
	assert.LessOrEqual(t, *products, limit)
	assert.LessOrEqual(t, *packed, limit)
}

// BenchmarkGemmStopsTheWorld reports how long runtime.GC takes while every core but one multiplies large matrices.
func BenchmarkGemmStopsTheWorld(b *testing.B) {
	const n = 2048
	stop := make(chan struct{})
	done := make(chan struct{})
	cores := runtime.GOMAXPROCS(0) - 1 // one for the collector
	for range cores {
		go func() {
			defer func() { done <- struct{}{} }()
			g := &newCase[float32](1, false, true, n, n, n, 0).g
			ws := make([]float32, WorkspaceLen[float32]())
			for {
				select {
				case <-stop:
					return
				default:
					GemmBlock(g, ws, 0, n, 0, n)
				}
			}
		}()
	}
	var spans []time.Duration
	for b.Loop() {
		begin := time.Now()
		runtime.GC()
		spans = append(spans, time.Since(begin))
	}
	close(stop)
	for range cores {
		<-done
	}
	slices.Sort(spans)
	b.ReportMetric(float64(spans[len(spans)/2].Microseconds()), "µs-median")
	b.ReportMetric(float64(spans[len(spans)-1].Microseconds()), "µs-worst")
	b.ReportMetric(0, "ns/op")
}

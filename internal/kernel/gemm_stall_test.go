package kernel

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

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
	onEveryISA(t, gemmCallsAreShort[float32], gemmCallsAreShort[float64])
}

func gemmCallsAreShort[T Float](t *testing.T, e *testEngine[T]) {
	const limit = 400_000
	products, packed := watch(e)
	for i, s := range [][3]int{{400, 400, 1100}, {14, 3000, 600}, {3000, 20, 600}, {64, 1100, 1100}, {30, 20, 20000}} {
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

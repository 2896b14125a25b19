package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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

package kernel

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bits of C must not depend on how it is cut into blocks.
func TestGemmPartition(t *testing.T) {
	onEveryISA(t, gemmPartition[float32], gemmPartition[float64])
}

func gemmPartition[T Float](t *testing.T, e *testEngine[T]) {
	shapes := [][3]int{{1, 9, 33}, {64, 10, 100}, {67, 131, 50}, {33, 65, 2*e.kc + 5}, {e.mc + 9, 70, 40}, {20, e.nc + 30, 20}}
	for i, s := range shapes {
		for v, tr := range transposes {
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

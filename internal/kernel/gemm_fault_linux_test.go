package kernel

import (
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// Matrices that end at an inaccessible page: the assembly must not read or write
// one byte more.
func TestGemmStaysInsideItsMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	onEveryISA(t, gemmStaysInside[float32], gemmStaysInside[float64])
}

func gemmStaysInside[T Float](t *testing.T, e *testEngine[T]) {
	var arena [4][]byte
	for i := range arena {
		arena[i] = fencedBytes(t, 8*max(e.workspace(), 320*80))
	}
	ws := atEnd(arena[3], make([]T, e.workspace()))
	for i := range 100 {
		tr := transposes[i%4]
		m, n, k := 1+i%37, 1+i%67, 1+i%43+i%3/2*dotLeast
		if i%5 == 0 { // few rows
			m, k = 1+i/5%fewRows, alongLeast+i%43
		}
		c := newCase[T](uint64(i), tr[0], tr[1], m, n, k, i%2)
		c.g.Beta = T(i % 3)
		want := c.reference()
		g := c.g
		g.A, g.B, g.C = atEnd(arena[0], g.A), atEnd(arena[1], g.B), atEnd(arena[2], g.C)
		e.block(&g, ws, 0, g.M, 0, g.N)
		requireSameBits(t, inner(want), g.C, caseName(c))
	}
}

func TestGemmBF16StaysInsideItsMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	onEveryBF16(t, func(t *testing.T, e *engineBF16, _ bool) {
		var arena [5][]byte
		for i := range arena {
			arena[i] = fencedBytes(t, 4*max(e.workspace(), 320*80))
		}
		ws := atEnd(arena[4], make([]float32, e.workspace()))
		for i := range 100 {
			tr := transposes[i%4]
			m, n, k := 1+i%37, 1+i%67, 1+i%43
			if i%5 == 0 { // few rows, and columns that end with a tile
				m, n, k = 1+i/5%fewRows, 2*e.cols+i%3, alongLeast+2*i
			}
			c := newBF16(uint64(i), tr[0], tr[1], m, n, k, i%2, i%3 == 0, smallInt).withBias(smallInt)
			c.g.Beta = float32(i % 3)
			want := c.reference()
			got := c.result(func(g *GemmBF16) {
				fenced := *g
				fenced.A, fenced.B = atEnd(arena[0], g.A), atEnd(arena[1], g.B)
				if g.H != nil {
					fenced.H = atEnd(arena[2], g.H)
				} else {
					fenced.C = atEnd(arena[2], g.C)
				}
				if g.Bias != nil {
					fenced.Bias = atEnd(arena[3], g.Bias)
				}
				e.block(&fenced, ws, 0, g.M, 0, g.N)
				copy(g.H, fenced.H)
				copy(g.C, fenced.C)
			})
			requireSameBits(t, want, got, c)
		}
	})
}

func TestLongGemmBF16StaysInsideItsMemory(t *testing.T) {
	reliability.AsLong(t, TestGemmBF16StaysInsideItsMemory)
}

// fencedBytes is memory of at least n bytes, followed by an inaccessible page.
func fencedBytes(t *testing.T, n int) []byte {
	page := syscall.Getpagesize()
	n = (n + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, n+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(mem)) })
	require.NoError(t, syscall.Mprotect(mem[n:], syscall.PROT_NONE))
	return mem[:n]
}

// atEnd copies x to the end of mem.
func atEnd[T any](mem []byte, x []T) []T {
	y := atEndOf[T](mem, len(x))
	copy(y, x)
	return y
}

// atEndOf is the last n elements of mem.
func atEndOf[T any](mem []byte, n int) []T {
	at := mem[len(mem)-n*int(unsafe.Sizeof(*new(T))):]
	return unsafe.Slice((*T)(unsafe.Pointer(&at[0])), n)
}

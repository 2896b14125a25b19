package kernel

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// guard is the number of elements around every buffer that must not change.
const guard = 48

// gemmCase is a product in buffers with guards.
type gemmCase[T Float] struct {
	g    Gemm[T]
	rng  *rand.Rand
	a, b []T // with guards
	c    []T
	from []T // of an epilogue
	out  []T
}

// newCase makes a product of small integers, which is exact in every order of
// additions, with leading strides that are pad larger than needed, Alpha 1 and Beta
// 0. Slices end with their matrices. Padding and guards are filled, too.
func newCase[T Float](seed uint64, ta, tb bool, m, n, k, pad int) *gemmCase[T] {
	c := &gemmCase[T]{rng: rand.New(rand.NewPCG(seed, 0))}
	c.g = Gemm[T]{TransA: ta, TransB: tb, M: m, N: n, K: k, Alpha: 1}
	c.a, c.g.A, c.g.LDA = c.matrix(ta, m, k, pad)
	c.b, c.g.B, c.g.LDB = c.matrix(tb, k, n, pad)
	c.c, c.g.C, c.g.LDC = c.matrix(false, m, n, pad)
	return c
}

func (c *gemmCase[T]) matrix(trans bool, rows, cols, pad int) (buf, x []T, ld int) {
	if trans {
		rows, cols = cols, rows
	}
	size, ld := 0, cols+pad
	if rows > 0 && cols > 0 {
		size = (rows-1)*ld + cols
	}
	buf = make([]T, size+2*guard)
	for i := range buf {
		buf[i] = T(c.rng.IntN(9) - 4)
	}
	return buf, inner(buf), ld
}

func inner[T any](buf []T) []T { return buf[guard : len(buf)-guard : len(buf)-guard] }

// real replaces the integers by numbers in [-1, 1).
func (c *gemmCase[T]) real() *gemmCase[T] {
	for _, buf := range [][]T{c.a, c.b, c.c} {
		for i := range buf {
			buf[i] = T(2*c.rng.Float64() - 1)
		}
	}
	return c
}

// withC is the same product into a copy of C.
func (c *gemmCase[T]) withC() (g Gemm[T], buf []T) {
	buf = append([]T(nil), c.c...)
	g = c.g
	g.C = inner(buf)
	return g, buf
}

// reference returns C with its guards after RefGemm.
func (c *gemmCase[T]) reference() []T {
	return remembered(caseName(c), func() []T {
		g, buf := c.withC()
		RefGemm(&g)
		return buf
	}, bytesOf(c.a), bytesOf(c.b), bytesOf(c.c))
}

// references are results of reference, which all engines are compared with.
var (
	references    sync.Map // from referenceOf to a slice: tests run beside each other
	referenceSeed = maphash.MakeSeed()
)

// referenceOf is the name of a product and a hash of its operands.
type referenceOf struct {
	name     string
	operands uint64
}

// remembered returns what compute returned for a product with this name and these operands. Nobody may write to it.
func remembered[T any](name string, compute func() []T, operands ...[]byte) []T {
	var h maphash.Hash
	h.SetSeed(referenceSeed)
	for _, x := range operands {
		h.Write(x)
	}
	key := referenceOf{fmt.Sprintf("%s of %T", name, *new(T)), h.Sum64()}
	got, ok := references.Load(key)
	if !ok {
		got, _ = references.LoadOrStore(key, compute())
	}
	return got.([]T)
}

func bytesOf[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}

// run returns C with its guards after e has computed it in one block.
func (c *gemmCase[T]) run(t *testing.T, e *testEngine[T]) []T {
	t.Helper()
	g, buf := c.withC()
	a, b := append([]T(nil), c.a...), append([]T(nil), c.b...)
	e.block(&g, e.workspaceOf(0), 0, g.M, 0, g.N)
	requireSameBits(t, a, c.a, "A")
	requireSameBits(t, b, c.b, "B")
	e.requireGuards(t)
	return buf
}

// testEngine is an engine with a workspace for each goroutine.
type testEngine[T Float] struct {
	*engine[T]
	ws [8][]T // with guards
}

// workspaceOf returns the workspace of goroutine i. It has exactly the length that
// the engine asks for, is not aligned, and is full of NaN at first.
func (e *testEngine[T]) workspaceOf(i int) []T {
	if e.ws[i] == nil {
		e.ws[i] = filled(e.workspace()+2*guard+1, T(math.NaN()))[1:]
	}
	return inner(e.ws[i])
}

func (e *testEngine[T]) requireGuards(t *testing.T) {
	t.Helper()
	for _, ws := range e.ws {
		for i := range min(guard, len(ws)) {
			if !isNaN(ws[i]) || !isNaN(ws[len(ws)-1-i]) {
				require.Fail(t, "wrote outside the workspace")
			}
		}
	}
}

func filled[T Float](n int, v T) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = v
	}
	return x
}

func isNaN[T Float](x T) bool { return x != x }

// requireSameBits compares the bits of elements; all NaN are equal.
func requireSameBits[T Float](t *testing.T, want, got []T, what ...any) {
	if t.Helper(); len(want) != len(got) {
		require.Equal(t, len(want), len(got), what...)
	}
	for i := range want {
		w, g := math.Float64bits(float64(want[i])), math.Float64bits(float64(got[i]))
		if w != g && !(isNaN(want[i]) && isNaN(got[i])) {
			require.Failf(t, "different bits", "element %d of %d: want %v, got %v; %v", i, len(want), want[i], got[i], what)
		}
	}
}

// onEveryISA runs a test for each instruction set of this machine and both
// element types.
func onEveryISA(t *testing.T, f32 func(t *testing.T, e *testEngine[float32]), f64 func(t *testing.T, e *testEngine[float64])) {
	for _, s := range isas {
		t.Run(s.name+"/float32", func(t *testing.T) { f32(t, &testEngine[float32]{engine: s.gemm32}) })
		t.Run(s.name+"/float64", func(t *testing.T) { f64(t, &testEngine[float64]{engine: s.gemm64}) })
	}
}

// transposes are the four forms of a product.
var transposes = [4][2]bool{{false, false}, {false, true}, {true, false}, {true, true}}

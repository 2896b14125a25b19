package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The fuzz tests compare the bits of all kernels that have assembly with their Go
// code, for any numbers at any alignment, including guards. The assembly must not
// change the processor's control register, either.

// poolOf makes a pool of at least n numbers whose bits are those of data, repeated;
// without data, they are special numbers.
func poolOf[T Float](data []byte, n int) []T {
	size := int(unsafe.Sizeof(*new(T)))
	var x []T
	for ; len(data) >= size; data = data[size:] {
		var v T
		if size == 4 {
			v = T(math.Float32frombits(binary.LittleEndian.Uint32(data)))
		} else {
			v = T(math.Float64frombits(binary.LittleEndian.Uint64(data)))
		}
		x = append(x, v)
	}
	if len(x) == 0 {
		x = newPools[T]()[specialNumbers]
	}
	pool := make([]T, 0, n+len(x))
	for len(pool) < n {
		pool = append(pool, x...)
	}
	return pool
}

// requireControl requires Go's rounding mode and treatment of subnormals. Only the
// exception flags may differ.
func requireControl(t *testing.T, what ...any) {
	t.Helper()
	if control := controlNow(); control != 0 {
		require.Equal(t, uint32(0x1f80), control&^0x3f, what...)
	}
}

func FuzzVectorKernels(f *testing.F) {
	for i := range vecCases[float32]() {
		f.Add(uint16(i), uint16(37*i+1), uint64(i), []byte{0, 0, 0x80, 0x7f, 1, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x7f}, i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, which, length uint16, seed uint64, data []byte, double bool) {
		n := int(length % 1200)
		if length > 65000 { // more than one call of the assembly
			n += asmChunk
		}
		if double {
			fuzzVectorKernel[float64](t, int(which), n, seed, data)
		} else {
			fuzzVectorKernel[float32](t, int(which), n, seed, data)
		}
	})
}

func fuzzVectorKernel[T Float](t *testing.T, which, n int, seed uint64, data []byte) {
	cases := vecCases[T]()
	c := cases[which%len(cases)]
	pool := poolOf[T](data, 2*n+4*guard)
	buffers := func() *vecBuffers[T] {
		b := newVecBuffers(seed, n, pool, nil)
		if k := int(seed>>32) % (len(c.aliases) + 1); k > 0 {
			b.alias(c.aliases[k-1])
		}
		return b
	}
	for _, s := range isas[:len(isas)-1] {
		requireSameRun(t, s, c, buffers, fmt.Sprint("n=", n))
		requireControl(t, s.name, c.name)
	}
}

func FuzzHalves(f *testing.F) {
	f.Add(uint16(100), []byte{0xff, 0xff, 0x7f, 0x7f, 1, 0, 0x80, 0x7f, 0, 0, 0x80, 0x33, 0xff, 0xef, 0x7f, 0x47})
	f.Fuzz(func(t *testing.T, length uint16, data []byte) {
		n := int(length % 600)
		x := poolOf[float32](data, n)[:n]
		for _, s := range isas[:len(isas)-1] {
			run := func(s *isa) (b []BF16, h []F16, wide, wideF []float32) {
				b, h = filled16[BF16](n+2*guard), filled16[F16](n+2*guard)
				wide, wideF = filled[float32](n+2*guard, 7), filled[float32](n+2*guard, 7)
				withISA(s, func() {
					F32ToBF16(inner(b), x)
					F32ToF16(inner(h), x)
					BF16ToF32(inner(wide), inner(b))
					F16ToF32(inner(wideF), inner(h))
				})
				return
			}
			b, h, wide, wideF := run(genericISA())
			gotB, gotH, gotWide, gotWideF := run(s)
			require.Equal(t, b, gotB, s.name)
			require.Equal(t, h, gotH, s.name)
			requireSameBits(t, wide, gotWide, s.name)
			requireSameBits(t, wideF, gotWideF, s.name)
			requireControl(t, s.name)
		}
	})
}

func FuzzTranspose(f *testing.F) {
	f.Add(uint8(40), uint8(67), uint8(3))
	f.Add(uint8(16), uint8(100), uint8(0))
	f.Fuzz(func(t *testing.T, rows, cols, pad uint8) {
		fuzzTranspose[uint32](t, int(rows), int(cols), int(pad))
		fuzzTranspose[uint64](t, int(rows), int(cols), int(pad))
	})
}

func fuzzTranspose[T uint32 | uint64](t *testing.T, rows, cols, pad int) {
	src := make([]T, rows*(cols+pad)+1)
	for i := range src {
		src[i] = T(Bits(1, uint64(i)))
	}
	run := func(s *isa) []T {
		dst := make([]T, cols*(rows+pad)+2*guard)
		withISA(s, func() {
			CopyStrided(dst[guard:len(dst)-guard], src, []int{cols, rows}, []int{rows + pad, 1}, []int{1, cols + pad})
		})
		return dst
	}
	want := run(genericISA())
	for c := range cols {
		for r := range rows {
			require.Equal(t, src[r*(cols+pad)+c], want[guard+c*(rows+pad)+r])
		}
	}
	for _, s := range isas[:len(isas)-1] {
		require.Equal(t, want, run(s), s.name)
		requireControl(t, s.name)
	}
}

// FuzzGemm multiplies small integers, which is exact in every order of additions.
func FuzzGemm(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint8(13), uint8(33), uint8(40))
	f.Add(uint64(2), uint8(7), uint8(64), uint8(10), uint8(100))
	f.Fuzz(func(t *testing.T, seed uint64, form, m, n, k uint8) {
		fuzzGemm(t, seed, form, int(m), int(n), int(k), func(s *isa) *testEngine[float32] { return &testEngine[float32]{engine: s.gemm32} })
		fuzzGemm(t, seed, form, int(m), int(n), int(k), func(s *isa) *testEngine[float64] { return &testEngine[float64]{engine: s.gemm64} })
	})
}

func fuzzGemm[T Float](t *testing.T, seed uint64, form uint8, m, n, k int, engine func(s *isa) *testEngine[T]) {
	c := newCase[T](seed, form&1 != 0, form&2 != 0, m, n, k, int(form>>3)%8)
	c.g.Beta = T(form >> 2 & 1)
	g, want := c.withC()
	RefGemm(&g)
	for _, s := range isas {
		requireSameBits(t, want, c.run(t, engine(s)), s.name, caseName(c))
		requireControl(t, s.name)
	}
}

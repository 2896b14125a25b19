package kernel

import (
	"fmt"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// Operands that end where an inaccessible page begins: the assembly must not read or write one byte more.
func TestVectorKernelsStayInsideTheirMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	nearAndFar(func() { onEveryVectorISA(t, vectorStaysInside[float32], vectorStaysInside[float64]) })
}

func TestLongVectorKernelsStayInsideTheirMemory(t *testing.T) {
	reliability.AsLong(t, TestVectorKernelsStayInsideTheirMemory)
}

func vectorStaysInside[T Float](t *testing.T, s *isa) {
	var arena [8][]byte
	for i := range arena {
		arena[i] = fencedBytes(t, 8*100)
	}
	place := func(i int, x []T) []T {
		if len(x) == 0 {
			return nil
		}
		return atEnd(arena[i], x)
	}
	pool := newPools[T]()[normalNumbers]
	for i, c := range vecCases[T]() {
		for n := 1; n < 100; n++ {
			if farBytes == 0 && n%8 != 0 || n > 33 && n%3 != 0 || // operands end at a page, and so begin at no cache line
				later(t, n/8+n+i, 2) {
				continue
			}
			requireSameRun(t, s, c, func() *vecBuffers[T] { return newVecBuffers(uint64(n), n, pool, place) }, fmt.Sprint("n=", n))
		}
	}
}

func TestHalvesStayInsideTheirMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	narrow, wide := fencedBytes(t, 200), fencedBytes(t, 400)
	nearAndFar(func() { halvesStayInside(narrow, wide) })
}

func halvesStayInside(narrow, wide []byte) {
	for _, s := range isas[:len(isas)-1] {
		for n := 1; n < 100; n++ {
			x := atEnd(wide, normals[float32](n, 1))
			b, f := atEndOf[BF16](narrow, n), atEndOf[F16](narrow, n)
			withISA(s, func() {
				F32ToBF16(b, x)
				BF16ToF32(x, b)
				F32ToF16(f, x)
				F16ToF32(x, f)
			})
		}
	}
}

// Conversions that write past the caches write what the others write.
func TestHalvesPastTheCaches(t *testing.T) {
	defer func(n int) { farBytes = n }(farBytes)
	x := lineAligned(1 << 10)
	fillNormal(x, 1, 0, 0, 1)
	words := lineAligned(len(x))
	b, f := unsafe.Slice((*BF16)(unsafe.Pointer(&words[0])), len(x)), unsafe.Slice((*F16)(unsafe.Pointer(&words[len(x)/2])), len(x))
	for _, s := range isas[:len(isas)-1] {
		withISA(s, func() {
			farBytes = 0
			require.True(t, pastCaches(b) && pastCaches(f))
			F32ToBF16(b, x)
			F32ToF16(f, x)
			gotB, gotF := lineAligned(len(x)), lineAligned(len(x))
			BF16ToF32(gotB, b)
			F16ToF32(gotF, f)
			for i, v := range x {
				require.Equal(t, ToBF16(v).Float32(), gotB[i])
				require.Equal(t, ToF16(v).Float32(), gotF[i])
			}
		})
	}
}

func TestPixelsStayInsideTheirMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var narrow, wide [3][]byte
	for i := range narrow {
		narrow[i], wide[i] = fencedBytes(t, 200), fencedBytes(t, 800)
	}
	for _, s := range isas[:len(isas)-1] {
		for n := 1; n < 100; n++ {
			var bytes [3][]byte
			var floats [3][]float32
			for i := range bytes {
				bytes[i], floats[i] = atEndOf[byte](narrow[i], n), atEndOf[float32](wide[i], n)
			}
			withISA(s, func() {
				SmoothChroma(atEndOf[byte](narrow[2], 2*n), bytes[0], bytes[1], 0, n, 8, 7)
				for _, studio := range []bool{false, true} {
					Colors(floats[0], floats[1], floats[2], bytes[0], bytes[1], bytes[2], studio)
				}
				AddScaled(floats[0], floats[1], 2)
				Unit(floats[2], floats[0])
			})
		}
	}
}

package kernel

import (
	"fmt"
	"runtime/debug"
	"testing"
)

// Operands that end where an inaccessible page begins: the assembly must not read or write one byte more.
func TestVectorKernelsStayInsideTheirMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	onEveryVectorISA(t, vectorStaysInside[float32], vectorStaysInside[float64])
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
	for _, c := range vecCases[T]() {
		for n := 1; n < 100; n++ {
			requireSameRun(t, s, c, func() *vecBuffers[T] { return newVecBuffers(uint64(n), n, pool, place) }, fmt.Sprint("n=", n))
		}
	}
}

func TestHalvesStayInsideTheirMemory(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	narrow, wide := fencedBytes(t, 200), fencedBytes(t, 400)
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

package tensor

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// fewQueries is up to how many queries 16-bit keys and values are widened block by block, and not as a whole, which takes memory of
// their length for each token of a text.
const fewQueries = 16

// crossAttentionHalf computes OpCrossAttention of 16-bit floats.
func crossAttentionHalf() Kernel {
	k := crossAttentionKernel(attention32)
	all, fewer := throughFloat32(k), throughFloat32Except(k, 3, 4)
	return func(q Queue, a *Args) {
		if a.Dim[1] <= fewQueries {
			fewer(q, a)
		} else {
			all(q, a)
		}
	}
}

// wideners make float32 of the bits of 16-bit floats.
var wideners = [NumDTypes]func(dst []float32, src []uint16){
	BFloat16: func(dst []float32, src []uint16) { kernel.BF16ToF32(dst, fromBits[BF16](src)) },
	Float16:  func(dst []float32, src []uint16) { kernel.F16ToF32(dst, fromBits[F16](src)) },
}

func fromBits[H BF16 | F16](x []uint16) []H {
	return unsafe.Slice((*H)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// bitsOf returns operand i, which is of 16 bits.
func bitsOf(a *Args, i int) []uint16 { return unsafe.Slice((*uint16)(a.X[i]), a.Len[i]) }

// withHalf makes half the kernel of 16-bit floats.
func withHalf(k [NumDTypes]Kernel, half Kernel) [NumDTypes]Kernel {
	k[BFloat16], k[Float16] = half, half
	return k
}

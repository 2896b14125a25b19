package tensor

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// fewQueries: up to this number of queries, 16-bit keys and values are widened block by block. Widening them as a whole would need memory
// of the length of the keys for each new token of a text.
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

// wideners convert 16-bit floats to float32.
var wideners = [NumDTypes]func(dst []float32, src []uint16){
	BFloat16: func(dst []float32, src []uint16) { kernel.BF16ToF32(dst, fromBits[BF16](src)) },
	Float16:  func(dst []float32, src []uint16) { kernel.F16ToF32(dst, fromBits[F16](src)) },
}

func fromBits[H BF16 | F16](x []uint16) []H {
	return unsafe.Slice((*H)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// bitsOf returns operand i, of a 16-bit type, as bits.
func bitsOf(a *Args, i int) []uint16 { return unsafe.Slice((*uint16)(a.X[i]), a.Len[i]) }

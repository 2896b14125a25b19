package algo

import (
	"math"
	"math/bits"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// folder combines partial results two at a time, for algorithms in which no rank sees all inputs. PreMulSum multiplies every input once,
// before it is added to anything. Avg divides every input by the smallest power of two that is not below the number of ranks, so that no
// partial sum overflows, and at the end it divides the sum by the rest, a number between 1/2 and 1. The first division rounds only
// results below the range of normal numbers.
type folder struct {
	op     backend.Op // its reduction does not depend on the number of inputs
	pair   Reducer
	scale  Reducer // multiplies one input, if scaled
	left   float64 // divisor of the sum, at the end
	mine   []byte  // scaled input of this rank, one chunk; made when first needed
	scaled bool
	srcs   [2][]byte
}

// begin prepares for op among n ranks.
func (f *folder) begin(op *backend.Op, n int) {
	f.left, f.scaled = 1, false
	f.op = backend.Op{Red: op.Red, DType: op.DType}
	switch op.Red {
	case backend.Avg:
		most := math.Exp2(float64(bits.Len(uint(n - 1)))) // at least n
		f.left = float64(n) / most
		f.scaleBy(1 / most)
	case backend.PreMulSum:
		f.scaleBy(op.Factor)
	}
	f.pair.Begin(&f.op, 2)
}

// scaleBy makes the operation a sum of inputs that are multiplied by factor.
func (f *folder) scaleBy(factor float64) {
	f.op.Red = backend.PreMulSum
	f.scale.Begin(&f.op, 1)
	f.scale.SetFactor(0, factor)
	f.op.Red, f.scaled = backend.Sum, true
	if f.mine == nil {
		f.mine = make([]byte, chunkBytes)
	}
}

// own returns this rank's input as it goes into the result: src, or a scaled copy, which is valid until the next call. src is at most a
// chunk.
func (f *folder) own(src []byte) []byte {
	if !f.scaled {
		return src
	}
	f.srcs[0] = src
	f.scale.Reduce(f.mine[:len(src)], f.srcs[:1])
	return f.mine[:len(src)]
}

// copy sets dst to this rank's input as it goes into the result.
func (f *folder) copy(dst, src []byte) {
	for k := range numChunks(len(src)) {
		copyPart(chunkOf(dst, k), f.own(chunkOf(src, k)))
	}
}

// add sets dst to a combined with b. dst may be one of them.
func (f *folder) add(dst, a, b []byte) {
	f.srcs[0], f.srcs[1] = a, b
	f.pair.Reduce(dst, f.srcs[:])
}

// end makes the final result from the complete sum.
func (f *folder) end(b []byte) {
	if f.left == 1 {
		return
	}
	switch f.op.DType {
	case tensor.Float32:
		divide(as[float32](b), f.left)
	case tensor.Float64:
		divide(as[float64](b), f.left)
	case tensor.BFloat16:
		f.divideHalf(b, func(x []float32, h []byte) { kernel.BF16ToF32(x, as[kernel.BF16](h)) },
			func(h []byte, x []float32) { kernel.F32ToBF16(as[kernel.BF16](h), x) })
	case tensor.Float16:
		f.divideHalf(b, func(x []float32, h []byte) { kernel.F16ToF32(x, as[kernel.F16](h)) },
			func(h []byte, x []float32) { kernel.F32ToF16(as[kernel.F16](h), x) })
	}
}

// divideHalf divides 16-bit floats in float32, block by block.
func (f *folder) divideHalf(b []byte, load func([]float32, []byte), store func([]byte, []float32)) {
	for lo := 0; lo < len(b); lo += BlockBytes / 2 {
		h := b[lo:min(lo+BlockBytes/2, len(b))]
		x := as[float32](f.pair.acc)[:len(h)/2]
		load(x, h)
		divide(x, f.left)
		store(h, x)
	}
}

package algo

import (
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// folder combines partial results two at a time, for algorithms in which no rank sees all inputs at once. PreMulSum
// multiplies every input once, before it is added to anything; Avg divides once, at the end.
type folder struct {
	op     backend.Op // with a reduction that does not depend on the number of inputs
	pair   Reducer
	scale  Reducer // of one input, where scaled
	n      int     // ranks to divide by; 0: none
	mine   []byte  // scaled input of this rank, a chunk; made when first needed
	scaled bool
	srcs   [2][]byte
}

// begin prepares for op among n ranks.
func (f *folder) begin(op *backend.Op, n int) {
	f.n, f.scaled = 0, op.Red == backend.PreMulSum
	f.op = backend.Op{Red: op.Red, DType: op.DType}
	switch op.Red {
	case backend.Avg:
		f.n, f.op.Red = n, backend.Sum
	case backend.PreMulSum:
		f.op.Red = backend.Sum
		f.scale.Begin(op, 1)
		f.scale.SetFactor(0, op.Factor)
		if f.mine == nil {
			f.mine = make([]byte, linearChunk)
		}
	}
	f.pair.Begin(&f.op, 2)
}

// own returns this rank's input as it goes into the result: src, or its scaled copy, which lasts until the next call.
// src is a chunk at most.
func (f *folder) own(src []byte) []byte {
	if !f.scaled {
		return src
	}
	f.srcs[0] = src
	f.scale.Reduce(f.mine[:len(src)], f.srcs[:1])
	return f.mine[:len(src)]
}

// add sets dst to a combined with b. dst may be one of them.
func (f *folder) add(dst, a, b []byte) {
	f.srcs[0], f.srcs[1] = a, b
	f.pair.Reduce(dst, f.srcs[:])
}

// end makes the final result of what everything was added to.
func (f *folder) end(b []byte) {
	if f.n < 2 {
		return
	}
	switch f.op.DType {
	case tensor.Float32:
		divide(as[float32](b), f.n)
	case tensor.Float64:
		divide(as[float64](b), f.n)
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
		divide(x, f.n)
		store(h, x)
	}
}

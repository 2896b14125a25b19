package inspect

import (
	"encoding/binary"
	"math"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/tensor"
)

// decode returns the elements as float64, in the memory of out. ok is false for types that it does not know.
func decode(d safetensors.DType, b []byte, out []float64) (values []float64, ok bool) {
	le := binary.LittleEndian
	var get func(b []byte) float64
	switch d {
	case safetensors.F64:
		get = func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }
	case safetensors.F32:
		get = func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }
	case safetensors.BF16:
		get = func(b []byte) float64 { return float64(tensor.BF16(le.Uint16(b)).Float32()) }
	case safetensors.F16:
		get = func(b []byte) float64 { return float64(tensor.F16(le.Uint16(b)).Float32()) }
	case safetensors.I64:
		get = func(b []byte) float64 { return float64(int64(le.Uint64(b))) }
	case safetensors.I32:
		get = func(b []byte) float64 { return float64(int32(le.Uint32(b))) }
	case safetensors.U8, safetensors.Bool:
		get = func(b []byte) float64 { return float64(b[0]) }
	default:
		return nil, false
	}
	out = out[:0]
	for size := d.Bits() / 8; len(b) >= size; b = b[size:] {
		out = append(out, get(b))
	}
	return out, true
}

func isFloat(d safetensors.DType) bool {
	t, ok := storage.DTypeOf(d)
	return ok && t.IsFloat()
}

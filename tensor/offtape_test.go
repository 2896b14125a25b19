package tensor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What prepares data works outside of tapes, as on them.
func TestDataOutsideOfTapes(t *testing.T) {
	x := FromSlice([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, 2, 3, 4)
	for name, f := range map[string]func(x Tensor) Tensor{
		"rows":             func(x Tensor) Tensor { return x.Slice(0, 1, 2) },
		"no rows":          func(x Tensor) Tensor { return x.Slice(0, 1, 1) },
		"middle":           func(x Tensor) Tensor { return x.Slice(1, 1, 3) },
		"columns":          func(x Tensor) Tensor { return x.Slice(-1, 1, 3) },
		"columns of 2 D":   func(x Tensor) Tensor { return x.Reshape(6, 4).Slice(1, 2, 4) },
		"split":            func(x Tensor) Tensor { return x.Split(1, 2, 1)[1] },
		"concat":           func(x Tensor) Tensor { return Concat(1, x, x.Slice(1, 0, 1), x) },
		"reshape":          func(x Tensor) Tensor { return x.Reshape(-1, 8) },
		"transpose":        func(x Tensor) Tensor { return x.Transpose(0, 2) },
		"permute":          func(x Tensor) Tensor { return x.Permute(2, 0, 1) },
		"cast":             func(x Tensor) Tensor { return x.Cast(Int32) },
		"nothing to cast":  func(x Tensor) Tensor { return x.Cast(Float32) },
		"columns, in gaps": func(x Tensor) Tensor { return columns(x.Reshape(6, 4)).Slice(0, 1, 3) },
	} {
		tape := NewTape(hostDevice)
		got, want := f(x), f(tape.Input(x))
		require.Nil(t, got.Tape(), name)
		require.True(t, got.Contiguous(), name)
		require.Equal(t, want.Shape(), got.Shape(), name)
		require.Equal(t, Floats(want), Floats(got), name)
	}
	half := New(hostDevice, Float32, 4).Cast(BFloat16)
	assert.Equal(t, BFloat16, half.DType())
	x.Slice(0, 1, 2).Bytes()[3] = 0x40
	assert.NotEqual(t, float32(12), Data[float32](x)[12], "rows are a view")
}

// columns is a host tensor with gaps, if x is one.
func columns(x Tensor) Tensor {
	if x.h.tape == nil {
		return Tensor{&header{dtype: x.h.dtype, st: x.h.st, off: x.h.off, n: 12, ndim: 2, dims: [MaxNDim]int{6, 2}, ld: 4}, 0}
	}
	return x.Slice(1, 0, 2)
}

// A part of a batch knows which rows, and which positions, it has.
func TestRowsOfSlices(t *testing.T) {
	x := New(hostDevice, Float32, 4, 6).WithRows(Rows{First: 10, Stride: 2, Total: 40, Over: 1})
	assert.Equal(t, Rows{First: 12, Stride: 2, Total: 40, Over: 1}, x.Slice(0, 1, 3).Rows())
	assert.Equal(t, x.Rows(), x.Slice(1, 2, 5).Rows())
	assert.Equal(t, x.Slice(1, 2, 5).Types(), x.Types())
	assert.Equal(t, x.Rows(), x.Cast(Float64).Rows())
	seq := x.WithRows(Rows{First: 10, Stride: 1, Total: 40, Seq: Spans{First: 6, Total: 12}})
	assert.Equal(t, Spans{First: 8, Total: 12}, seq.Slice(1, 2, 5).Rows().Seq)
	two := x.WithRows(Rows{First: 10, Stride: 1, Total: 40, Seq: Spans{First: 1, Total: 12, Break: 3, Skip: 4}})
	assert.Equal(t, Spans{First: 2, Total: 12, Break: 2, Skip: 4}, two.Slice(1, 1, 5).Rows().Seq)
	assert.Equal(t, x.Rows(), x.Reshape(4, -1, 2).Rows())
	assert.Equal(t, x.Rows(), x.Reshape(4, 3, 2).Permute(0, 2, 1).Rows())
	assert.Equal(t, seq.Rows(), seq.Reshape(4, 6, 1).Rows())
	assert.Equal(t, Rows{}, seq.Reshape(4, 2, 3).Rows(), "positions are divided")
	assert.Equal(t, Rows{}, seq.Reshape(4, 6, 1).Permute(0, 2, 1).Rows())
	assert.Equal(t, Rows{}, x.Reshape(-1).Rows())
	assert.Equal(t, Rows{}, Concat(0, x, x).Rows())
	assert.Equal(t, x.Rows(), Concat(1, x, x.Slice(1, 0, 2)).Rows())
	assert.Equal(t, Rows{}, Concat(1, seq, seq).Rows())
	assert.Equal(t, Rows{}, Concat(1, x, New(hostDevice, Float32, 4, 1)).Rows(), "the other may be of other rows")
	assert.Equal(t, Rows{}, x.Transpose(0, 1).Rows())
}

// What has no meaning, or would lose a gradient, is refused in words.
func TestOutsideOfTapesRefuses(t *testing.T) {
	p := NewParam(Constant(1), 2, 3)
	p.SetName("w")
	p.Make(hostDevice, Float32, 1)
	x := New(hostDevice, Float32, 2, 3)
	for want, f := range map[string]func(){
		"slice float32[2,3]: elements 1 to 4 of dimension 1":                               func() { x.Slice(1, 1, 4) },
		"slice float32[2,3]: elements 2 to 3 of dimension 0":                               func() { x.Slice(0, 2, 3) },
		"slice float32[2,3]: no dimension 2":                                               func() { x.Slice(2, 0, 1) },
		"add float32[2,3], float32[2,3]: no operand is on a tape; put it":                  func() { x.Add(New(hostDevice, Float32, 2, 3)) },
		"sum float32[2,3]: no operand is on a tape; put it there":                          func() { x.Sum() },
		"slice w float32[2,3]: it is the value of w: Tape.Use puts that on a tape":         func() { p.Value.Slice(0, 0, 1) },
		"concat w float32[2,3]: it is the value of w: Tape.Use puts that on a tape, with ": func() { Concat(0, x, p.Value) },
	} {
		assert.ErrorContains(t, Try(f), want)
	}
}

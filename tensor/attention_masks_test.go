package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// crossRun returns the output of CrossAttention and the gradients of q, k and v, for the loss sum(out²).
func crossRun(in [3]Tensor, hd int, o AttentionOptions) (out []float64, grads [3][]float64) {
	tape := NewTape(hostDevice)
	defer tape.Close()
	var x [3]Tensor
	var ps [3]*Param
	for i := range in {
		ps[i] = NewParam(Constant(0), in[i].Shape().Dims...)
		ps[i].SetValue(in[i])
		x[i] = tape.Use(ps[i])
	}
	y := tape.Keep(CrossAttention(x[0], x[1], x[2], hd, o))
	tape.Backward(y.Square().Sum())
	for i, p := range ps {
		grads[i] = Floats(p.Grad)
	}
	return Floats(y), grads
}

func ramp[T int32 | int64](n int, f func(i int) int) (x []T) {
	for i := range n {
		x = append(x, T(f(i)))
	}
	return x
}

// Documents that are packed into one sequence, with padding after them, give the same as each document alone.
func TestPackedDocumentsAreDocumentsAlone(t *testing.T) {
	const time, hd = 300, 4
	ends := []int{0, 7, 8, 150, 290} // the rest is padding
	doc := func(i int) int {
		for d, end := range ends {
			if i < end {
				return d
			}
		}
		return -1
	}
	q, k, v := random(hostDevice, Float64, 1, 1, time, 4*hd), random(hostDevice, Float64, 2, 1, time, 2*hd),
		random(hostDevice, Float64, 3, 1, time, 2*hd)
	docs := FromSlice(ramp[int32](time, doc), 1, time)
	o := AttentionOptions{Causal: true, QueryDocs: docs, KeyDocs: docs, KeyLengths: FromSlice([]int64{int64(ends[len(ends)-1])}, 1)}
	out, grads := crossRun([3]Tensor{q, k, v}, hd, o)
	part := func(x []float64, width, lo, hi int) []float64 { return x[lo*width : hi*width] }
	for d := 1; d < len(ends); d++ {
		lo, hi := ends[d-1], ends[d]
		var alone [3]Tensor
		for i, x := range []Tensor{q, k, v} {
			alone[i] = FromSlice(part(Floats(x), x.Dim(2), lo, hi), 1, hi-lo, x.Dim(2))
		}
		wantOut, want := crossRun(alone, hd, AttentionOptions{Causal: true})
		assert.InDeltaSlice(t, wantOut, part(out, 4*hd, lo, hi), 1e-13)
		for i, width := range []int{4 * hd, 2 * hd, 2 * hd} {
			assert.InDeltaSlice(t, want[i], part(grads[i], width, lo, hi), 1e-13)
		}
	}
	assert.Equal(t, make([]float64, 10*4*hd), part(out, 4*hd, 290, time), "queries of the padding")
	for i, width := range []int{4 * hd, 2 * hd, 2 * hd} {
		assert.Equal(t, make([]float64, 10*width), part(grads[i], width, 290, time))
	}
}

// What comes after a sequence's length is never read: NaN there changes nothing. A sequence of length 0 is all padding.
func TestKeyLengthsHideNaN(t *testing.T) {
	for _, d := range floatTypes {
		q, k, v := random(hostDevice, d, 1, 3, 70, 8), random(hostDevice, d, 2, 3, 300, 4), random(hostDevice, d, 3, 3, 300, 4)
		lengths := []int64{257, 0, 300}
		for _, o := range []AttentionOptions{{}, {Causal: true, Offset: 200}} {
			o.KeyLengths = FromSlice(lengths, 3)
			want, wantGrads := crossRun([3]Tensor{q, k, v}, 4, o)
			bad := func(x Tensor) Tensor {
				y := New(hostDevice, d, 3, 300, 4)
				copy(y.Bytes(), x.Bytes())
				for b, n := range lengths {
					for at := (b*300 + int(n)) * 4; at < (b+1)*300*4; at++ {
						storeFloat(y.Ptr(), d, at, math.NaN())
					}
				}
				return y
			}
			out, grads := crossRun([3]Tensor{q, bad(k), bad(v)}, 4, o)
			require.Equal(t, want, out)
			require.Equal(t, wantGrads, grads)
			for i := 1; i < 3; i++ {
				require.Equal(t, make([]float64, 43*4), grads[i][257*4:300*4])
				require.Equal(t, make([]float64, 300*4), grads[i][300*4:600*4])
			}
		}
	}
}

// Masks may have either type, and may be views with gaps.
func TestMasksMayBeViewsOfEitherType(t *testing.T) {
	q, k, v := random(hostDevice, Float64, 1, 2, 5, 4), random(hostDevice, Float64, 2, 2, 6, 4), random(hostDevice, Float64, 3, 2, 6, 4)
	doc := func(i int) int { return i % 7 / 3 }
	tape := NewTape(hostDevice, NoGrad())
	whole32, whole64 := tape.Input(FromSlice(ramp[int32](14, doc), 2, 7)), tape.Input(FromSlice(ramp[int64](14, doc), 2, 7))
	want := Floats(CrossAttention(tape.Input(q), k, v, 2, AttentionOptions{QueryDocs: FromSlice([]int64{0, 0, 0, 1, 1, 0, 0, 0, 1, 1}, 2, 5),
		KeyDocs: FromSlice([]int64{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}, 2, 6)}))
	for _, x := range []Tensor{whole32, whole64} {
		o := AttentionOptions{QueryDocs: x.Slice(1, 0, 5), KeyDocs: x.Slice(1, 0, 6)}
		assert.Equal(t, want, Floats(CrossAttention(tape.Input(q), k, v, 2, o)))
	}
}

func TestAttentionMasksMisuse(t *testing.T) {
	x := func(d DType, dims ...int) Tensor { return New(hostDevice, d, dims...) }
	tape := NewTape(hostDevice)
	q, k := tape.Input(x(Float32, 2, 3, 8)), x(Float32, 2, 5, 4)
	for _, c := range []struct {
		o    AttentionOptions
		want string
	}{
		{AttentionOptions{KeyLengths: x(Int64, 3)}, "cross_attention int64[3]: KeyLengths has to be int64[2], or int32 of this shape"},
		{AttentionOptions{KeyLengths: x(Int64, 2, 1)}, "KeyLengths has to be int64[2]"},
		{AttentionOptions{KeyLengths: x(Float32, 2)}, "cross_attention float32[2]: KeyLengths has to be int64[2]"},
		{AttentionOptions{KeyLengths: FromSlice([]int32{5, 6}, 2)},
			"cross_attention float32[2,3,8], float32[2,5,4]: KeyLengths of sequence 1 is 6, not in [0,5]"},
		{AttentionOptions{KeyLengths: FromSlice([]int64{-1, 5}, 2)}, "KeyLengths of sequence 0 is -1, not in [0,5]"},
		{AttentionOptions{QueryDocs: x(Int64, 2, 3)}, "QueryDocs and KeyDocs belong together, but only one is given"},
		{AttentionOptions{KeyDocs: x(Int64, 2, 5)}, "QueryDocs and KeyDocs belong together, but only one is given"},
		{AttentionOptions{QueryDocs: x(Int64, 2, 5), KeyDocs: x(Int64, 2, 5)}, "cross_attention int64[2,5]: QueryDocs has to be int64[2,3]"},
		{AttentionOptions{QueryDocs: x(Int32, 2, 3), KeyDocs: x(Int32, 2, 3)}, "cross_attention int32[2,3]: KeyDocs has to be int64[2,5]"},
		{AttentionOptions{QueryDocs: x(Int32, 2, 3), KeyDocs: x(Bool, 2, 5)}, "cross_attention bool[2,5]: KeyDocs has to be int64[2,5]"},
	} {
		assert.ErrorContains(t, Try(func() { CrossAttention(q, k, k, 4, c.o) }), c.want)
	}
	err := Try(func() { Attention(tape.Input(x(Float32, 2, 3, 12)), 4, AttentionOptions{KeyLengths: x(Int64, 2)}) })
	assert.ErrorContains(t, err, "masks are CrossAttention's, to which queries, keys and values are given apart")
}

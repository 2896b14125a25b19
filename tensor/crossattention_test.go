package tensor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
)

// On the parts of qkv it has the bits of Attention, with the same dropped elements, also over ranks.
func TestCrossAttentionOfOneselfIsAttention(t *testing.T) {
	dev := NewCPU(2)
	defer dev.Close()
	apart := func(qkv Tensor, hd int, o AttentionOptions) Tensor {
		width := qkv.Dim(2) / 3
		part := func(i int) Tensor { return qkv.Slice(2, i*width, (i+1)*width) }
		return CrossAttention(part(0), part(1), part(2), hd, o)
	}
	for _, d := range []DType{Float64, Float32, BFloat16} {
		whole := random(dev, d, 7, 5, 67, 3*2*4)
		for _, qkv := range []Tensor{whole, shareOf(whole, 1, 3, false), shareOf(whole, 2, 3, true)} {
			for _, o := range []AttentionOptions{{}, {Causal: true}, {Causal: true, Drop: 0.3, Layer: 8}} {
				out, grad := attentionRun(dev, Attention, qkv, 4, o)
				gotOut, gotGrad := attentionRun(dev, apart, qkv, 4, o)
				require.Equal(t, out, gotOut, fmt.Sprint(d, o))
				require.Equal(t, grad, gotGrad, fmt.Sprint(d, o))
			}
		}
	}
}

// Queries may be a part of each sequence, over the keys of whole sequences. Then each rank has its rows of the result, and the gradients of
// keys and values are summed. Masks are for the part's queries and for all keys.
func TestCrossAttentionOfPartsOfSequences(t *testing.T) {
	t.Run("causal", func(t *testing.T) { testPartsOfSequences(t, false) })
	t.Run("masks", func(t *testing.T) { testPartsOfSequences(t, true) })
}

func testPartsOfSequences(t *testing.T, masks bool) {
	const batch, time, heads, kv, hd = 2, 7, 4, 2, 3
	q, k, v := random(hostDevice, Float64, 1, batch, time, heads*hd), random(hostDevice, Float64, 2, batch, time, kv*hd),
		random(hostDevice, Float64, 3, batch, time, kv*hd)
	docs, lengths := []int64{0, 0, 0, 1, 1, 1, 2, 0, 1, 1, 1, 1, 1, 1}, FromSlice([]int64{7, 5}, batch)
	run := func(q Tensor, from int) (out []float64, grads [3][]float64) {
		tape := NewTape(hostDevice)
		o := AttentionOptions{Causal: true}
		if masks {
			all := tape.Input(FromSlice(docs, batch, time))
			o.KeyLengths, o.KeyDocs, o.QueryDocs = lengths, all, all.Slice(1, from, from+q.Dim(1))
		}
		var in [3]Tensor
		for i, x := range []Tensor{q, k, v} {
			p := NewParam(Constant(0), x.Shape().Dims...)
			p.SetValue(x)
			in[i] = tape.Use(p)
			defer func() { grads[i] = Floats(p.Grad) }()
		}
		tape.Input(q)
		y := tape.Keep(CrossAttention(in[0], in[1], in[2], hd, o))
		tape.Backward(y.Square().Sum())
		return Floats(y), grads
	}
	whole, want := run(q, 0)
	var sums [2][]float64
	for i := range sums {
		sums[i] = make([]float64, batch*time*kv*hd)
	}
	for _, part := range [][2]int{{0, 2}, {2, 3}, {3, 7}} {
		rows := func(x []float64) (y []float64) {
			for b := range batch {
				y = append(y, x[(b*time+part[0])*heads*hd:(b*time+part[1])*heads*hd]...)
			}
			return y
		}
		mine := FromSlice(rows(Floats(q)), batch, part[1]-part[0], heads*hd).WithRows(
			Rows{Stride: 1, Total: batch, Seq: Spans{First: part[0], Total: time}})
		out, grads := run(mine, part[0])
		assert.InDeltaSlice(t, rows(whole), out, 1e-14)
		assert.InDeltaSlice(t, rows(want[0]), grads[0], 1e-13)
		for i := range sums {
			for j, g := range grads[1+i] {
				sums[i][j] += g
			}
		}
	}
	assert.InDeltaSlice(t, want[1], sums[0], 1e-13)
	assert.InDeltaSlice(t, want[2], sums[1], 1e-13)
}

// Computed token by token over the keys so far, as with a cache, it equals the result for the whole sequence.
func TestCrossAttentionTokenByToken(t *testing.T) {
	q, k, v := random(hostDevice, Float64, 1, 2, 6, 8), random(hostDevice, Float64, 2, 2, 6, 4), random(hostDevice, Float64, 3, 2, 6, 4)
	tape := NewTape(hostDevice, NoGrad())
	whole := CrossAttention(tape.Input(q), k, v, 2, AttentionOptions{Causal: true})
	for i := range 6 {
		from := func(x Tensor, lo int) Tensor { return tape.Input(x).Slice(1, lo, i+1) }
		y := CrossAttention(from(q, i), from(k, 0), from(v, 0), 2, AttentionOptions{Causal: true, Offset: i})
		assert.InDeltaSlice(t, Floats(whole.Slice(1, i, i+1)), Floats(y), 1e-14)
	}
}

func TestCrossAttentionMisuse(t *testing.T) {
	x := func(dims ...int) Tensor { return New(hostDevice, Float32, dims...) }
	tape := NewTape(hostDevice)
	for _, c := range []struct {
		q, k, v Tensor
		hd      int
		o       AttentionOptions
		want    string
	}{
		// 3 heads over 2
		{x(2, 3, 12), x(2, 4, 8), x(2, 4, 8), 4, AttentionOptions{}, "cross_attention float32[2,3,12], float32[2,4,8], float32[2,4,8]: " +
			"the keys' 8 features must be heads of 4 each, and the queries' 12 a multiple"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 5, 6), 3, AttentionOptions{}, "dimension 1 of the keys is 4, dimension 1 of the values is 5"},
		{x(2, 3, 12), x(1, 4, 6), x(1, 4, 6), 3, AttentionOptions{}, "dimension 0 of the queries is 2, dimension 0 of the keys is 1"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 4, AttentionOptions{}, "the keys' 6 features must be heads of 4 each"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 0, AttentionOptions{}, "must be heads of 0 each"},
		{x(2, 3, 12), New(hostDevice, Float64, 2, 4, 6), x(2, 4, 6), 3, AttentionOptions{}, "float64"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 3, AttentionOptions{Drop: -1}, "probability -1 is not in [0,1)"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 3, AttentionOptions{Offset: 2}, "cross_attention: an Offset of 2 has no meaning without Causal"},
	} {
		assert.ErrorContains(t, Try(func() { CrossAttention(tape.Input(c.q), c.k, c.v, c.hd, c.o) }), c.want)
	}
	assert.ErrorContains(t, Try(func() { Attention(tape.Input(x(2, 3, 12)), 4, AttentionOptions{Causal: true, Offset: 1}) }),
		"an Offset has no meaning where")
	part := tape.Input(x(2, 3, 12).WithRows(Rows{Stride: 1, Total: 2, Seq: Spans{First: 3, Total: 6}}))
	err := Try(func() { CrossAttention(part, x(2, 3, 12), x(2, 3, 12), 4, AttentionOptions{}) })
	assert.ErrorContains(t, err, "a position would see this rank's part of its sequence only")
	err = Try(func() { CrossAttention(part, x(2, 6, 12), x(2, 6, 12), 4, AttentionOptions{Drop: 0.5}) })
	assert.ErrorContains(t, err, "probabilities of a part of the positions cannot be dropped")
	part = tape.Input(x(2, 3, 12).WithRows(Rows{Stride: 1, Total: 2, Seq: Spans{Total: 6, Break: 1, Skip: 1}}))
	err = Try(func() { CrossAttention(part, x(2, 6, 12), x(2, 6, 12), 4, AttentionOptions{Causal: true}) })
	assert.ErrorContains(t, err, "two runs of each sequence ({First:0 Total:6 Break:1 Skip:1}): each needs an attention")
}

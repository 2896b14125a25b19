package ops_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// On the parts of qkv it has the bits of Attention, with the same dropped elements, also over ranks.
func TestCrossAttentionOfOneselfIsAttention(t *testing.T) {
	dev := cpu.New(2)
	defer dev.Close()
	apart := func(qkv tensor.Tensor, hd int, o ops.AttentionOptions) tensor.Tensor {
		width := qkv.Dim(2) / 3
		part := func(i int) tensor.Tensor { return qkv.Slice(2, i*width, (i+1)*width) }
		return ops.CrossAttention(part(0), part(1), part(2), hd, o)
	}
	for _, d := range []tensor.DType{tensor.Float64, tensor.Float32, tensor.BFloat16} {
		whole := random(dev, d, 7, 5, 67, 3*2*4)
		for _, qkv := range []tensor.Tensor{whole, rowsOf(whole, 1, 3, 2), rowsOf(whole, 4, 1, 1)} {
			for _, o := range []ops.AttentionOptions{{}, {Causal: true}, {Causal: true, Drop: 0.3, Layer: 8}} {
				out, grad := attentionRun(dev, ops.Attention, qkv, 4, o)
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
	q, k, v := random(host, tensor.Float64, 1, batch, time, heads*hd), random(host, tensor.Float64, 2, batch, time, kv*hd),
		random(host, tensor.Float64, 3, batch, time, kv*hd)
	docs, lengths := []int64{0, 0, 0, 1, 1, 1, 2, 0, 1, 1, 1, 1, 1, 1}, tensor.FromSlice([]int64{7, 5}, batch)
	run := func(q tensor.Tensor, from int) (out []float64, grads [3][]float64) {
		tape := tensor.NewTape(host)
		o := ops.AttentionOptions{Causal: true}
		if masks {
			all := tape.Input(tensor.FromSlice(docs, batch, time))
			o.KeyLengths, o.KeyDocs, o.QueryDocs = lengths, all, all.Slice(1, from, from+q.Dim(1))
		}
		var in [3]tensor.Tensor
		for i, x := range []tensor.Tensor{q, k, v} {
			p := tensor.NewParam(tensor.Constant(0), x.Shape().Dims...)
			p.SetValue(x)
			in[i] = tape.Use(p)
			defer func() { grads[i] = tensor.Floats(p.Grad) }()
		}
		tape.Input(q)
		y := tape.Keep(ops.CrossAttention(in[0], in[1], in[2], hd, o))
		tape.Backward(y.Square().Sum())
		return tensor.Floats(y), grads
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
		mine := tensor.FromSlice(rows(tensor.Floats(q)), batch, part[1]-part[0], heads*hd).WithRows(
			tensor.Rows{Stride: 1, Total: batch, Seq: tensor.Spans{First: part[0], Total: time}})
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
	q, k, v := random(host, tensor.Float64, 1, 2, 6, 8), random(host, tensor.Float64, 2, 2, 6, 4), random(host, tensor.Float64, 3, 2, 6, 4)
	tape := tensor.NewTape(host, tensor.NoGrad())
	whole := ops.CrossAttention(tape.Input(q), k, v, 2, ops.AttentionOptions{Causal: true})
	for i := range 6 {
		from := func(x tensor.Tensor, lo int) tensor.Tensor { return tape.Input(x).Slice(1, lo, i+1) }
		y := ops.CrossAttention(from(q, i), from(k, 0), from(v, 0), 2, ops.AttentionOptions{Causal: true, Offset: i})
		assert.InDeltaSlice(t, tensor.Floats(whole.Slice(1, i, i+1)), tensor.Floats(y), 1e-14)
	}
}

func TestCrossAttentionMisuse(t *testing.T) {
	x := func(dims ...int) tensor.Tensor { return tensor.New(host, tensor.Float32, dims...) }
	tape := tensor.NewTape(host)
	for _, c := range []struct {
		q, k, v tensor.Tensor
		hd      int
		o       ops.AttentionOptions
		want    string
	}{
		// 3 heads over 2
		{x(2, 3, 12), x(2, 4, 8), x(2, 4, 8), 4, ops.AttentionOptions{}, "cross_attention float32[2,3,12], float32[2,4,8], float32[2,4,8]: " +
			"the keys' 8 features must be heads of 4 each, and the queries' 12 a multiple"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 5, 6), 3, ops.AttentionOptions{}, "dimension 1 of the keys is 4, dimension 1 of the values is 5"},
		{x(2, 3, 12), x(1, 4, 6), x(1, 4, 6), 3, ops.AttentionOptions{}, "dimension 0 of the queries is 2, dimension 0 of the keys is 1"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 4, ops.AttentionOptions{}, "the keys' 6 features must be heads of 4 each"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 0, ops.AttentionOptions{}, "must be heads of 0 each"},
		{x(2, 3, 12), tensor.New(host, tensor.Float64, 2, 4, 6), x(2, 4, 6), 3, ops.AttentionOptions{}, "float64"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 3, ops.AttentionOptions{Drop: -1}, "probability -1 is not in [0,1)"},
		{x(2, 3, 12), x(2, 4, 6), x(2, 4, 6), 3, ops.AttentionOptions{Offset: 2},
			"cross_attention: an Offset of 2 has no meaning without Causal"},
	} {
		assert.ErrorContains(t, tensor.Try(func() { ops.CrossAttention(tape.Input(c.q), c.k, c.v, c.hd, c.o) }), c.want)
	}
	assert.ErrorContains(t, tensor.Try(func() { ops.Attention(tape.Input(x(2, 3, 12)), 4, ops.AttentionOptions{Causal: true, Offset: 1}) }),
		"an Offset has no meaning where")
	part := tape.Input(x(2, 3, 12).WithRows(tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{First: 3, Total: 6}}))
	err := tensor.Try(func() { ops.CrossAttention(part, x(2, 3, 12), x(2, 3, 12), 4, ops.AttentionOptions{}) })
	assert.ErrorContains(t, err, "a position would see this rank's part of its sequence only")
	err = tensor.Try(func() { ops.CrossAttention(part, x(2, 6, 12), x(2, 6, 12), 4, ops.AttentionOptions{Drop: 0.5}) })
	assert.ErrorContains(t, err, "probabilities of a part of the positions cannot be dropped")
	part = tape.Input(x(2, 3, 12).WithRows(tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{Total: 6, Break: 1, Skip: 1}}))
	err = tensor.Try(func() { ops.CrossAttention(part, x(2, 6, 12), x(2, 6, 12), 4, ops.AttentionOptions{Causal: true}) })
	assert.ErrorContains(t, err, "two runs of each sequence ({First:0 Total:6 Break:1 Skip:1}): each needs an attention")
}

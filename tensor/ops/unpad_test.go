package ops_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// unpaddedRun returns the attention of sequences with these lengths, and the gradients of queries, keys and values.
func unpaddedRun(dev tensor.Device, qkv [3]tensor.Tensor, lengths []int64, o ops.AttentionOptions, without bool) (all [4][]float64) {
	tape := tensor.NewTape(dev)
	defer tape.Close()
	var params [3]*tensor.Param
	var in [3]tensor.Tensor
	n := tape.Input(tensor.FromSlice(lengths, len(lengths)))
	u := ops.Unpad(tape.Input(tensor.New(dev, tensor.Int64, len(lengths), qkv[0].Dim(1))), n)
	for i, x := range qkv {
		params[i] = tensor.NewParam(tensor.Constant(0), x.Shape().Dims...)
		params[i].SetValue(x)
		if in[i] = tape.Use(params[i]); without {
			in[i] = u.Remove(in[i])
		}
	}
	if without {
		o.Unpadded = u
	} else {
		o.KeyLengths = n
	}
	y := ops.CrossAttention(in[0], in[1], in[2], 4, o)
	if without {
		y = u.Restore(y)
	}
	real := ops.Arange(tape, tensor.Int64, 0, float64(y.Dim(1)), 1).Lt(n.Reshape(-1, 1)).Cast(y.DType()).Reshape(len(lengths), -1, 1)
	y = tape.Keep(y.Mul(real))
	tape.Backward(y.Square().Sum())
	all[0] = tensor.Floats(y)
	for i, p := range params {
		all[1+i] = tensor.Floats(p.Grad)
	}
	return all
}

// Attention without padding is that with padding: longer than blocks of queries and keys, with shared keys, causal, of no tokens.
func TestUnpaddedAttention(t *testing.T) {
	dev := cpu.New(2)
	defer dev.Close()
	for d, bound := range map[tensor.DType]float64{tensor.Float64: 1e-13, tensor.Float32: 1e-5, tensor.BFloat16: 0.03, tensor.Float16: 0.01} {
		for _, lengths := range [][]int64{{5, 1, 70, 3}, {300, 129, 7}, {2}, {3, 0, 2, 0}, {4, 4}} {
			if lengths[0] == 300 && d != tensor.Float32 && !reliability.Long(t) {
				continue
			}
			time := int(slices.Max(lengths)) + 2
			qkv := [3]tensor.Tensor{random(dev, d, 1, len(lengths), time, 16), random(dev, d, 2, len(lengths), time, 8),
				random(dev, d, 3, len(lengths), time, 8)}
			scores := ops.AttentionScores{Window: 3, SoftCap: 2}
			for _, o := range []ops.AttentionOptions{{}, {Causal: true}, {Causal: true, AttentionScores: scores}} {
				want, got := unpaddedRun(dev, qkv, lengths, o, false), unpaddedRun(dev, qkv, lengths, o, true)
				for i := range want {
					require.InDeltaSlice(t, want[i], got[i], bound, fmt.Sprint(d, lengths, o.Causal, i))
				}
			}
		}
	}
}

func TestLongUnpaddedAttention(t *testing.T) { reliability.AsLong(t, TestUnpaddedAttention) }

// Places in a batch, there and back; padding is a copy of a sequence's last token, or of its first place.
func TestUnpad(t *testing.T) {
	tape := tensor.NewTape(host, tensor.NoGrad())
	defer tape.Close()
	ids := func(dims ...int) tensor.Tensor { return tape.Input(tensor.New(host, tensor.Int64, dims...)) }
	u := ops.Unpad(ids(3, 3), tape.Input(tensor.FromSlice([]int32{2, 0, 3}, 3)))
	x := u.Remove(tape.Input(tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 3, 1)))
	require.Equal(t, []float64{1, 2, 4, 7, 8, 9}, tensor.Floats(x))
	require.Equal(t, []float64{1, 2, 2, 4, 4, 4, 7, 8, 9}, tensor.Floats(u.Restore(x)))
	none := ops.Unpad(ids(0, 3), tape.Input(tensor.FromSlice([]int64{}, 0)))
	require.Equal(t, []int{0, 3, 2}, none.Restore(none.Remove(tape.Input(tensor.New(host, tensor.Float32, 0, 3, 2)))).Shape().Dims)
}

// What has no meaning without padding is a Failure.
func TestUnpadMisuse(t *testing.T) {
	tape := tensor.NewTape(host)
	lengths := tape.Input(tensor.FromSlice([]int64{2, 3}, 2))
	x := func(dims ...int) tensor.Tensor { return tape.Input(tensor.New(host, tensor.Float32, dims...)) }
	u := ops.Unpad(x(2, 3), lengths)
	attention := func(x tensor.Tensor, o ops.AttentionOptions) func() {
		o.Unpadded = u
		return func() { ops.CrossAttention(x, x, x, 4, o) }
	}
	for want, f := range map[string]func(){
		"the length of sequence 0 is 4, not in [0,3]":  func() { ops.Unpad(x(1, 3), tape.Input(tensor.FromSlice([]int64{4}, 1))) },
		"the length of sequence 0 is -1, not in [0,3]": func() { ops.Unpad(x(1, 3), tape.Input(tensor.FromSlice([]int64{-1}, 1))) },
		"lengths has to be int64[3]":                   func() { ops.Unpad(x(3, 3), lengths) },
		"lengths has to be int64[2], or":               func() { ops.Unpad(x(2, 3), lengths.Reshape(2, 1)) },
		"sequences with padding are [batch, time]":     func() { ops.Unpad(x(2, 3, 8), lengths) },
		"padding is removed from [2, 3, features]":     func() { u.Remove(x(2, 4, 8)) },
		"are [5, features]":                            func() { u.Restore(x(6, 8)) },
		"or, with Unpadded, [tokens":                   attention(x(2, 3, 8), ops.AttentionOptions{}),
		"without padding are [5":                       attention(x(4, 8), ops.AttentionOptions{}),
		"have no masks, no dropout":                    attention(x(5, 8), ops.AttentionOptions{KeyLengths: lengths}),
		"Restore them":                                 attention(x(5, 8), ops.AttentionOptions{Drop: 0.5}),
	} {
		assert.ErrorContains(t, tensor.Try(f), want)
	}
}

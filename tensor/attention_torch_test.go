package tensor

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With every mask, output, lse and gradients equal PyTorch's; see testdata/attention.py.
func TestCrossAttentionIsPyTorchs(t *testing.T) {
	const batch, tq, tk, heads, kv, hd = 2, 4, 5, 4, 2, 2
	var cases map[string]struct {
		Out, LSE []float64
		Grads    [3][]float64
	}
	b, err := os.ReadFile("testdata/attention.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &cases))
	value := func(salt int, dims ...int) Tensor {
		x := New(hostDevice, Float64, dims...)
		for i := range x.Len() {
			Data[float64](x)[i] = float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1
		}
		return x
	}
	lengths := FromSlice([]int64{3, 5}, batch)
	qdocs, kdocs := FromSlice([]int64{0, 0, 1, 2, 1, 1, 1, 4}, batch, tq), FromSlice([]int64{0, 0, 1, 1, 2, 1, 1, 1, 1, 2}, batch, tk)
	options := map[string]AttentionOptions{
		"none": {}, "causal": {Causal: true, Offset: 1}, "before": {Causal: true, Offset: -2}, "lengths": {KeyLengths: lengths},
		"docs": {QueryDocs: qdocs, KeyDocs: kdocs}, "causal lengths": {Causal: true, Offset: 1, KeyLengths: lengths},
		"causal docs": {Causal: true, Offset: 1, QueryDocs: qdocs, KeyDocs: kdocs},
		"all":         {Causal: true, KeyLengths: lengths, QueryDocs: qdocs, KeyDocs: kdocs},
	}
	require.Len(t, cases, len(options))
	for name, o := range options {
		tape := NewTape(hostDevice)
		in := [3]Tensor{tape.Leaf(value(1, batch, tq, heads*hd)), tape.Leaf(value(2, batch, tk, kv*hd)), tape.Leaf(value(3, batch, tk, kv*hd))}
		out, lse := CrossAttentionLSE(in[0], in[1], in[2], hd, o)
		zero := FromSlice([]float64{0}, 1)
		sums := Where(lse.Gt(FromSlice([]float64{-1e30}, 1)), lse, zero)
		tape.Keep(out)
		tape.Keep(sums)
		tape.Backward(out.Mul(value(4, batch, tq, heads*hd)).Sum().Add(sums.Mul(value(5, batch, heads, tq)).Sum()))
		want := cases[name]
		assert.InDeltaSlice(t, want.Out, Floats(out), 1e-13, name)
		assert.InDeltaSlice(t, want.LSE, Floats(sums), 1e-13, name)
		for i, x := range in {
			assert.InDeltaSlice(t, want.Grads[i], Floats(tape.GradOf(x)), 1e-13, "%s: gradient %d", name, i)
		}
	}
}

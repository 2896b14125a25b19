package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// attentionWith returns outputs, logarithmic sums and gradients of attention, computed by the given kernels for bfloat16.
func attentionWith(t *testing.T, threads int, kernels map[Op]Kernel, drop float64) (results [][]float64) {
	dev := &FaultyDevice{CPU: NewCPU(threads), Table: cpuTable}
	defer dev.Close()
	called := map[Op]bool{}
	for op, k := range kernels {
		dev.Table[op][BFloat16] = func(q Queue, a *Args) { called[op] = true; k(q, a) }
	}
	const batch, queries, keys, heads, kv, hd = 2, 67, 71, 4, 2, 6
	tape := NewTape(dev, Seed(5))
	defer tape.Close()
	docs := func(n, each int) Tensor {
		x := make([]int64, batch*n)
		for i := range x {
			x[i] = int64(i % n / each)
		}
		return FromSlice(x, batch, n)
	}
	q, k, v := Random(dev, BFloat16, 1, batch, queries, heads*hd), Random(dev, BFloat16, 2, batch, keys, kv*hd),
		Random(dev, BFloat16, 3, batch, keys, kv*hd)
	qkv := Random(dev, BFloat16, 4, batch, queries, 3*heads*hd)
	var params []*Param
	use := func(x Tensor) Tensor {
		p := NewParam(Constant(0), x.Shape().Dims...)
		p.SetValue(x)
		params = append(params, p)
		return tape.Use(p)
	}
	masks := AttentionOptions{Causal: true, Offset: 4, Drop: drop, Layer: 3, KeyLengths: FromSlice([]int64{keys, keys / 2}, batch),
		QueryDocs: docs(queries, 30), KeyDocs: docs(keys, 40)}
	out, lse := CrossAttentionLSE(use(q), use(k), use(v), hd, masks)
	self := Attention(use(qkv), hd, AttentionOptions{Causal: true, Drop: drop, Layer: 3})
	for _, x := range []*Tensor{&out, &lse, &self} {
		*x = tape.Keep(*x)
	}
	seen := lse.Exp().Scale(0.02) // 0 for queries that see no key
	tape.Backward(out.Square().Sum().Add(self.Square().Sum()).Cast(Float32).Add(seen.Sum()))
	results = append(results, Floats(out), Floats(self), Floats(lse))
	for _, p := range params {
		results = append(results, Floats(p.Grad))
	}
	require.Len(t, called, len(kernels))
	return results
}

// On every CPU, also on those that convert operands instead, the kernels of bfloat16 numbers compute what the others do, nearly. The bits
// do not depend on the number of threads.
func TestBF16AttentionIsAttention(t *testing.T) {
	converts := map[Op]Kernel{}
	for _, op := range []Op{OpAttention, OpAttentionGrad, OpCrossAttention, OpCrossAttentionGrad} {
		converts[op] = throughFloat32(cpuTable[op][Float32])
	}
	own := map[Op]Kernel{OpAttention: attentionBF16(), OpAttentionGrad: attentionGradBF16(), OpCrossAttention: crossAttentionBF16(),
		OpCrossAttentionGrad: crossAttentionGradBF16()}
	for _, drop := range []float64{0, 0.3} {
		want, got := attentionWith(t, 1, converts, drop), attentionWith(t, 1, own, drop)
		for i, x := range want {
			for j := range x {
				if x[j] != got[i][j] { // also infinities
					require.InDelta(t, x[j], got[i][j], 0.02+0.02*math.Abs(x[j]), "result %d: element %d", i, j)
				}
			}
		}
		require.Equal(t, got, attentionWith(t, 3, own, drop))
	}
}

package ops

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// ownTable is a CPU with a table of its own.
type ownTable struct {
	*cpu.Device
	table tensor.Table
}

func (d *ownTable) Kernels() *tensor.Table { return &d.table }

// attentionWith returns outputs, logarithmic sums and gradients of attention, computed by the given kernels for bfloat16.
func attentionWith(t *testing.T, threads int, kernels map[tensor.Op]tensor.Kernel, drop float64) (results [][]float64) {
	dev := &ownTable{Device: cpu.New(threads)}
	dev.table = *dev.Device.Kernels()
	defer dev.Close()
	called := map[tensor.Op]bool{}
	for op, k := range kernels {
		dev.table[op][tensor.BFloat16] = func(q tensor.Queue, a *tensor.Args) { called[op] = true; k(q, a) }
	}
	const batch, queries, keys, heads, kv, hd = 2, 67, 71, 4, 2, 6
	tape := tensor.NewTape(dev, tensor.Seed(5))
	defer tape.Close()
	docs := func(n, each int) tensor.Tensor {
		x := make([]int64, batch*n)
		for i := range x {
			x[i] = int64(i % n / each)
		}
		return tensor.FromSlice(x, batch, n)
	}
	random := func(dev tensor.Device, d tensor.DType, key uint64, dims ...int) tensor.Tensor {
		x := tensor.New(dev, d, dims...)
		tensor.UniformInit(-1, 1).Fill(x, key, 0)
		return x
	}
	q, k, v := random(dev, tensor.BFloat16, 1, batch, queries, heads*hd), random(dev, tensor.BFloat16, 2, batch, keys, kv*hd),
		random(dev, tensor.BFloat16, 3, batch, keys, kv*hd)
	qkv := random(dev, tensor.BFloat16, 4, batch, queries, 3*heads*hd)
	var params []*tensor.Param
	use := func(x tensor.Tensor) tensor.Tensor {
		p := tensor.NewParam(tensor.Constant(0), x.Shape().Dims...)
		p.SetValue(x)
		params = append(params, p)
		return tape.Use(p)
	}
	masks := AttentionOptions{Causal: true, Offset: 4, Drop: drop, Layer: 3, KeyLengths: tensor.FromSlice([]int64{keys, keys / 2}, batch),
		QueryDocs: docs(queries, 30), KeyDocs: docs(keys, 40)}
	out, lse := CrossAttentionLSE(use(q), use(k), use(v), hd, masks)
	self := Attention(use(qkv), hd, AttentionOptions{Causal: true, Drop: drop, Layer: 3})
	for _, x := range []*tensor.Tensor{&out, &lse, &self} {
		*x = tape.Keep(*x)
	}
	seen := lse.Exp().Scale(0.02) // 0 for queries that see no key
	tape.Backward(out.Square().Sum().Add(self.Square().Sum()).Cast(tensor.Float32).Add(seen.Sum()))
	results = append(results, tensor.Floats(out), tensor.Floats(self), tensor.Floats(lse))
	for _, p := range params {
		results = append(results, tensor.Floats(p.Grad))
	}
	require.Len(t, called, len(kernels))
	return results
}

// On every CPU, also on those that convert operands instead, the kernels of bfloat16 numbers compute what the others do, nearly. The bits
// do not depend on the number of threads.
func TestBF16AttentionIsAttention(t *testing.T) {
	converts, own, host := map[tensor.Op]tensor.Kernel{}, map[tensor.Op]tensor.Kernel{}, cpu.New(1)
	defer host.Close()
	for _, op := range []tensor.Op{OpAttention, OpAttentionGrad, OpCrossAttention, OpCrossAttentionGrad} {
		converts[op] = cpu.ThroughFloat32(host.Kernels()[op][tensor.Float32])
		own[op] = flashBF16.kernel(op == OpAttentionGrad || op == OpCrossAttentionGrad)
	}
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

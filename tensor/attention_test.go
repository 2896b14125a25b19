package tensor_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
)

// plainAttention is the oracle of Attention: the same from matrix products and a softmax over all probabilities.
func plainAttention(qkv Tensor, hd int, o AttentionOptions) Tensor {
	b, n, heads := qkv.Dim(0), qkv.Dim(1), qkv.Dim(2)/(3*hd)
	y := qkv.Reshape(b, n, 3, heads, hd).Permute(2, 0, 3, 1, 4) // one copy; q, k and v are views of it
	part := func(i int) Tensor { return y.Slice(0, i, i+1).Reshape(b, heads, n, hd) }
	p := MatMul(part(0).Scale(cmp.Or(o.Scale, 1/math.Sqrt(float64(hd)))), part(1), false, true)
	if o.SoftCap != 0 {
		p = p.Scale(1 / o.SoftCap).Tanh().Scale(o.SoftCap)
	}
	switch {
	case o.Window != 0:
		hidden := New(hostDevice, Float32, n, n)
		for i := range n {
			for j := range max(0, i+1-o.Window) {
				Data[float32](hidden)[i*n+j] = float32(math.Inf(-1))
			}
		}
		p = p.Add(qkv.Tape().Input(hidden).Cast(p.DType())).SoftmaxCausal()
	case o.Causal:
		p = p.SoftmaxCausal()
	default:
		p = p.Softmax()
	}
	p = p.Dropout(o.Drop, o.Layer)
	return MatMul(p, part(2), false, false).Permute(0, 2, 1, 3).Reshape(b, n, heads*hd)
}

type attentionFunc func(qkv Tensor, hd int, o AttentionOptions) Tensor

// attentionRun returns the output of f and the gradient of qkv, for the loss sum(out²).
func attentionRun(dev Device, f attentionFunc, qkv Tensor, hd int, o AttentionOptions) (out, grad []float64) {
	p := NewParam(Constant(0), qkv.Shape().Dims...)
	p.SetValue(New(dev, qkv.DType(), p.Dims()...))
	copy(p.Value.Bytes(), qkv.Bytes())
	tape := NewTape(dev, Seed(5))
	defer tape.Close()
	tape.Input(qkv) // for its Rows
	y := tape.Keep(f(tape.Use(p), hd, o))
	tape.Backward(y.Square().Sum())
	return Floats(y), Floats(p.Grad)
}

// Attention in blocks equals plain attention, with the same dropped elements.
func TestAttentionIsPlainAttention(t *testing.T) {
	dev := NewCPU(3)
	defer dev.Close()
	for _, d := range []DType{Float64, Float32, BFloat16} {
		tol := map[DType]float64{Float64: 1e-12, Float32: 2e-5, BFloat16: 0.1}[d]
		for _, s := range [][4]int{{2, 67, 2, 3}, {1, 300, 1, 16}, {3, 5, 4, 1}, {2, 0, 2, 4}, {0, 3, 2, 4}} {
			qkv := random(dev, d, 7, s[0], s[1], 3*s[2]*s[3])
			for _, o := range []AttentionOptions{{}, {Causal: true}, {Drop: 0.3, Layer: 8}, {Causal: true, Drop: 0.3, Layer: 8},
				{AttentionScores: AttentionScores{SoftCap: 1.5, Scale: 0.7}},
				{Causal: true, AttentionScores: AttentionScores{Window: 1}},
				{Causal: true, Drop: 0.3, Layer: 8, AttentionScores: AttentionScores{Window: 40, SoftCap: 0.8, Scale: 0.3}}} {
				out, grad := attentionRun(dev, plainAttention, qkv, s[3], o)
				gotOut, gotGrad := attentionRun(dev, Attention, qkv, s[3], o)
				msg := fmt.Sprint(d, s, o)
				require.InDeltaSlice(t, out, gotOut, tol, msg)
				require.InDeltaSlice(t, grad, gotGrad, 2*tol, msg)
			}
		}
	}
}

// A batch that is divided over ranks drops the same probabilities as the whole batch.
func TestAttentionOverRanks(t *testing.T) {
	x, o := random(hostDevice, Float64, 1, 7, 6, 3*2*2), AttentionOptions{Causal: true, Drop: 0.3, Layer: 8}
	out, grad := attentionRun(hostDevice, Attention, x.WithRows(Rows{Stride: 1, Total: 7}), 2, o)
	for rank := range 3 {
		part := shareOf(x, rank, 3, false)
		gotOut, gotGrad := attentionRun(hostDevice, Attention, part, 2, o)
		for i := range part.Dim(0) {
			row, n := rank+3*i, len(out)/7
			require.InDeltaSlice(t, out[row*n:(row+1)*n], gotOut[i*n:(i+1)*n], 1e-14)
			require.InDeltaSlice(t, grad[row*3*n:(row+1)*3*n], gotGrad[i*3*n:(i+1)*3*n], 1e-14)
		}
	}
}

// The memory of a step grows with the number of positions, not with its square.
func TestAttentionMemory(t *testing.T) {
	peak := func(f attentionFunc, steps int) float64 {
		p := NewParam(Constant(1), 1, steps, 3*8)
		p.Make(hostDevice, Float32, 1)
		tape := NewTape(hostDevice)
		defer tape.Close()
		tape.Backward(f(tape.Use(p), 8, AttentionOptions{Causal: true}).Sum())
		_, n := tape.Memory()
		return float64(n)
	}
	blocks, plain := peak(Attention, 1024), peak(plainAttention, 1024)
	t.Logf("1024 positions of 8 features: %.0f KiB in blocks, %.0f plain", blocks/1024, plain/1024)
	assert.LessOrEqual(t, blocks, 1024*8*4*6.0, "output, its gradient and the gradients of queries, keys and values, and a little")
	assert.Greater(t, plain, 1024*1024*4.0)
	assert.InEpsilon(t, 2*blocks, peak(Attention, 2048), 0.05)
}

func TestAttentionMisuse(t *testing.T) {
	x := NewTape(hostDevice).Input(New(hostDevice, Float32, 2, 3, 12))
	assert.ErrorContains(t, Try(func() { Attention(x, 5, AttentionOptions{}) }), "attention float32[2,3,12]: needs [batch, time, 3·heads·5]")
	assert.ErrorContains(t, Try(func() { Attention(x, 0, AttentionOptions{}) }), "needs [batch")
	assert.ErrorContains(t, Try(func() { Attention(x.Reshape(6, 12), 4, AttentionOptions{}) }), "needs [batch")
	assert.ErrorContains(t, Try(func() { Attention(x, 4, AttentionOptions{Drop: 1}) }), "probability 1 is not in [0,1)")
	for _, c := range []struct {
		s    AttentionScores
		want string
	}{
		{AttentionScores{Window: -1}, "a Window of -1 has no meaning"}, {AttentionScores{Window: 2}, "a Window of 2 has no meaning"},
		{AttentionScores{SoftCap: -1}, "Scale 0 and SoftCap -1 must be positive"},
		{AttentionScores{Scale: math.NaN()}, "Scale NaN and SoftCap 0 must be positive"},
	} {
		assert.ErrorContains(t, Try(func() { Attention(x, 4, AttentionOptions{AttentionScores: c.s}) }), c.want)
	}
}

// BenchmarkAttention measures forward and backward, in blocks and plain. GFLOP/s counts the products of all pairs of positions, also masked
// ones, but not those that the blocks compute twice: 12·T²·d.
func BenchmarkAttention(b *testing.B) {
	for _, c := range []struct{ batch, steps, heads int }{{8, 128, 4}, {4, 512, 4}, {1, 2048, 4}} {
		for _, threads := range []int{1, 2} {
			for _, f := range []struct {
				name string
				fn   attentionFunc
			}{{"blocks", Attention}, {"plain", plainAttention}} {
				b.Run(fmt.Sprintf("%dx%dx%d/threads=%d/%s", c.batch, c.steps, c.heads, threads, f.name), func(b *testing.B) {
					dev := NewCPU(threads)
					defer dev.Close()
					p := NewParam(NormalInit(0, 1), c.batch, c.steps, 3*64*c.heads)
					p.Make(dev, Float32, 1)
					tape := NewTape(dev)
					for b.Loop() {
						tape.Backward(f.fn(tape.Use(p), 64, AttentionOptions{Causal: true}).Sum())
						p.Consume()
						tape.Reset()
					}
					flops := 12 * float64(c.batch) * float64(c.heads) * float64(c.steps) * float64(c.steps) * 64
					b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

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

package ops_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// plainAttention is the oracle of Attention: the same from matrix products and a softmax over all probabilities.
func plainAttention(qkv tensor.Tensor, hd int, o ops.AttentionOptions) tensor.Tensor {
	b, n, heads := qkv.Dim(0), qkv.Dim(1), qkv.Dim(2)/(3*hd)
	y := qkv.Reshape(b, n, 3, heads, hd).Permute(2, 0, 3, 1, 4) // one copy; q, k and v are views of it
	part := func(i int) tensor.Tensor { return y.Slice(0, i, i+1).Reshape(b, heads, n, hd) }
	p := tensor.MatMul(part(0).Scale(cmp.Or(o.Scale, 1/math.Sqrt(float64(hd)))), part(1), false, true)
	if o.SoftCap != 0 {
		p = p.Scale(1 / o.SoftCap).Tanh().Scale(o.SoftCap)
	}
	switch {
	case o.Window != 0:
		hidden := tensor.New(host, tensor.Float32, n, n)
		for i := range n {
			for j := range max(0, i+1-o.Window) {
				tensor.Data[float32](hidden)[i*n+j] = float32(math.Inf(-1))
			}
		}
		p = ops.SoftmaxCausal(p.Add(qkv.Tape().Input(hidden).Cast(p.DType())))
	case o.Causal:
		p = ops.SoftmaxCausal(p)
	default:
		p = ops.Softmax(p)
	}
	p = ops.Dropout(p, o.Drop, o.Layer)
	return tensor.MatMul(p, part(2), false, false).Permute(0, 2, 1, 3).Reshape(b, n, heads*hd)
}

type attentionFunc func(qkv tensor.Tensor, hd int, o ops.AttentionOptions) tensor.Tensor

// attentionRun returns the output of f and the gradient of qkv, for the loss sum(out²).
func attentionRun(dev tensor.Device, f attentionFunc, qkv tensor.Tensor, hd int, o ops.AttentionOptions) (out, grad []float64) {
	p := tensor.NewParam(tensor.Constant(0), qkv.Shape().Dims...)
	p.SetValue(tensor.New(dev, qkv.DType(), p.Dims()...))
	copy(p.Value.Bytes(), qkv.Bytes())
	tape := tensor.NewTape(dev, tensor.Seed(5))
	defer tape.Close()
	tape.Input(qkv) // for its Rows
	y := tape.Keep(f(tape.Use(p), hd, o))
	tape.Backward(y.Square().Sum())
	return tensor.Floats(y), tensor.Floats(p.Grad)
}

// Attention in blocks equals plain attention, with the same dropped elements.
func TestAttentionIsPlainAttention(t *testing.T) {
	dev := cpu.New(3)
	defer dev.Close()
	for i, d := range []tensor.DType{tensor.Float64, tensor.Float32, tensor.BFloat16} {
		tol := map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 2e-5, tensor.BFloat16: 0.1}[d]
		for j, s := range [][4]int{{2, 67, 2, 3}, {1, 300, 1, 16}, {3, 5, 4, 1}, {2, 0, 2, 4}, {0, 3, 2, 4}} {
			qkv := random(dev, d, 7, s[0], s[1], 3*s[2]*s[3])
			for k, o := range []ops.AttentionOptions{{}, {Causal: true}, {Drop: 0.3, Layer: 8}, {Causal: true, Drop: 0.3, Layer: 8},
				{AttentionScores: ops.AttentionScores{SoftCap: 1.5, Scale: 0.7}},
				{Causal: true, AttentionScores: ops.AttentionScores{Window: 1}},
				{Causal: true, Drop: 0.3, Layer: 8, AttentionScores: ops.AttentionScores{Window: 40, SoftCap: 0.8, Scale: 0.3}}} {
				if (i+j+k)%3 != 0 && !reliability.Long(t) { // in the short form, each type and each size has a third of the options
					continue
				}
				out, grad := attentionRun(dev, plainAttention, qkv, s[3], o)
				gotOut, gotGrad := attentionRun(dev, ops.Attention, qkv, s[3], o)
				msg := fmt.Sprint(d, s, o)
				require.InDeltaSlice(t, out, gotOut, tol, msg)
				require.InDeltaSlice(t, grad, gotGrad, 2*tol, msg)
			}
		}
	}
}

func TestLongAttentionIsPlainAttention(t *testing.T) {
	reliability.AsLong(t, TestAttentionIsPlainAttention)
}

// A batch that is divided over ranks drops the same probabilities as the whole batch.
func TestAttentionOverRanks(t *testing.T) {
	x, o := random(host, tensor.Float64, 1, 7, 6, 3*2*2), ops.AttentionOptions{Causal: true, Drop: 0.3, Layer: 8}
	out, grad := attentionRun(host, ops.Attention, x.WithRows(tensor.Rows{Stride: 1, Total: 7}), 2, o)
	for rank := range 3 {
		part := rowsOf(x, rank, 3, (9-rank)/3)
		gotOut, gotGrad := attentionRun(host, ops.Attention, part, 2, o)
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
		p := tensor.NewParam(tensor.Constant(1), 1, steps, 3*8)
		p.Make(host, tensor.Float32, 1)
		tape := tensor.NewTape(host)
		defer tape.Close()
		tape.Backward(f(tape.Use(p), 8, ops.AttentionOptions{Causal: true}).Sum())
		_, n := tape.Memory()
		return float64(n)
	}
	blocks, plain := peak(ops.Attention, 1024), peak(plainAttention, 1024)
	t.Logf("1024 positions of 8 features: %.0f KiB in blocks, %.0f plain", blocks/1024, plain/1024)
	assert.LessOrEqual(t, blocks, 1024*8*4*6.0, "output, its gradient and the gradients of queries, keys and values, and a little")
	assert.Greater(t, plain, 1024*1024*4.0)
	assert.InEpsilon(t, 2*blocks, peak(ops.Attention, 2048), 0.05)
}

func TestAttentionMisuse(t *testing.T) {
	x := tensor.NewTape(host).Input(tensor.New(host, tensor.Float32, 2, 3, 12))
	assert.ErrorContains(t, tensor.Try(func() { ops.Attention(x, 5, ops.AttentionOptions{}) }),
		"attention float32[2,3,12]: needs [batch, time, 3·heads·5]")
	assert.ErrorContains(t, tensor.Try(func() { ops.Attention(x, 0, ops.AttentionOptions{}) }), "needs [batch")
	assert.ErrorContains(t, tensor.Try(func() { ops.Attention(x.Reshape(6, 12), 4, ops.AttentionOptions{}) }), "needs [batch")
	assert.ErrorContains(t, tensor.Try(func() { ops.Attention(x, 4, ops.AttentionOptions{Drop: 1}) }), "probability 1 is not in [0,1)")
	for _, c := range []struct {
		s    ops.AttentionScores
		want string
	}{
		{ops.AttentionScores{Window: -1}, "a Window of -1 has no meaning"}, {ops.AttentionScores{Window: 2}, "a Window of 2 has no meaning"},
		{ops.AttentionScores{SoftCap: -1}, "Scale 0 and SoftCap -1 must be positive"},
		{ops.AttentionScores{Scale: math.NaN()}, "Scale NaN and SoftCap 0 must be positive"},
	} {
		assert.ErrorContains(t, tensor.Try(func() { ops.Attention(x, 4, ops.AttentionOptions{AttentionScores: c.s}) }), c.want)
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
			}{{"blocks", ops.Attention}, {"plain", plainAttention}} {
				b.Run(fmt.Sprintf("%dx%dx%d/threads=%d/%s", c.batch, c.steps, c.heads, threads, f.name), func(b *testing.B) {
					dev := cpu.New(threads)
					defer dev.Close()
					p := tensor.NewParam(tensor.NormalInit(0, 1), c.batch, c.steps, 3*64*c.heads)
					p.Make(dev, tensor.Float32, 1)
					tape := tensor.NewTape(dev)
					for b.Loop() {
						tape.Backward(f.fn(tape.Use(p), 64, ops.AttentionOptions{Causal: true}).Sum())
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
	value := func(salt int, dims ...int) tensor.Tensor {
		x := tensor.New(host, tensor.Float64, dims...)
		for i := range x.Len() {
			tensor.Data[float64](x)[i] = float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1
		}
		return x
	}
	lengths := tensor.FromSlice([]int64{3, 5}, batch)
	qdocs, kdocs := tensor.FromSlice([]int64{0, 0, 1, 2, 1, 1, 1, 4}, batch, tq),
		tensor.FromSlice([]int64{0, 0, 1, 1, 2, 1, 1, 1, 1, 2}, batch, tk)
	options := map[string]ops.AttentionOptions{
		"none": {}, "causal": {Causal: true, Offset: 1}, "before": {Causal: true, Offset: -2}, "lengths": {KeyLengths: lengths},
		"docs": {QueryDocs: qdocs, KeyDocs: kdocs}, "causal lengths": {Causal: true, Offset: 1, KeyLengths: lengths},
		"causal docs": {Causal: true, Offset: 1, QueryDocs: qdocs, KeyDocs: kdocs},
		"all":         {Causal: true, KeyLengths: lengths, QueryDocs: qdocs, KeyDocs: kdocs},
	}
	require.Len(t, cases, len(options))
	for name, o := range options {
		tape := tensor.NewTape(host)
		in := [3]tensor.Tensor{tape.Leaf(value(1, batch, tq, heads*hd)), tape.Leaf(value(2, batch, tk, kv*hd)),
			tape.Leaf(value(3, batch, tk, kv*hd))}
		out, lse := ops.CrossAttentionLSE(in[0], in[1], in[2], hd, o)
		zero := tensor.FromSlice([]float64{0}, 1)
		sums := ops.Where(lse.Gt(tensor.FromSlice([]float64{-1e30}, 1)), lse, zero)
		tape.Keep(out)
		tape.Keep(sums)
		tape.Backward(out.Mul(value(4, batch, tq, heads*hd)).Sum().Add(sums.Mul(value(5, batch, heads, tq)).Sum()))
		want := cases[name]
		assert.InDeltaSlice(t, want.Out, tensor.Floats(out), 1e-13, name)
		assert.InDeltaSlice(t, want.LSE, tensor.Floats(sums), 1e-13, name)
		for i, x := range in {
			assert.InDeltaSlice(t, want.Grads[i], tensor.Floats(tape.GradOf(x)), 1e-13, "%s: gradient %d", name, i)
		}
	}
}

// Attention has no part of the tokens of a row.
func TestAttentionOfTokens(t *testing.T) {
	x := tensor.New(host, tensor.Float64, 2, 3, 6).WithRows(tensor.Rows{First: 1, Stride: 2, Total: 4})
	o := ops.AttentionOptions{Drop: 0.4, Layer: 8, At: tensor.Region{Rows: tensor.Span{Total: 4}}}
	err := tensor.Try(func() { ops.Attention(tensor.NewTape(host).Input(x), 2, o) })
	assert.ErrorContains(t, err, "a part of 4 leading elements needs a batch of whole rows side by side, not 2 rows of 4")
}

// Heads that are divided over ranks drop the same probabilities as all heads on one rank.
func TestAttentionOfHeads(t *testing.T) {
	const b, steps, heads, hd = 2, 5, 3, 2
	x := random(host, tensor.Float64, 1, b, steps, 3*heads*hd)
	all := tensor.Floats(x)
	o := ops.AttentionOptions{Causal: true, Drop: 0.4, Layer: 8}
	r := tensor.Rows{First: 1, Stride: 1, Total: 4}
	out, grad := attentionRun(host, ops.Attention, x.WithRows(r), hd, o)
	for _, cut := range [][2]int{{0, 1}, {1, 3}, {0, 3}} {
		n := cut[1] - cut[0]
		var part []float64
		for i := range b * steps * 3 {
			part = append(part, all[(i*heads+cut[0])*hd:(i*heads+cut[1])*hd]...)
		}
		o.At = tensor.Region{Cols: tensor.Span{First: cut[0], Total: heads}}
		got, g := attentionRun(host, ops.Attention, tensor.FromSlice(part, b, steps, 3*n*hd).WithRows(r), hd, o)
		for i := range b * steps {
			require.InDeltaSlice(t, out[(i*heads+cut[0])*hd:(i*heads+cut[1])*hd], got[i*n*hd:(i+1)*n*hd], 1e-14, fmt.Sprint(cut))
		}
		for i := range b * steps * 3 {
			require.InDeltaSlice(t, grad[(i*heads+cut[0])*hd:(i*heads+cut[1])*hd], g[i*n*hd:(i+1)*n*hd], 1e-14, fmt.Sprint(cut))
		}
	}
	half := x.WithRows(tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{First: 0, Total: 10}})
	err := tensor.Try(func() { ops.Attention(tensor.NewTape(host).Input(half), hd, ops.AttentionOptions{}) })
	assert.ErrorContains(t, err, "5 positions of 10: a position would see this rank's part of its sequence only")
}

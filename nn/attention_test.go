package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

func TestAttentionIsCausal(t *testing.T) {
	a := nn.NewAttention(8, 2)
	nn.Init(a, host, tensor.Float64, 1)
	tape := tensor.NewTape(host, tensor.NoGrad())
	x := tensor.New(host, tensor.Float64, 1, 5, 8)
	value(x, 1, 1)
	before := tensor.Floats(a.Forward(tape.Input(x)))
	tensor.Data[float64](x)[3*8] += 1 // position 3
	tape.Reset()
	after := tensor.Floats(a.Forward(tape.Input(x)))
	assert.Equal(t, before[:3*8], after[:3*8], "earlier positions do not see it")
	for i := 3; i < 5; i++ {
		assert.NotEqual(t, before[i*8:(i+1)*8], after[i*8:(i+1)*8], "position %d sees it", i)
	}
}

// rows copies rows lo to hi of each part of src, a matrix [parts·n, cols], to dst.
func rows(dst, src tensor.Tensor, parts, lo, hi, cols int) {
	n := src.Len() / parts / cols
	d, s := tensor.Data[float64](dst), tensor.Data[float64](src)
	for p := range parts {
		d = d[copy(d, s[(p*n+lo)*cols:(p*n+hi)*cols]):]
	}
}

// TestAttentionWithPartOfTheHeads cuts 4 heads into 1 and 3, as tensor parallelism does, and adds up the outputs.
func TestAttentionWithPartOfTheHeads(t *testing.T) {
	const d, hd = 8, 2
	whole := nn.NewAttention(d, d/hd)
	assert.Equal(t, []int{d, d, d}, whole.QKV.Parts)
	nn.Init(whole, host, tensor.Float64, 1)
	x := tensor.New(host, tensor.Float64, 2, 5, d)
	value(x, 1, 1)
	tape := tensor.NewTape(host, tensor.NoGrad())
	in := tape.Input(x)
	sum := tensor.Tensor{}
	for _, cut := range [][2]int{{0, hd}, {hd, d}} {
		n := cut[1] - cut[0]
		part := &nn.Attention{QKV: nn.NewLinear(d, 3*n), Out: nn.NewLinear(n, d), HeadDim: hd}
		nn.Init(part, host, tensor.Float64, 2)
		rows(part.QKV.W.Value, whole.QKV.W.Value, 3, cut[0], cut[1], d)
		rows(part.QKV.B.Value, whole.QKV.B.Value, 3, cut[0], cut[1], 1)
		rows(part.Out.W.Value, whole.Out.W.Value, d, cut[0], cut[1], 1) // columns
		part.Out.B = nil
		if y := part.Forward(in); sum.IsZero() {
			sum = y
		} else {
			sum = sum.Add(y)
		}
	}
	sum = sum.Add(tape.Use(whole.Out.B))
	assert.InDeltaSlice(t, tensor.Floats(whole.Forward(in)), tensor.Floats(sum), 1e-14)
}

func TestAttentionMisuse(t *testing.T) {
	assert.ErrorContains(t, tensor.Try(func() { nn.NewAttention(8, 3) }), "do not divide")
	a := nn.NewAttention(8, 2)
	a.HeadDim = 5
	nn.Init(a, host, tensor.Float32, 1)
	tape := tensor.NewTape(host)
	x := tape.Input(tensor.New(host, tensor.Float32, 1, 2, 8))
	assert.ErrorContains(t, tensor.Try(func() { a.Forward(x) }),
		"float32[1,2,24], not [batch, time, 3·heads·5], for an input of float32[1,2,8]")
	assert.ErrorContains(t, tensor.Try(func() { a.Forward(x.Reshape(2, 8)) }), "QKV gives float32[2,24], not [batch, time")
}

// TestAttentionDropsProbabilities: with values of one, a position's output is the sum of its probabilities.
func TestAttentionDropsProbabilities(t *testing.T) {
	a := nn.NewAttention(2, 1)
	a.Drop = nn.NewDropout(0.5)
	for _, p := range nn.Init(a, host, tensor.Float64, 1) {
		clear(tensor.Data[float64](p.Value))
	}
	copy(tensor.Data[float64](a.QKV.B.Value)[4:], []float64{1, 1})
	copy(tensor.Data[float64](a.Out.W.Value), []float64{1, 0, 0, 1})
	x := tensor.New(host, tensor.Float64, 1, 8, 2)
	sums := func(o ...tensor.TapeOption) []float64 {
		tape := tensor.NewTape(host, o...)
		return tensor.Floats(a.Forward(tape.Input(x)))
	}
	for _, v := range sums(tensor.Eval()) {
		assert.InDelta(t, 1, v, 1e-15)
	}
	dropped := 0
	for i, v := range sums() { // a multiple of 2/(i/2+1): probabilities are equal, and doubled or gone
		n := float64(i/2 + 1)
		assert.InDelta(t, v*n/2, float64(int(v*n/2+0.5)), 1e-12)
		if v != 1 {
			dropped++
		}
	}
	assert.NotZero(t, dropped)
}

// core is a Function for the places of Core.
type core struct {
	calls int
	fn    func(in []tensor.Tensor) tensor.Tensor
}

func (*core) Name() string { return "core" }

func (f *core) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	f.calls++
	return f.fn(in)
}

func (*core) Backward(_ *tensor.Ctx, _ tensor.Tensor, _ []tensor.Tensor) {}

func scaling(by float64) *core {
	return &core{fn: func(in []tensor.Tensor) tensor.Tensor { return in[0].Scale(by) }}
}

// TestCore puts other functions in the place where positions meet.
func TestCore(t *testing.T) {
	const d = 8
	a := nn.NewAttention(d, 2)
	nn.Init(a, host, tensor.Float64, 1)
	x := tensor.New(host, tensor.Float64, 2, 5, d)
	value(x, 1, 1)
	tape := tensor.NewTape(host, tensor.NoGrad())
	in := tape.Input(x)
	whole, y := a.Forward(in), a.QKV.Forward(in)
	q, k, v := y.Slice(2, 0, d), y.Slice(2, d, 2*d), y.Slice(2, 2*d, 3*d)

	join := scaling(1)
	a.Join = join
	assert.InDeltaSlice(t, tensor.Floats(whole), tensor.Floats(a.Forward(in)), 1e-14)
	assert.Equal(t, 1, join.calls)
	mix := &core{fn: func(in []tensor.Tensor) tensor.Tensor { return in[0].Add(in[1]).Mul(in[2]) }}
	a.Spread, a.Mix, a.Join = scaling(2), mix, scaling(3)
	want := a.Out.Forward(q.Scale(2).Add(k.Scale(2)).Mul(v.Scale(2)).Scale(3))
	assert.InDeltaSlice(t, tensor.Floats(want), tensor.Floats(a.Forward(in)), 1e-14)
	rope := nn.NewRotary(4, 9)
	want = rope.Forward(q.Scale(2), 0).Add(rope.Forward(k.Scale(2), 0)).Mul(v.Scale(2)).Scale(3)
	assert.InDeltaSlice(t, tensor.Floats(want), tensor.Floats(a.Attend(q, k, v, 4, rope, nil, nn.T{})), 1e-14, "rotary after Spread")
	calls := mix.calls
	a.Attend(q, k, v, 4, nil, ops.NewKVCache(9), nn.T{})
	assert.Equal(t, calls, mix.calls, "a text that is written has whole sequences")
	assert.PanicsWithError(t, "nn.Attend: packed documents need no cache: with one, attention has no masks",
		func() { a.Attend(q, k, v, 4, nil, ops.NewKVCache(9), q) })

	a.Scores.Window = 2
	assert.ErrorContains(t, tensor.Try(func() { a.Forward(in) }), "computes no windows, no caps and no other scale of scores: {Window:2")
	a.Core = nn.Core{Scores: a.Scores}
	windows := ops.CrossAttention(q, k, v, 4, ops.AttentionOptions{Causal: true, AttentionScores: a.Scores})
	assert.Equal(t, tensor.Floats(a.Out.Forward(windows)), tensor.Floats(a.Forward(in)))
	assert.Equal(t, tensor.Floats(windows), tensor.Floats(a.Attend(q, k, v, 4, nil, nil, nn.T{})))
	assert.InDeltaSlice(t, tensor.Floats(windows), tensor.Floats(a.Attend(q, k, v, 4, nil, ops.NewKVCache(9), nn.T{})), 1e-14)
	a.Spread, a.Mix, a.Join, a.Scores = scaling(2), mix, scaling(3), ops.AttentionScores{}

	a.Drop = nn.NewDropout(0.5)
	nn.ParamsOf(a)
	a.Forward(tensor.NewTape(host, tensor.NoGrad(), tensor.Eval()).Input(x))
	assert.ErrorContains(t, tensor.Try(func() { a.Forward(tensor.NewTape(host).Input(x)) }),
		"probabilities of attention cannot be dropped: set Drop to nil")
}

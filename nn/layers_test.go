package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

func moments(x tensor.Tensor) (mean, std, least, most float64) {
	v := tensor.Floats(x)
	least, most = math.Inf(1), math.Inf(-1)
	for _, a := range v {
		mean += a / float64(len(v))
		least, most = min(least, a), max(most, a)
	}
	for _, a := range v {
		std += (a - mean) * (a - mean) / float64(len(v))
	}
	return mean, math.Sqrt(std), least, most
}

func TestInit(t *testing.T) {
	m := nn.Sequential{nn.NewLinear(25, 400), nn.NewEmbedding(100, 100), nn.NewLayerNorm(7), nn.NewRMSNorm(7)}
	ps := nn.Init(m, host, tensor.Float32, 3)
	for _, p := range ps[:2] { // uniform in ±1/√25
		mean, std, least, most := moments(p.Value)
		assert.InDelta(t, 0, mean, 0.02, p.Name())
		assert.InDelta(t, 0.2/math.Sqrt(3), std, 0.01, p.Name())
		assert.InDelta(t, -0.2, least, 0.005, p.Name())
		assert.InDelta(t, 0.2, most, 0.005, p.Name())
	}
	mean, std, _, most := moments(ps[2].Value)
	assert.InDelta(t, 0, mean, 0.04)
	assert.InDelta(t, 1, std, 0.03)
	assert.Greater(t, most, 3.0)
	for i, want := range []float64{1, 0, 1} {
		_, _, least, most := moments(ps[3+i].Value)
		assert.Equal(t, []float64{want, want}, []float64{least, most}, ps[3+i].Name())
	}
	again := nn.Init(nn.Sequential{nn.NewLinear(25, 400), nn.NewLinear(25, 400)}, host, tensor.Float32, 3)
	assert.Equal(t, tensor.Floats(ps[0].Value), tensor.Floats(again[0].Value), "seed and name make the values")
	assert.NotEqual(t, tensor.Floats(again[0].Value), tensor.Floats(again[2].Value), "names differ")
	other := nn.Init(nn.Sequential{nn.NewLinear(25, 400)}, host, tensor.Float32, 4)
	assert.NotEqual(t, tensor.Floats(ps[0].Value), tensor.Floats(other[0].Value), "seeds differ")
}

// times multiplies by a number, and the gradient by another.
type times struct{ forward, backward float64 }

func (f times) Name() string { return "times" }
func (f times) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	return in[0].Scale(f.forward)
}
func (f times) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0] = g.Scale(f.backward)
}

// Types takes parts of features for the whole, as for a Post of one rank.
func (f times) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	in[0] = in[0].With(in[0].On(tensor.Cut), tensor.Invariant)
	return in[:1], nil
}

func TestLinearPreAndPost(t *testing.T) {
	for _, c := range []struct {
		name    string
		cut     bool // the bias is cut along with W's rows
		y       float64
		dx, db  float64
		pre, po tensor.Function
	}{
		{"none", false, 3*2 + 10, 3, 1, nil, nil},
		{"pre", false, 3*5*2 + 10, 3 * 7, 1, times{5, 7}, nil},
		{"post, whole bias", false, 11*3*2 + 10, 13 * 3, 1, nil, times{11, 13}},
		{"post, cut bias", true, 11 * (3*2 + 10), 13 * 3, 13, nil, times{11, 13}},
		{"both", false, 11*3*5*2 + 10, 13 * 3 * 7, 1, times{5, 7}, times{11, 13}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := nn.NewLinear(1, 1)
			if c.cut {
				l = nn.NewLinear(1, 2)
				l.W.Place(layout.Axis{Axes: 1, Ranks: 2}, layout.Division{})
				l.B.Place(layout.Axis{Axes: 1, Ranks: 2}, layout.Division{})
			}
			nn.Init(l, host, tensor.Float64, 1)
			tensor.Data[float64](l.W.Value)[0], tensor.Data[float64](l.B.Value)[0] = 3, 10
			l.Pre, l.Post = c.pre, c.po
			x := input(tensor.Float64, 0, 0, 1, 1)
			if c.cut {
				x.SumOver(1)
			}
			tensor.Data[float64](x.Value)[0] = 2
			tape := tensor.NewTape(host)
			y := tape.Keep(l.Forward(tape.Use(x)))
			tape.Backward(y)
			assert.Equal(t, []float64{c.y, c.dx, c.db}, []float64{y.Item(), x.Grad.Item(), l.B.Grad.ToLocal().Item()})
		})
	}
}

func TestEmbeddingPost(t *testing.T) {
	e := nn.NewEmbedding(3, 1)
	e.Post = times{2, 3}
	nn.Init(e, host, tensor.Float64, 1)
	tape := tensor.NewTape(host)
	y := tape.Keep(e.Forward(tape.Input(labels(1, 3, 1)))) // label 0
	tape.Backward(y.Reshape())
	assert.Equal(t, 2*tensor.Floats(e.W.Value)[0], y.Item())
	assert.Equal(t, []float64{3, 0, 0}, tensor.Floats(e.W.Grad))
}

func TestNoTape(t *testing.T) {
	x := tensor.New(host, tensor.Float32, 1, 4)
	for _, l := range []nn.Layer{nn.NewLinear(4, 4), nn.NewEmbedding(4, 4), nn.NewLayerNorm(4), nn.NewRMSNorm(4)} {
		nn.Init(l, host, tensor.Float32, 1)
		assert.ErrorContains(t, tensor.Try(func() { l.Forward(x) }), "Tape.Input")
	}
	tape := tensor.NewTape(host)
	assert.ErrorContains(t, tensor.Try(func() { nn.NewLinear(4, 4).Forward(tape.Input(x)) }), "never made")
}

func TestHits(t *testing.T) {
	tape := tensor.NewTape(host, tensor.NoGrad())
	logits := tape.Input(tensor.FromSlice([]float32{1, 3, 2, 9, 8, 7, 0, 0, 1}, 3, 3))
	assert.Equal(t, 1.0, nn.Hits(logits, tensor.FromSlice([]int64{1, 2, 0}, 3)))
	assert.Equal(t, 2.0, nn.Hits(logits.Reshape(3, 1, 3), tensor.FromSlice([]int64{1, 2, 2}, 3, 1)))
	err := tensor.Try(func() { nn.Hits(logits, tensor.FromSlice([]int64{1, 2}, 2)) })
	assert.ErrorContains(t, err, "do not fit")
}

// Ids and labels of Int32 are those of Int64, in forward and in Backward.
func TestInt32(t *testing.T) {
	layer := nn.NewEmbedding(4, 3)
	nn.Init(layer, host, tensor.Float64, 1)
	run := func(ids tensor.Tensor) (loss, hits float64, grad []float64) {
		tape := tensor.NewTape(host)
		y := layer.Forward(tape.Input(ids))
		mean := tape.Keep(nn.CrossEntropy(y, ids))
		hits = nn.Hits(y, ids)
		tape.Backward(mean)
		layer.W.Consume()
		return mean.Item(), hits, tensor.Floats(layer.W.Grad)
	}
	wantLoss, wantHits, wantGrad := run(tensor.FromSlice([]int64{2, 0, 2}, 3))
	loss, hits, grad := run(tensor.FromSlice([]int32{2, 0, 2}, 3))
	assert.Equal(t, wantLoss, loss)
	assert.Equal(t, wantHits, hits)
	assert.Equal(t, wantGrad, grad)
}

func TestDropoutProbability(t *testing.T) {
	for _, p := range []float64{-0.1, 1, 1.5, math.NaN()} {
		assert.ErrorContains(t, tensor.Try(func() { nn.NewDropout(p) }), "is not in [0,1)")
	}
}

func TestDropout(t *testing.T) {
	d := nn.NewDropout(0.25)
	x := tensor.New(host, tensor.Float32, 64, 64)
	value(x, 1, 1)
	tape := tensor.NewTape(host, tensor.Seed(5))
	assert.ErrorContains(t, tensor.Try(func() { d.Forward(tape.Input(x)) }), "has no name")
	eval := tensor.NewTape(host, tensor.Eval())
	assert.Equal(t, tensor.Floats(x), tensor.Floats(d.Forward(eval.Input(x))))

	nn.ParamsOf(nn.Sequential{nn.ReLU, d})
	whole := tensor.Floats(d.Forward(tape.Input(x)))
	zeros := 0
	for i, v := range tensor.Floats(x) {
		if whole[i] == 0 && v != 0 {
			zeros++
		} else {
			require.InDelta(t, v/0.75, whole[i], 1e-6)
		}
	}
	assert.InDelta(t, 1024, zeros, 4*math.Sqrt(4096*0.25*0.75))
	other := nn.NewDropout(0.25)
	nn.ParamsOf(nn.Sequential{other})
	assert.NotEqual(t, whole, tensor.Floats(other.Forward(tape.Input(x))), "another layer drops other places")
	part := tensor.FromSlice(tensor.Data[float32](x)[16*64:48*64], 32, 64)
	part = part.WithRows(tensor.Rows{First: 16, Stride: 1, Total: 64})
	tape = tensor.NewTape(host, tensor.Seed(5))
	assert.Equal(t, whole[16*64:48*64], tensor.Floats(d.Forward(tape.Input(part))), "rows of a rank drop as in the whole batch")
}

// A head's loss without logits is that of its logits, whatever head and options it has.
func TestLinearCrossEntropy(t *testing.T) {
	ignore, labels := int64(2), tensor.FromSlice([]int64{0, 2, 1, 2, 4, 3}, 6)
	weights := tensor.FromSlice([]float64{1, 2, 3, 4, 5}, 5)
	for name, c := range map[string]struct {
		head    *nn.Linear
		options []ops.CrossEntropyOptions
	}{
		"product": {head: &nn.Linear{W: nn.NewLinear(4, 5).W}},
		"bias":    {head: nn.NewLinear(4, 5)},
		"capped":  {head: &nn.Linear{W: nn.NewLinear(4, 5).W, SoftCap: 0.2}},
		"options": {head: &nn.Linear{W: nn.NewLinear(4, 5).W},
			options: []ops.CrossEntropyOptions{{Smoothing: 0.1, Ignore: &ignore, Count: 3}}},
		"weighted": {head: &nn.Linear{W: nn.NewLinear(4, 5).W}, options: []ops.CrossEntropyOptions{{Weights: weights}}},
	} {
		nn.Init(c.head, host, tensor.Float64, 1)
		x := tensor.New(host, tensor.Float64, 6, 4)
		tensor.NormalInit(0, 1).Fill(x, 1, 0)
		run := func(loss func(x nn.T) nn.T) (float64, []float64) {
			tape := tensor.NewTape(host)
			l := loss(tape.Input(x))
			tape.Backward(l)
			defer c.head.W.Consume()
			if c.head.B != nil {
				defer c.head.B.Consume()
			}
			return l.Item(), tensor.Floats(c.head.W.Grad)
		}
		want, grad := run(func(x nn.T) nn.T { return nn.CrossEntropy(c.head.Forward(x), labels, c.options...) })
		got, gotGrad := run(func(x nn.T) nn.T { return nn.LinearCrossEntropy(c.head, x, labels, c.options...) })
		assert.InDelta(t, want, got, 1e-12, name)
		assert.InDeltaSlice(t, grad, gotGrad, 1e-12, name)
	}
}

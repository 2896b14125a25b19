package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// layerCase is what gen.py's main() computes under the same name.
type layerCase struct {
	model nn.Layer
	scale float64
	dims  []int
}

func layerCases() map[string]layerCase {
	noBias := nn.NewLinear(4, 5)
	noBias.B = nil
	normNoBias := nn.NewLayerNorm(4)
	normNoBias.B = nil
	normPlain := &nn.LayerNorm{Eps: 1e-5}
	x, wide := []int{3, 4}, []int{3, 7}
	return map[string]layerCase{
		"linear":            {nn.NewLinear(4, 5), 2, x},
		"linear_nobias":     {noBias, 1, []int{2, 3, 4}},
		"layer_norm":        {nn.NewLayerNorm(4), 2, x},
		"layer_norm_nobias": {normNoBias, 2, x},
		"layer_norm_plain":  {normPlain, 2, x},
		"rms_norm":          {nn.NewRMSNorm(4), 2, x},
		"relu":              {nn.ReLU, 6, wide},
		"gelu":              {nn.GELU, 6, wide},
		"gelu_tanh":         {nn.GELUTanh, 6, wide},
		"silu":              {nn.SiLU, 6, wide},
		"tanh":              {nn.Tanh, 6, wide},
		"sigmoid":           {nn.Sigmoid, 6, wide},
		"sequential":        {nn.Sequential{nn.NewLinear(4, 6), nn.ReLU, nn.NewLinear(6, 3)}, 2, x},
		"mlp":               {nn.NewMLP(4, 9), 2, x},
		"attention":         {nn.NewAttention(6, 3), 1, []int{2, 5, 6}},
		"attention_one":     {nn.NewAttention(4, 1), 1, []int{1, 1, 4}},
	}
}

func TestLayersMatchTorch(t *testing.T) {
	f := loadFixture(t)
	for _, d := range dtypes {
		cases := layerCases()
		require.Len(t, f.Cases, len(cases)+1, "a case of PyTorch's is not tested (embedding has its own test)")
		for name, c := range cases {
			t.Run(name+"/"+d.dtype.String(), func(t *testing.T) {
				ps := nn.Init(c.model, host, d.dtype, 1)
				fill(ps)
				x := input(d.dtype, 1, c.scale, c.dims...)
				tape := tensor.NewTape(host)
				y := tape.Keep(c.model.Forward(tape.Use(x)))
				backward(tape, y)
				want := f.Cases[name]
				near(t, want.Y, y, d.tol, "y")
				checkGrads(t, want.Grads, append(ps, x), d.tol)
			})
		}
	}
}

func checkGrads(t *testing.T, want map[string][]float64, ps nn.Params, tol float64) {
	t.Helper()
	require.Len(t, ps, len(want))
	for _, p := range ps {
		require.Contains(t, want, p.Name())
		require.True(t, p.HasGrad(), p.Name())
		near(t, want[p.Name()], p.Grad, tol, "gradient of "+p.Name())
	}
}

func TestEmbeddingMatchesTorch(t *testing.T) {
	want := loadFixture(t).Cases["embedding"]
	for _, d := range dtypes {
		m := nn.NewEmbedding(6, 3)
		ps := nn.Init(m, host, d.dtype, 1)
		fill(ps)
		tape := tensor.NewTape(host)
		y := tape.Keep(m.Forward(tape.Input(labels(1, 6, 2, 4))))
		backward(tape, y)
		near(t, want.Y, y, d.tol, "y")
		checkGrads(t, want.Grads, ps, d.tol)
	}
}

func TestLossesMatchTorch(t *testing.T) {
	f := loadFixture(t)
	ignore := int64(-100)
	some := labels(1, 5, 4)
	tensor.Data[int64](some)[1] = ignore
	crossEntropy := func(y tensor.Tensor, o ...ops.CrossEntropyOptions) func(x nn.T) nn.T {
		return func(x nn.T) nn.T { return nn.CrossEntropy(x, y, o...) }
	}
	other := func(d tensor.DType) tensor.Tensor {
		x := tensor.New(host, d, 4, 5)
		value(x, 3, 1)
		return x
	}
	cases := map[string]func(x nn.T) nn.T{
		"cross_entropy":               crossEntropy(labels(1, 5, 4)),
		"cross_entropy_smooth":        crossEntropy(labels(1, 5, 4), ops.CrossEntropyOptions{Smoothing: 0.1}),
		"cross_entropy_ignore":        crossEntropy(some, ops.CrossEntropyOptions{Ignore: &ignore}),
		"cross_entropy_ignore_smooth": crossEntropy(some, ops.CrossEntropyOptions{Ignore: &ignore, Smoothing: 0.2}),
		"mse":                         func(x nn.T) nn.T { return nn.MSE(x, other(x.DType())) },
		"bce": func(x nn.T) nn.T {
			return nn.BCEWithLogits(x, x.Tape().Input(other(x.DType())).Affine(0.5, 0.5))
		},
	}
	for name, loss := range map[string]func(x, y nn.T) nn.T{
		"l1":        nn.L1,
		"huber":     func(x, y nn.T) nn.T { return nn.Huber(x, y, 0.75) },
		"smooth_l1": func(x, y nn.T) nn.T { return nn.SmoothL1(x, y, 1.5) },
		"kl_div":    func(x, y nn.T) nn.T { return nn.KLDiv(ops.LogSoftmax(x), x.Tape().Input(y).ReLU()) },
	} {
		cases[name] = func(x nn.T) nn.T { return loss(x, other(x.DType())) }
	}
	require.Len(t, f.Losses, len(cases))
	for name, loss := range cases {
		for _, d := range dtypes {
			t.Run(name+"/"+d.dtype.String(), func(t *testing.T) {
				x := input(d.dtype, 1, 3, 4, 5)
				tape := tensor.NewTape(host)
				y := tape.Keep(loss(tape.Use(x)))
				backward(tape, y)
				near(t, f.Losses[name].Y, y, d.tol, "loss")
				checkGrads(t, f.Losses[name].Grads, nn.Params{x}, d.tol)
			})
		}
	}
}

func TestCrossEntropyTakesOneOption(t *testing.T) {
	tape := tensor.NewTape(host)
	x := tape.Input(tensor.New(host, tensor.Float32, 1, 2))
	o := ops.CrossEntropyOptions{}
	assert.ErrorContains(t, tensor.Try(func() { nn.CrossEntropy(x, labels(1, 2, 1), o, o) }), "at most one")
}

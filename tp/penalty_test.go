package tp_test

import (
	"context"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// penalized is a model with a divided MLP, and a group of the ranks that divide it.
type penalized struct {
	In, Out *nn.Linear
	Norm    nn.Layer
	MLP     *nn.MLP
	tp      *dist.Group
}

// hidden returns what is between the divided layers, and what comes out behind them.
func (m *penalized) hidden(x nn.T) (inside, y nn.T) {
	x = m.In.Forward(x).Tanh()
	inside = m.MLP.Up.Forward(m.Norm.Forward(x)).GELU()
	return inside, x.Add(m.MLP.Down.Forward(inside))
}

func (m *penalized) sum(x nn.T) nn.T { return x.Tape().Apply(&autograd.Sum{Group: m.tp}, x) }

// trainPenalized returns the parameters that all ranks have whole, after ten steps of seven rows.
func trainPenalized(mesh string, ranks int, loss func(m *penalized, x, y nn.T) nn.T) (values []float64, err error) {
	cfg := dist.Config{Ranks: ranks, Threads: 1, Log: io.Discard}
	err = dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		g, err := r.World.Mesh(mesh)
		if err != nil {
			return err
		}
		m := &penalized{nn.NewLinear(5, 6), nn.NewLinear(6, 2), nn.NewLayerNorm(6), nn.NewMLP(6, 10), g.Group("tp")}
		if err := tp.Parallelize(m, tp.Config{Group: m.tp}, func(p *tp.Parallel) {
			m.Norm = p.Columns(m.Norm, m.MLP.Up)
			p.Row(m.MLP.Down)
		}); err != nil {
			return err
		}
		dp := g.Group("dp")
		params, err := ddp.Attach(dp, m, ddp.Config{DType: tensor.Float64, Seed: 1})
		if err != nil {
			return err
		}
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.05}), tensor.NewTape(r.Device)
		lo, hi := 7*dp.Rank()/dp.Size(), 7*(dp.Rank()+1)/dp.Size()
		for step := range 10 {
			x, y := tensor.New(r.Device, tensor.Float64, hi-lo, 5), tensor.New(r.Device, tensor.Float64, hi-lo, 2)
			for i := range x.Len() {
				tensor.Data[float64](x)[i] = math.Sin(float64(35*step + 5*lo + i))
			}
			for i := range y.Len() {
				tensor.Data[float64](y)[i] = math.Cos(float64(14*step + 2*lo + i))
			}
			at := dp.Rows(lo, 7)
			tape.Backward(loss(m, tape.Input(x.WithRows(at)), y.WithRows(at)))
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		for _, p := range []*tensor.Param{m.In.W, m.In.B, m.Out.W, m.Out.B, m.MLP.Down.B} {
			if r.World.Rank() == 0 {
				values = append(values, tensor.Floats(p.Value)...)
			}
		}
		return nil
	})
	return values, err
}

// A penalty of weights that ranks of tp divide, or of activations between them, is a part of a sum there. Behind autograd.Sum, or by
// WithAux, it counts once, with ranks that have other rows, too.
func TestPenaltiesOfDividedWeights(t *testing.T) {
	weights := func(m *penalized, x nn.T) nn.T {
		up, down := x.Tape().Use(m.MLP.Up.W), x.Tape().Use(m.MLP.Down.W)
		return up.Square().Sum().Add(down.Abs().Sum())
	}
	mse := func(m *penalized, x, y nn.T) nn.T {
		_, z := m.hidden(x)
		return nn.MSE(m.Out.Forward(z), y)
	}
	add := func(m *penalized, x, y nn.T) nn.T { return mse(m, x, y).Add(weights(m, x).Scale(0.1)) }
	for name, loss := range map[string]func(m *penalized, x, y nn.T) nn.T{
		"by Sum":     func(m *penalized, x, y nn.T) nn.T { return m.sum(weights(m, x).Scale(0.1)).Add(mse(m, x, y)) },
		"by WithAux": func(m *penalized, x, y nn.T) nn.T { return tensor.WithAux(mse(m, x, y), weights(m, x), 0.1) },
		"WithAux of a part of the model": func(m *penalized, x, y nn.T) nn.T {
			return mse(m, tensor.WithAux(x.Scale(2), weights(m, x).Scale(0.5), 0.2), y)
		},
		"of activations": func(m *penalized, x, y nn.T) nn.T {
			inside, z := m.hidden(x)
			return nn.MSE(m.Out.Forward(z), y).Add(m.sum(inside.Square().Sum().Scale(0.1 / 7)))
		},
	} {
		want, err := trainPenalized("dp=1,tp=1", 1, loss)
		require.NoError(t, err, name)
		for mesh, ranks := range map[string]int{"dp=1,tp=2": 2, "dp=2,tp=2": 4, "dp=3,tp=1": 3} {
			got, err := trainPenalized(mesh, ranks, loss)
			require.NoError(t, err, "%s, %s", name, mesh)
			require.InDeltaSlice(t, want, got, 1e-9, "%s, %s", name, mesh)
		}
	}
	_, err := trainPenalized("dp=2,tp=2", 4, add)
	require.ErrorContains(t, err, "behind autograd.Sum, or by tensor.WithAux, a penalty of divided weights")
}

// A penalty of the activations between layers is right where ranks have a part of the tokens, 5 or 10 of them: their squares are added up,
// and divided by the number of all elements.
func TestPenaltyOfTokens(t *testing.T) {
	one := job{model: "gpt2", square: true}
	want := one.training().Run(t)
	plain := job{model: "gpt2"}.training().Run(t)
	require.NotEqual(t, plain.Losses, want.Losses)
	for i, mesh := range []string{"kv=2", "kv=3", "dp=2,kv=2", "fsdp=2,kv=2"} {
		j := one
		j.mesh, j.cfg = mesh, forms[1+i%2]
		disttest.RequireEqual(t, want, j.training().Run(t), 1e-10)
	}
}

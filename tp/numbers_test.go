package tp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// A number that ranks of tp give an operation on what they have alike must be the same on them, also with ranks that have other rows, and
// where only a later step has another one.
func TestNumbersOfRanksThatDivideLayers(t *testing.T) {
	mse := func(m *penalized, z, y nn.T) nn.T { return nn.MSE(m.Out.Forward(z), y) }
	for name, loss := range map[string]func(m *penalized, x, y nn.T, v float64) nn.T{
		"of the loss": func(m *penalized, x, y nn.T, v float64) nn.T {
			_, z := m.hidden(x)
			return mse(m, z, y).Scale(v)
		},
		"of activations": func(m *penalized, x, y nn.T, v float64) nn.T {
			_, z := m.hidden(x)
			return mse(m, z.Scale(v), y)
		},
		"a bound": func(m *penalized, x, y nn.T, v float64) nn.T {
			_, z := m.hidden(x)
			return mse(m, ops.Clamp(z, -9, v), y)
		},
		"in a Checkpoint": func(m *penalized, x, y nn.T, v float64) nn.T {
			_, z := m.hidden(x)
			return x.Tape().Checkpoint(func(in ...nn.T) nn.T { return mse(m, in[0].Square().Affine(1, v), y) }, z)
		},
		"of a penalty": func(m *penalized, x, y nn.T, v float64) nn.T {
			_, z := m.hidden(x)
			return mse(m, z, y).Add(x.Tape().Use(m.In.W).Square().Sum().Scale(v - 1))
		},
		"WithAux": func(m *penalized, x, y nn.T, v float64) nn.T {
			_, z := m.hidden(x)
			return mse(m, tensor.WithAux(z, x.Tape().Use(m.In.W).Square().Sum(), v-1), y)
		},
	} {
		for mesh, ranks := range map[string]int{"dp=1,tp=2": 2, "dp=2,tp=2": 4} {
			_, err := trainPenalized(mesh, ranks, func(m *penalized, x, y nn.T) nn.T { return loss(m, x, y, 1+float64(m.tp.Rank())/4) })
			require.ErrorContains(t, err, "numbers of the host (Scale, Affine, Clamp, Dropout and others) some (rank ", "%s, %s", name, mesh)
		}
		_, err := trainPenalized("dp=1,tp=2", 2, func(m *penalized, x, y nn.T) nn.T { return loss(m, x, y, 1.5) })
		require.NoError(t, err, name)
	}
}

// Ranks that divide layers may have numbers of their own for their part of the features, as heads have slopes, and for what does not reach
// the loss, such as a log. The order of operations does not matter, nor does rounding.
func TestNumbersThatRanksHaveForThemselves(t *testing.T) {
	for name, loss := range map[string]func(m *penalized, x, y nn.T) nn.T{
		"of features": func(m *penalized, x, y nn.T) nn.T {
			x = m.In.Forward(x).Tanh()
			up := m.MLP.Up.Forward(m.Norm.Forward(x))
			z := m.MLP.Down.Forward(up.Scale(1 + float64(m.tp.Rank())))
			return nn.MSE(m.Out.Forward(x.Add(z)), y)
		},
		"behind Copy": func(m *penalized, x, y nn.T) nn.T {
			x = m.In.Forward(x).Tanh()
			z := m.Norm.Forward(x).Scale(1 + float64(m.tp.Rank()))
			return nn.MSE(m.Out.Forward(x.Add(m.MLP.Down.Forward(m.MLP.Up.Forward(z)))), y)
		},
		"a log": func(m *penalized, x, y nn.T) nn.T {
			_, z := m.hidden(x)
			l := nn.MSE(m.Out.Forward(z), y)
			if m.tp.Rank() == 0 {
				_ = fmt.Sprint(l.Scale(3).Item(), z.Scale(0.5).Sum().Item())
			}
			return l
		},
		"another order": func(m *penalized, x, y nn.T) nn.T {
			_, z := m.hidden(x)
			w := x.Tape().Use(m.In.W)
			a, b := 0.5, 0.25
			if m.tp.Rank() == 1 {
				a, b = b, a
			}
			p, q := w.Square().Sum().Scale(a), w.Square().Sum().Scale(b)
			return nn.MSE(m.Out.Forward(z), y).Add(p.Add(q).Scale(1 + 1e-12*float64(m.tp.Rank())))
		},
	} {
		for mesh, ranks := range map[string]int{"dp=1,tp=2": 2, "dp=2,tp=2": 4} {
			_, err := trainPenalized(mesh, ranks, loss)
			require.NoError(t, err, "%s, %s", name, mesh)
		}
	}
}

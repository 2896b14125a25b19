package tp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// doubled is a user's Function, which might do anything with its input.
type doubled struct{ name string }

func (d doubled) Name() string                                            { return d.name }
func (d doubled) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0].Scale(2) }
func (d doubled) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0] = g.Scale(2)
}

var runs atomic.Int32

// typed says that it computes each element from one alone.
type typed struct{ doubled }

func (typed) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) { return in[:1], nil }

// A Function without Types between Columns and Row has a part of the features. Nothing sees whether it may, so a warning says so, once.
func TestFunctionOfAPart(t *testing.T) {
	log, before := new(reliability.Log), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	name := fmt.Sprint("run ", runs.Add(1)) // a process says it once for each name
	const warning = "is given a part of the features, float32[5,3], and has no Types"
	for _, c := range []struct {
		inside, outside tensor.Function
		want            int
	}{{typed{doubled{"a"}}, doubled{"b"}, 0}, {doubled{name}, doubled{"b"}, 1}, {doubled{name}, doubled{"b"}, 1}} {
		require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			norm, up, down := nn.Layer(nn.NewLayerNorm(4)), nn.NewLinear(4, 6), nn.NewLinear(6, 2)
			m := nn.Sequential{norm, up, down}
			disttest.OK(tp.Parallelize(m, tp.Config{Group: r.World}, func(p *tp.Parallel) { norm = p.Columns(norm, up); p.Row(down) }))
			nn.Init(m, r.Device, tensor.Float32, 1)
			tape := tensor.NewTape(r.Device)
			for range 2 {
				x := norm.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, 5, 4)))
				x = tape.Apply(c.outside, down.Forward(tape.Apply(c.inside, up.Forward(x))))
				tape.Backward(x.Square().Sum())
				tape.Reset()
				for _, p := range nn.ParamsOf(m) {
					p.Consume()
				}
			}
			return nil
		}))
		require.Equal(t, c.want, strings.Count(log.String(), warning), log.String())
	}
	require.Contains(t, log.String(), "tensor: "+name+" is given")
}

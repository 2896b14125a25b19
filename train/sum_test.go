package train_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
)

// A loss that every rank has whole counts once, and one of which it has a part is added up: both are one rank's, with an uneven last batch.
func TestSumOfWholeLosses(t *testing.T) {
	names := []string{"loss", "mean", "detached", "hits", "test", "penalty", "after"}
	run := func(ranks int) (all [][]float64) {
		o := train.Options{Threads: 1}
		require.NoError(t, o.Run(dist.Config{Ranks: ranks, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			model := nn.NewLinear(5, 1)
			params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1}))
			opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.5})
			tape := tensor.NewTape(r.Device)
			l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: params, Optimizer: opt, Tape: tape}))
			sum := func(x tensor.Tensor) tensor.Tensor { return x.Tape().Apply(&autograd.Sum{Group: r.World}, x.Sum()) }
			batches := data.NewLoader(sentences{}, data.Config{Batch: 7, Sharder: r.World, Device: r.Device})
			for _, b := range l.Batches(batches, 11) {
				x := tape.Input(b.X).Cast(tensor.Float64).Scale(0.1)
				p, y := model.Forward(x).Sigmoid(), x.Slice(1, 0, 1)
				loss := sum(p.Mul(y)).Scale(-2).Div(sum(p.Add(y))).Affine(1, 1)
				l.Sum("loss", loss)
				l.Sum("mean", tensor.GlobalMean(p))
				l.Sum("detached", loss.Detach())
				l.Sum("hits", tensor.GlobalMean(p.Detach().Gt(y).Cast(tensor.Float64)))
				test := tensor.NewTape(r.Device, tensor.NoGrad())
				q := model.Forward(test.Input(b.X).Cast(tensor.Float64)).Sigmoid()
				l.Sum("test", sum(q).Add(tensor.GlobalMean(q)))
				l.Sum("penalty", test.Use(model.W).Square().Sum())
				tape.Backward(loss)
				l.Sum("after", loss)
				disttest.OK(opt.Step())
				tape.Reset()
				test.Close()
			}
			disttest.OK(l.Close())
			if r.World.Rank() == 0 {
				for _, name := range names {
					_, values := l.Values(name)
					all = append(all, values)
				}
			}
			return nil
		}))
		return all
	}
	want := run(1)
	require.Equal(t, want[0], want[6])
	for ranks := 2; ranks <= 3; ranks++ {
		for i, got := range run(ranks) {
			require.Len(t, got, 11)
			require.InDeltaSlice(t, want[i], got, 1e-12, "%s, %d ranks", names[i], ranks)
		}
	}
}

// Ranks that divide layers have the same loss: it counts once, and a part of the features for what it is. So it does where the program has
// given zeros on all but the first.
func TestSumWhereLayersAreDivided(t *testing.T) {
	names := []string{"loss", "once", "scale", "weights"}
	run := func(layout string, ranks int) (all [][]float64) {
		o := train.Options{Threads: 1}
		require.NoError(t, o.Run(dist.Config{Ranks: ranks, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
			mesh := disttest.Must(r.Mesh(layout))
			norm, up, down := nn.Layer(nn.NewLayerNorm(3)), nn.NewLinear(3, 5), nn.NewLinear(5, 1)
			scale := norm.(*nn.LayerNorm).W
			m := nn.Sequential{norm, up, nn.Tanh, down}
			if ranks > 1 {
				disttest.OK(tp.Parallelize(m, tp.Config{Group: mesh.Group("tp")}, func(p *tp.Parallel) { norm = p.Columns(norm, up); p.Row(down) }))
			}
			params := disttest.Must(ddp.Attach(mesh.Group("dp"), m, ddp.Config{DType: tensor.Float64, Seed: 1}))
			opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
			l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: params, Optimizer: opt, Tape: tape}))
			for _, b := range l.Batches(data.NewLoader(points{}, data.Config{Batch: 7, Sharder: mesh.Group("dp")}), 11) {
				loss := nn.MSE(down.Forward(up.Forward(norm.Forward(tape.Input(b.X))).Tanh()), b.Y)
				l.Sum("loss", loss)
				l.Sum("once", loss.Scale(float64(1-min(mesh.Group("tp").Rank(), 1))))
				l.Sum("scale", tape.Use(scale).Square().Sum())
				l.Sum("weights", tape.Use(up.W).Square().Sum())
				tape.Backward(loss)
				disttest.OK(opt.Step())
				tape.Reset()
			}
			disttest.OK(l.Close())
			for _, name := range names {
				if _, values := l.Values(name); r.World.Rank() == 0 {
					all = append(all, values)
				}
			}
			return nil
		}))
		return all
	}
	want := run("dp=1,tp=1", 1)
	for layout, ranks := range map[string]int{"dp=1,tp=2": 2, "dp=2,tp=2": 4, "dp=2,tp=3": 6} {
		for i, got := range run(layout, ranks) {
			require.Len(t, got, 11)
			require.InDeltaSlice(t, want[i], got, 1e-12, "%s, %s", names[i], layout)
		}
	}
}

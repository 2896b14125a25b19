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

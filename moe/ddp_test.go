package moe_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks that each have some of the tokens train as one rank with all of them, also where a rank has none.
func TestRanksEqualOne(t *testing.T) {
	for name, router := range routers {
		c := moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: router, Z: 0.1, Shared: 3}
		want := trainOnRanks(t, c, attachDDP, 7)
		require.InDeltaSlice(t, want, trainOnRanks(t, c, attachDDP, 4, 3), 1e-10, name)
		require.InDeltaSlice(t, want, trainOnRanks(t, c, attachDDP, 5, 0, 2), 1e-10, name)
		require.InDeltaSlice(t, want, trainOnRanks(t, c, attachFSDP, 1, 6), 1e-10, name)
	}
}

func attachDDP(r *dist.Rank, m *model) (nn.Params, optim.Norm, error) {
	params, err := ddp.Attach(r.World, m, ddp.Config{DType: tensor.Float64, Seed: 3})
	return params, nil, err
}

func attachFSDP(r *dist.Rank, m *model) (nn.Params, optim.Norm, error) {
	s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float64, Seed: 3})
	s.Keep(m.In, m.Out)
	s.Unit(m.MoE)
	params, err := s.Attach(m)
	return params, s, err
}

// trainOnRanks trains for 10 steps on as many ranks as there are counts of sequences, and returns the losses, and in the end the outputs
// for all sequences.
func trainOnRanks(t *testing.T, c moe.Config, attach func(*dist.Rank, *model) (nn.Params, optim.Norm, error), counts ...int) (out []float64) {
	const total, steps = 7, 10
	all := values(total, 4, 3)
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: len(counts), Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		m := newModel(c)
		params, norm, err := attach(r, m)
		if err != nil {
			return err
		}
		first, n := 0, counts[r.World.Rank()]
		for _, k := range counts[:r.World.Rank()] {
			first += k
		}
		opt := optim.NewAdamW(params.Trainable(), optim.AdamWConfig{LR: 0.01, Clip: 1, Norm: norm})
		tape := tensor.NewTape(r.Device)
		defer tape.Close()
		losses := make([]float64, steps)
		for step := range steps {
			x := tape.Input(tensor.FromSlice(all[first*12:(first+n)*12], n, 4, 3).WithRows(r.World.Rows(first, total)))
			loss := nn.MSE(m.Forward(x), x.Slice(2, 0, 2).Tanh())
			losses[step] = loss.Item()
			tape.Backward(loss)
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		if err := r.World.SumFloats(losses); err != nil {
			return err
		}
		eval := tensor.NewTape(r.Device, tensor.NoGrad())
		defer eval.Close()
		y := tensor.Floats(m.Forward(eval.Input(tensor.FromSlice(all, total, 4, 3))))
		if r.World.Rank() == 0 {
			out = append(losses, y...)
		}
		return nil
	}))
	return out
}

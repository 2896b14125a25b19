package ckpt_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// job is a way to train: ddp, or a stage of fsdp.
type job struct{ ranks, stage int }

func (j job) String() string { return fmt.Sprintf("stage%d-%dranks", j.stage, j.ranks) }

// train trains from the checkpoint from, or from the start, to a step, saves there, and returns the losses and the folder.
// A step that equals the checkpoint's only loads and saves.
func (j job) train(t *testing.T, from string, to int) (losses []float64, path string) {
	t.Helper()
	dir := t.TempDir()
	err := dist.Run(context.Background(), dist.Config{Ranks: j.ranks, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(7, 15), nn.Tanh, nn.NewDropout(0.2), nn.NewLinear(15, 3)}
		params, norm, changed, err := j.attach(r, model)
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.02, WeightDecay: 0.1, Clip: 0.5, Norm: norm})
		tape := tensor.NewTape(r.Device, tensor.Seed(9))
		st := ckpt.State{Params: params, Optimizer: opt}
		if from != "" {
			if _, err := ckpt.Load(ctx, r.World, from, &st, ckpt.LoadConfig{}); err != nil {
				return err
			}
			changed()
			tape.SetStep(opt.Steps(), 0)
		}
		for opt.Steps() < to {
			loss := []float64{step(r, model, tape, opt.Steps())}
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
			if err := r.World.SumFloats(loss); err != nil {
				return err
			}
			if r.World.Rank() == 0 {
				losses = append(losses, loss[0])
			}
		}
		saver := ckpt.NewSaver(r.World, dir, ckpt.Config{})
		st.Step = opt.Steps()
		if err := saver.Save(ctx, st); err != nil {
			return err
		}
		return saver.Close()
	})
	require.NoError(t, err)
	return losses, filepath.Join(dir, fmt.Sprintf("step-%08d", to))
}

func (j job) attach(r *dist.Rank, model nn.Sequential) (nn.Params, optim.Norm, func(), error) {
	if j.stage == 0 {
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 5})
		return params, nil, func() {}, err
	}
	s := fsdp.New(fsdp.Config{Shard: r.World, Stage: j.stage, DType: tensor.Float64, Seed: 5})
	s.Unit(model[0])
	s.Keep(model[3])
	params, err := s.Attach(model)
	return params, s, s.Changed, err
}

// step runs forward and backward on this rank's part of a batch of 13 rows.
func step(r *dist.Rank, model nn.Sequential, tape *tensor.Tape, n int) float64 {
	const rows = 13
	lo, hi := rows*r.World.Rank()/r.World.Size(), rows*(r.World.Rank()+1)/r.World.Size()
	x := tensor.New(r.Device, tensor.Float64, hi-lo, 7)
	tensor.UniformInit(-1, 1).Fill(x, uint64(n), uint64(lo*7))
	x.WithRows(tensor.Rows{First: lo, Stride: 1, Total: rows})
	in := tape.Input(x)
	loss := nn.MSE(model.Forward(in), in.Sin().Slice(1, 0, 3))
	value := loss.Item()
	tape.Backward(loss)
	return value
}

// TestFSDP: a run goes on from a checkpoint with the same losses, bit by bit on the same layout and up to rounding on any
// other; and what is loaded on one layout and saved on another is the same checkpoint.
func TestFSDP(t *testing.T) {
	start := job{4, 3}
	want, _ := start.train(t, "", 8)
	first, path := start.train(t, "", 4)
	require.Equal(t, want[:4], first)
	rest, _ := start.train(t, path, 8)
	require.Equal(t, want[4:], rest)

	for _, j := range []job{{2, 0}, {3, 1}, {1, 2}, {4, 3}, {3, 2}, {3, 0}, {2, 3}} {
		rest, _ := j.train(t, path, 8)
		require.InDeltaSlice(t, want[4:], rest, 1e-10, j)
		_, next := j.train(t, path, 4)
		d, err := ckpt.Diff(context.Background(), path, next, nil)
		require.NoError(t, err)
		require.True(t, d.Same, "%v: %v", j, d)
		path = next
	}
}

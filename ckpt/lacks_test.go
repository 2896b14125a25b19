package ckpt_test

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Gradients of microbatches that wait for a step are in no checkpoint. Who saves between them is told, once.
func TestBetweenMicrobatches(t *testing.T) {
	dir, log := t.TempDir(), captured(t)
	warnings := func() int {
		return strings.Count(log.String(), "lacks the gradients of microbatches that wait for a step")
	}
	err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.NewLinear(3, 1)
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{Seed: 1}))
		st := ckpt.State{Params: params, Optimizer: optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), Tape: tensor.NewTape(r.Device)}
		saver := ckpt.NewSaver(r.World, dir, ckpt.Config{})
		run := func(want int, o ...tensor.BackwardOption) {
			x := tensor.FromSlice([]float32{1, 2, 3}, 1, 3).WithRows(r.World.Rows(r.World.Rank(), 2))
			st.Tape.Backward(model.Forward(st.Tape.Input(x)).Square().Sum(), o...)
			if len(o) == 0 {
				disttest.OK(st.Optimizer.Step())
			}
			st.Tape.Reset()
			st.Step++
			disttest.OK(saver.Save(ctx, st))
			require.Equal(t, want, warnings())
			disttest.OK(r.World.Barrier().Wait())
		}
		run(0)
		run(1, tensor.More())
		run(1)
		if r.World.Rank() == 0 {
			disttest.OK(ckpt.SaveFile(ctx, filepath.Join(dir, "a.safetensors"), st))
			require.Equal(t, 1, warnings())
		}
		return saver.Close()
	})
	require.NoError(t, err)
}

// A checkpoint has one optimizer and one tape. Who trains with two is told so, unless the other ones are in a State of their own.
func TestSecondOptimizerAndTape(t *testing.T) {
	const moments, masks = "lacks moments and step counts of 1.0.bias, which has another", "the tape that used 1.0.bias is not State.Tape"
	type (
		opts  = []*optim.Optimizer
		tapes = []*tensor.Tape
	)
	first := func(p nn.Params, o opts, t tapes) ckpt.State {
		return ckpt.State{Params: p, Optimizer: o[0], Tape: t[0]}
	}
	for name, c := range map[string]struct {
		optimizers, tapes int
		state             func(p nn.Params, o opts, t tapes) ckpt.State
		want              []string
	}{
		"one of each": {1, 1, first, nil},
		"two of each": {2, 2, first, []string{moments, masks}},
		"its own": {2, 2, func(p nn.Params, o opts, t tapes) ckpt.State {
			return ckpt.State{Params: p[2:], Optimizer: o[1], Tape: t[1]}
		}, nil},
		"no tape": {1, 1, func(p nn.Params, o opts, _ tapes) ckpt.State { return ckpt.State{Params: p, Optimizer: o[0]} }, []string{masks}},
		"a model": {1, 1, func(p nn.Params, _ opts, _ tapes) ckpt.State { return ckpt.State{Params: p} }, nil},
		"values":  {2, 1, func(p nn.Params, _ opts, t tapes) ckpt.State { return ckpt.State{Params: p, Tape: t[0]} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			log := captured(t)
			dev := cpu.New(1)
			halves := nn.Sequential{nn.Sequential{nn.NewLinear(3, 3), nn.NewDropout(0.5)}, nn.Sequential{nn.NewLinear(3, 3), nn.NewDropout(0.5)}}
			params := nn.Init(halves, dev, tensor.Float32, 1)
			var o opts
			for n := range c.optimizers {
				o = append(o, optim.NewAdamW(params[4*n/c.optimizers:4*(n+1)/c.optimizers], optim.AdamWConfig{}))
			}
			all := tapes{tensor.NewTape(dev), tensor.NewTape(dev)}[:c.tapes]
			for i, half := range halves {
				tape := all[i%c.tapes]
				tape.Backward(half.Forward(tape.Input(tensor.FromSlice([]float32{1, 2, 3}, 1, 3))).Square().Sum())
				require.NoError(t, o[i%c.optimizers].Step())
				tape.Reset()
			}
			require.NoError(t, ckpt.SaveFile(t.Context(), filepath.Join(t.TempDir(), "a.safetensors"), c.state(params, o, all)))
			require.Equal(t, len(c.want), strings.Count(log.String(), "a checkpoint lacks"), log.String())
			for _, text := range c.want {
				require.Contains(t, log.String(), text)
			}
		})
	}
}

// captured collects what is logged until the test ends.
func captured(t *testing.T) *reliability.Log {
	log, before := new(reliability.Log), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

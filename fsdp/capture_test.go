package fsdp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// captures trains on two ranks, in steps of two microbatches with dropout and clipping, of which one has fewer rows. Now and then the model
// is evaluated. It returns losses and values of both ranks.
func captures(launch disttest.Launcher, cfg fsdp.Config, capture bool) (all [2][]float64, err error) {
	var mu sync.Mutex
	err = launch(context.Background(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		mine, err := captured(r, cfg, capture)
		mu.Lock()
		defer mu.Unlock()
		all[r.World.Rank()] = mine
		return err
	})
	return all, err
}

func captured(r *dist.Rank, cfg fsdp.Config, capture bool) (all []float64, err error) {
	m := newToy()
	cfg.Shard, cfg.DType, cfg.Seed = r.World, tensor.Float64, 5
	s := fsdp.New(cfg)
	m.units(s)
	params, err := s.Attach(m)
	if err != nil {
		return nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Clip: 0.5, Norm: s})
	tape, eval, last := tensor.NewTape(r.Device, tensor.Seed(3)), tensor.NewTape(r.Device, tensor.NoGrad()), tensor.New(r.Device, tensor.Float64)
	defer tape.Close()
	defer eval.Close()
	step := func(in ...tensor.Tensor) error {
		tape.Backward(nn.MSE(m.Forward(tape.Input(in[0])).Slice(1, 0, width), in[1]), tensor.More())
		loss := nn.MSE(m.Forward(tape.Input(in[1])).Tanh().Slice(1, 0, width), in[0])
		tensor.Copy(last, loss)
		tape.Backward(loss)
		err := opt.Step()
		tape.Reset()
		return err
	}
	if capture {
		c := tensor.Capture(r.Device, step)
		defer c.Close()
		step = c.Run
	}
	for i := range 12 {
		n := 6
		if i == 6 {
			n = 4
		}
		data := disttest.Dataset{DType: tensor.Float64, Features: width}
		x, _ := data.Samples(r.Device, 100*i, n)
		y, _ := data.Samples(r.Device, 100*i+50, n)
		at := r.World.Rows(n*r.World.Rank(), n*r.World.Size())
		if err := step(x.WithRows(at), y.WithRows(at)); err != nil {
			return nil, err
		}
		all = append(all, last.Item(), opt.GradNorm())
		if i == 5 || i == 8 || i == 11 {
			all = append(all, tensor.Floats(tensor.ToHost(m.Forward(eval.Input(x))))...)
			eval.Reset()
		}
	}
	for _, p := range params {
		all = append(all, tensor.Floats(p.Local)...)
	}
	return all, nil
}

// Captured steps have the bits of steps that run, in all stages.
func TestCapturedSteps(t *testing.T) {
	stage := 0
	disttest.OnEach(t, disttest.GPUs(), 2, func(t *testing.T, launch disttest.Launcher) {
		stage++
		for s := 1; s <= 3; s++ {
			if s != stage && !reliability.Long(t) {
				continue
			}
			for _, hold := range []bool{false, true}[:min(s, 2)] {
				cfg := fsdp.Config{Stage: s, HoldGrads: hold}
				want, err := captures(launch, cfg, false)
				require.NoError(t, err)
				got, err := captures(launch, cfg, true)
				require.NoError(t, err)
				require.Equal(t, want, got, fmt.Sprint(cfg))
			}
		}
	})
}

func TestLongCapturedSteps(t *testing.T) {
	reliability.SkipUnlessLong(t)
	TestCapturedSteps(t)
}

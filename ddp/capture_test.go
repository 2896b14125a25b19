package ddp_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/ddp/powersgd"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// captured is a training some steps of which are captured: two microbatches with dropout, several buckets, clipping, a schedule, and a
// smaller batch now and then. Its microbatches are the ranks' last ones.
func captured(launch disttest.Launcher, cfg ddp.Config, captures func(rank, step int) bool) training {
	c := training{Ranks: 2, On: launch, Steps: 14, Rule: func(p nn.Params, n optim.Norm) *optim.Optimizer {
		return optim.NewAdamW(p, optim.AdamWConfig{LR: 1e-2, Clip: 0.5, Norm: n, Schedule: schedule.Warmup(4, schedule.Cosine(0.1, 20))})
	}}
	cfg.DType, cfg.Seed, cfg.BucketBytes = tensor.Float64, 7, 2000
	c.Attach = func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model, last, rank := mlp(), tensor.New(r.Device, tensor.Float64), r.World.Rank()
		params, err := ddp.Attach(r.World, model, cfg)
		var s *disttest.State
		step := func(in ...tensor.Tensor) error {
			defer s.Tape.Reset()
			s.Tape.Backward(nn.CrossEntropy(model.Forward(s.Tape.Input(in[0])), in[1]), tensor.More())
			loss := nn.CrossEntropy(model.Forward(s.Tape.Input(in[2])), in[3])
			tensor.Copy(last, loss)
			s.Tape.Backward(loss)
			return s.Optimizer.Step()
		}
		graph := capture.New(r.Device, step)
		return disttest.Attached{Params: params, Norm: r.World, Step: func(state *disttest.State) ([]float64, error) {
			s = state
			n, do := 9, step
			if s.Step == 5 || s.Step == 6 || s.Step == 9 {
				n = 4 + s.Step%2
			}
			if captures(rank, s.Step) {
				do = graph.Run
			}
			x, y := batch(r, tensor.Float64, 100*s.Step, n)
			u, v := batch(r, tensor.Float64, 100*s.Step+50, n)
			disttest.OK(do(x, y, u, v))
			losses := make([]float64, 2)
			losses[rank] = last.Item()
			return losses, nil
		}, End: func(*disttest.State) error { graph.Close(); return nil }}, err
	}
	return c
}

func never(_, _ int) bool    { return false }
func eachStep(_, _ int) bool { return true }

// Captured steps of two ranks have the bits of steps that run: with both of them captured, and with one. The short form has the first.
func TestCapturedSteps(t *testing.T) {
	disttest.OnEach(t, turn(t, disttest.GPUs(), "NCCL"), 2, func(t *testing.T, launch disttest.Launcher) {
		for i, cfg := range []ddp.Config{{}, {Hook: ddp.Compress(tensor.BFloat16)}} {
			if i == 1 && !unabridged(t) {
				continue
			}
			want := captured(launch, cfg, never).Run(t)
			for k, captures := range []func(rank, step int) bool{eachStep, func(rank, _ int) bool { return rank == 1 }} {
				if k == i || reliability.Long(t) {
					disttest.RequireEqual(t, want, captured(launch, cfg, captures).Run(t), 0)
				}
			}
		}
	})
}

func TestLongCapturedSteps(t *testing.T) { reliability.AsLong(t, TestCapturedSteps) }

// A replay says which batch it is of: if a rank leaves one out, the ranks get an error, also if only one of them replays.
func TestCapturedStepsOfOtherBatches(t *testing.T) {
	set, err := data.NewTensors(tensor.FromSlice(make([]float32, 40*19), 40, 19), tensor.FromSlice(make([]int64, 40), 40))
	require.NoError(t, err)
	disttest.OnEach(t, turn(t, disttest.GPUs(), "one GPU"), 2, func(t *testing.T, launch disttest.Launcher) {
		for _, captures := range [][2]bool{{true, true}, {false, true}, {true, false}} {
			for skipped, want := range map[int]string{5: "batch number 6 (rank 0) vs 7 (rank 1)", 20: ""} {
				if (want == "" || !captures[1]) && !unabridged(t) {
					continue
				}
				err := launch(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
					model, tape := mlp(), tensor.NewTape(r.Device)
					params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{}))
					opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
					step := func(in ...tensor.Tensor) error {
						defer tape.Reset()
						loss := ops.CrossEntropy(model.Forward(tape.Input(in[0])), in[1], ops.CrossEntropyOptions{Count: 4})
						tape.Backward(loss)
						return opt.Step()
					}
					if captures[r.World.Rank()] {
						graph := capture.New(r.Device, step)
						defer graph.Close()
						step = graph.Run
					}
					l := data.NewLoader(set, data.Config{Batch: 4, Sharder: r.World, Device: r.Device})
					for i, b := range l.Epoch(ctx, 0) {
						if i == skipped && r.World.Rank() == 1 {
							continue
						}
						disttest.OK(step(b.X, b.Y))
					}
					return l.Err()
				})
				if want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, want)
				}
			}
		}
	})
}

func TestLongCapturedStepsOfOtherBatches(t *testing.T) {
	reliability.AsLong(t, TestCapturedStepsOfOtherBatches)
}

// What ddp cannot do in replays is refused in words when the step is recorded.
func TestRefusedInCapturedSteps(t *testing.T) {
	launch := disttest.GPUs()[0].Start(t, 2)
	for want, cfg := range map[string]ddp.Config{
		"ddp: Config.CheckEvery is 5, and replays of a captured step": {CheckEvery: 5},
		"on host memory inside a captured step":                       {AllowUnused: true},
	} {
		_, err := captured(launch, cfg, eachStep).Try()
		require.ErrorContains(t, err, want)
	}
}

// A steady step of GPT-2 on two GPUs, captured: gradients in several buckets, which are summed while the backward pass goes on, two
// microbatches, clipping and AdamW on float32 masters. It allocates nothing, copies nothing from or to the host, waits for no device,
// and is a launch for each part between collectives.
func TestCapturedGPT2IsSteady(t *testing.T) {
	if !unabridged(t) {
		t.Skip("the long runs have it, and those on a GPU")
	}
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
	layers := 1
	if reliability.Long(t) {
		layers = 4
	}
	disttest.OnEach(t, turn(t, disttest.GPUs()[1:], "NCCL"), 2, func(t *testing.T, launch disttest.Launcher) {
		disttest.SteadySteps(t, launch, 12, 2, func(r *dist.Rank) (func() error, error) { return capturedGPT2(r, layers) })
	})
}

func TestLongCapturedGPT2IsSteady(t *testing.T) { reliability.AsLong(t, TestCapturedGPT2IsSteady) }

// launches counts those on the GPU of a rank.
func launches(r *dist.Rank) int64 {
	return r.Device.(interface{ GPU() *cuda.Device }).GPU().Stats().Launches
}

func capturedGPT2(r *dist.Rank, layers int) (func() error, error) {
	const batch, vocabulary, length = 1, 32, 16
	model, err := gpt.New(gpt.Config{Vocab: vocabulary, Positions: length, Width: 32, Layers: layers, Heads: 2, Tied: true})
	if err != nil {
		return nil, err
	}
	params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.BFloat16, Seed: 1, BucketBytes: 10_000})
	if err != nil {
		return nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3, WeightDecay: 0.1, Clip: 1, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	ids, labels := tensor.New(r.Device, tensor.Int64, batch, length), tensor.New(r.Device, tensor.Int64, batch, length)
	for i, x := range []tensor.Tensor{ids, labels} {
		v := make([]int64, x.Len())
		for j := range v {
			v[j] = int64(tensor.RandomBits(uint64(2*r.World.Rank()+i), uint64(j)) % vocabulary)
		}
		tensor.Copy(x, tensor.FromSlice(v, batch, length))
	}
	ids = ids.WithRows(r.World.Rows(batch*r.World.Rank(), batch*r.World.Size()))
	loss := func() tensor.Tensor { return nn.CrossEntropy(model.Forward(tape.Input(ids)), labels) }
	run := func(...tensor.Tensor) error {
		tape.Backward(loss(), tensor.More())
		tape.Backward(loss())
		err := opt.Step()
		tape.Reset()
		return err
	}
	counted := func(step func(...tensor.Tensor) error) (n int64, err error) {
		before := launches(r)
		err = step()
		return launches(r) - before, err
	}
	plain, err := counted(run)
	if err != nil {
		return nil, err
	}
	captured := capture.New(r.Device, run)
	for range 4 {
		if err := captured.Run(); err != nil {
			return nil, err
		}
	}
	replay, err := counted(captured.Run)
	if err == nil && 4*replay > plain {
		err = fmt.Errorf("a replay has %d launches, a step %d", replay, plain)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return captured.Run() }, nil
}

// Captured steps compress as steps that run (the long form); one that is captured before compression begins is refused.
func TestPowerSGDInCapturedSteps(t *testing.T) {
	launch := disttest.GPUs()[0].Start(t, 2)
	with := func(start, from int) training {
		cfg := ddp.Config{Hook: powersgd.New(powersgd.Config{Rank: 2, Start: start})}
		return captured(launch, cfg, func(_, step int) bool { return step >= from })
	}
	if unabridged(t) {
		disttest.RequireEqual(t, with(3, 14).Run(t), with(3, 2).Run(t), 0)
	}
	_, err := with(5, 0).Try()
	require.ErrorContains(t, err, "replays of a captured step would never compress: capture a step after the first 5")
}

func TestLongPowerSGDInCapturedSteps(t *testing.T) {
	reliability.AsLong(t, TestPowerSGDInCapturedSteps)
}

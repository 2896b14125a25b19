package ckpt_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// job is a training setup: ddp or a stage of fsdp, in float64, or in float16 with a loss scale that is too large at
// first.
type job struct {
	ranks, stage int
	half         bool
	launch       disttest.Launcher // nil: dist.Run, on CPUs
}

func (j job) String() string { return fmt.Sprintf("stage%d-%dranks", j.stage, j.ranks) }

// train trains from a checkpoint (or from the start if from is "") to step to, saves, and returns the losses and the
// folder. If to is the checkpoint's step, it only loads and saves. The losses include steps that overflowed.
func (j job) train(t *testing.T, from string, to int) (losses []float64, path string) {
	t.Helper()
	return j.trainBy(t, from, to, func(p nn.Params, n optim.Norm) *optim.Optimizer {
		c := optim.AdamWConfig{LR: 0.02, WeightDecay: 0.1, Clip: 0.5, Norm: n}
		if j.half {
			c.Scaler = &optim.Scaler{Scale: 1 << 23}
		}
		return optim.NewAdamW(p, c)
	})
}

// trainBy is train with another optimizer.
func (j job) trainBy(t *testing.T, from string, to int, rule func(nn.Params, optim.Norm) *optim.Optimizer) (losses []float64, path string) {
	t.Helper()
	dir := t.TempDir()
	c := disttest.Training{Ranks: j.ranks, On: j.launch, Steps: to, Micro: 1, Batch: 13, Rule: rule}
	c.Attach = func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model := newMLP()
		params, norm, err := j.attach(r, model)
		state := func(s *disttest.State) ckpt.State {
			return ckpt.State{Step: s.Step, Params: params, Optimizer: s.Optimizer, Tape: s.Tape}
		}
		return disttest.Attached{Params: params, Norm: norm, Start: func(s *disttest.State) error {
			if from == "" {
				return nil
			}
			st := state(s)
			_, err := ckpt.Load(context.Background(), r.World, from, &st, ckpt.LoadConfig{})
			s.Step = st.Step
			return err
		}, Step: func(s *disttest.State) ([]float64, error) { return j.step(model, s) }, End: func(s *disttest.State) error {
			if skipped := s.Step - s.Optimizer.Steps(); (skipped > 1) != j.half {
				return fmt.Errorf("%d steps were skipped", skipped)
			}
			saver := ckpt.NewSaver(r.World, dir, ckpt.Config{})
			return errors.Join(saver.Save(context.Background(), state(s)), saver.Close())
		}}, err
	}
	return c.Run(t).Losses, filepath.Join(dir, fmt.Sprintf("step-%08d", to))
}

// mlp is a network with dropout, odd shapes, and a matrix that is stored transposed.
type mlp struct {
	Up   *nn.Linear `nn:"c_fc,transposed"`
	Drop *nn.Dropout
	Down *nn.Linear
}

func newMLP() *mlp { return &mlp{nn.NewLinear(7, 15), nn.NewDropout(0.2), nn.NewLinear(15, 3)} }

func (m *mlp) Forward(x nn.T) nn.T { return m.Down.Forward(m.Drop.Forward(m.Up.Forward(x).Tanh())) }

func (j job) attach(r *dist.Rank, model *mlp) (nn.Params, optim.Norm, error) {
	c := fsdp.Config{Shard: r.World, Stage: j.stage, DType: tensor.Float64, Seed: 5}
	if j.half {
		c.DType, c.Compute, c.Reduce = tensor.Float32, tensor.Float16, tensor.Float16
	}
	if j.stage == 0 {
		if j.half {
			c.DType = tensor.Float16
		}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: c.DType, Seed: 5})
		return params, nil, err
	}
	s := fsdp.New(c)
	s.Unit(model.Up)
	s.Keep(model.Down)
	params, err := s.Attach(model)
	return params, s, err
}

// step scales the loss if the optimizer has a Scaler.
func (j job) step(model *mlp, s *disttest.State) ([]float64, error) {
	x, _ := s.Batch(s.Tape, 0).Samples(disttest.Dataset{DType: tensor.Float64, Features: 7})
	scale := 1.0
	if j.half {
		x, scale = x.Cast(tensor.Float16), s.Optimizer.State().Scaler.Scale
	}
	loss := nn.MSE(model.Forward(x), x.Sin().Slice(1, 0, 3))
	value := loss.Item()
	s.Tape.Backward(loss, tensor.Scale(scale))
	s.Tape.Reset()
	return []float64{value}, s.Optimizer.Step()
}

// TestFSDP: a run that resumes has the same losses, bit by bit on the same layout, and up to rounding on another.
// Loading on one layout and saving on another gives the same checkpoint. The short form has three others.
func TestFSDP(t *testing.T) {
	start := job{4, 3, false, nil}
	want, _ := start.train(t, "", 8)
	first, path := start.train(t, "", 4)
	require.Equal(t, want[:4], first)
	rest, _ := start.train(t, path, 8)
	require.Equal(t, want[4:], rest)

	jobs := []job{{2, 0, false, nil}, {3, 1, false, nil}, {2, 3, false, nil}, {1, 2, false, nil}, {4, 3, false, nil}, {3, 2, false, nil},
		{3, 0, false, nil}}
	if !reliability.Long(t) {
		jobs = jobs[:3]
	}
	for _, j := range jobs {
		rest, _ := j.train(t, path, 8)
		require.InDeltaSlice(t, want[4:], rest, 1e-10, j)
		_, next := j.train(t, path, 4)
		d, err := inspect.Diff(context.Background(), path, next, nil)
		require.NoError(t, err)
		require.True(t, d.Same, "%v: %v", j, d)
		path = next
	}
}

func TestLongFSDP(t *testing.T) { reliability.AsLong(t, TestFSDP) }

// TestMuonResumes is TestFSDP for Muon, whose momentum is divided as the parameters are.
func TestMuonResumes(t *testing.T) {
	muon := func(p nn.Params, n optim.Norm) *optim.Optimizer {
		c := optim.MuonConfig{LR: 0.02, Matrices: []nn.Matrix{{W: p.ByName("c_fc.weight")}},
			AdamW: optim.AdamWConfig{LR: 0.02, Clip: 0.5, Norm: n}}
		if n != nil {
			c.Ranks = n.(optim.TensorNorm)
		}
		return optim.NewMuon(p, c)
	}
	start := job{4, 3, false, nil}
	want, _ := start.trainBy(t, "", 8, muon)
	_, path := start.trainBy(t, "", 4, muon)
	jobs := []job{{3, 2, false, nil}, {2, 0, false, nil}, {3, 1, false, nil}, {1, 2, false, nil}, {2, 3, false, nil}}
	if !reliability.Long(t) {
		jobs = jobs[:2]
	}
	for _, j := range jobs {
		rest, _ := j.trainBy(t, path, 8, muon)
		require.InDeltaSlice(t, want[4:], rest, 1e-10, j)
		_, next := j.trainBy(t, path, 4, muon)
		d, err := inspect.Diff(context.Background(), path, next, nil)
		require.NoError(t, err)
		require.True(t, d.Same, "%v: %v", j, d)
		path = next
	}
}

func TestLongMuonResumes(t *testing.T) { reliability.AsLong(t, TestMuonResumes) }

// TestAdafactorResumes is TestFSDP for Adafactor, whose row and column moments all ranks have whole. Training is that of one rank.
func TestAdafactorResumes(t *testing.T) {
	adafactor := func(p nn.Params, n optim.Norm) *optim.Optimizer {
		c := optim.AdafactorConfig{LR: 0.1, WeightDecay: 0.1, Clip: 0.5, Norm: n}
		if n != nil {
			c.Ranks = n.(optim.TensorNorm)
		}
		return optim.NewAdafactor(p, c)
	}
	one := job{1, 0, false, nil}
	want, _ := one.trainBy(t, "", 12, adafactor)
	trained, resumed := []job{{4, 3, false, nil}, {2, 0, false, nil}, {3, 1, false, nil}, {2, 2, false, nil}},
		[]job{{3, 1, false, nil}, {2, 0, false, nil}, one, {2, 3, false, nil}}
	if !reliability.Long(t) {
		trained, resumed = trained[:1], resumed[:2]
	}
	for _, j := range trained {
		all, _ := j.trainBy(t, "", 12, adafactor)
		require.InDeltaSlice(t, want, all, 1e-10, j)
	}
	_, path := job{2, 3, false, nil}.trainBy(t, "", 6, adafactor)
	for _, j := range resumed {
		rest, _ := j.trainBy(t, path, 12, adafactor)
		require.InDeltaSlice(t, want[6:], rest, 1e-10, j)
		_, next := j.trainBy(t, path, 6, adafactor)
		d, err := inspect.Diff(context.Background(), path, next, nil)
		require.NoError(t, err)
		require.True(t, d.Same, "%v: %v", j, d)
		path = next
	}
}

func TestLongAdafactorResumes(t *testing.T) { reliability.AsLong(t, TestAdafactorResumes) }

// TestResumeAfterOverflow: dynamic loss scaling skips some steps before and after the checkpoint. A run that resumes
// has the losses of an uninterrupted run, bit by bit: it loads the scale, the random state of dropout and the
// optimizer's counts.
func TestResumeAfterOverflow(t *testing.T) {
	for _, j := range []job{{2, 0, true, nil}, {3, 3, true, nil}, {2, 1, true, nil}} {
		want, whole := j.train(t, "", 40)
		first, path := j.train(t, "", 7)
		require.Equal(t, want[:7], first, j)
		rest, resumed := j.train(t, path, 40)
		require.Equal(t, want[7:], rest, j)
		d, err := inspect.Diff(context.Background(), whole, resumed, nil)
		require.NoError(t, err)
		require.True(t, d.Same, "%v: %v", j, d)
	}
}

// TestMastersMove: ddp trains in 16 bits with masters, and fsdp resumes with Float32 values alone, and the other way
// round, with the same losses up to rounding. Nothing is lost: back on the first layout, the checkpoint is the same,
// and the losses are equal bit by bit.
func TestMastersMove(t *testing.T) {
	long := reliability.Long(t)
	jobs := []job{{1, 0, true, nil}, {2, 0, true, nil}, {3, 3, true, nil}, {2, 1, true, nil}, {2, 2, true, nil}}
	for i, j := range jobs {
		if !long && i%2 == 0 { // the short form moves from ddp to fsdp, and from fsdp to ddp
			continue
		}
		_, path := j.train(t, "", 7)
		want, whole := j.train(t, path, 12)
		for k, other := range jobs {
			if i == k || !long && k != (i+2)%5 { // itself: see TestResumeAfterOverflow
				continue
			}
			rest, _ := other.train(t, path, 12)
			require.InDeltaSlice(t, want, rest, 2e-3, "%v to %v", j, other)
			_, there := other.train(t, path, 7)
			_, back := j.train(t, there, 7)
			d, err := inspect.Diff(context.Background(), path, back, nil)
			require.NoError(t, err)
			require.True(t, d.Same, "%v to %v and back: %v", j, other, d)
			rest, again := j.train(t, there, 12)
			require.Equal(t, want, rest, "%v to %v and back", j, other)
			d, err = inspect.Diff(context.Background(), whole, again, nil)
			require.NoError(t, err)
			require.True(t, d.Same, "%v to %v and back: %v", j, other, d)
		}
	}
}

func TestLongMastersMove(t *testing.T) { reliability.AsLong(t, TestMastersMove) }

// TestFSDPOnDevices: ranks with CPUs load, on another layout, what ranks with devices saved, and the other way round. A
// run that resumes has the same losses up to rounding. Loading and saving alone gives the same checkpoint.
func TestFSDPOnDevices(t *testing.T) {
	start, machines := job{2, 0, false, nil}, disttest.GPUs()[1:2]
	if reliability.Long(t) {
		machines = disttest.Machines()
	}
	want, _ := start.train(t, "", 8)
	_, host := start.train(t, "", 4)
	disttest.OnEach(t, machines, 4, func(t *testing.T, launch disttest.Launcher) {
		first, path := job{4, 3, false, launch}.train(t, "", 4)
		require.InDeltaSlice(t, want[:4], first, 1e-10)
		for i, c := range []struct {
			j    job
			path string
		}{{job{3, 1, false, nil}, path}, {job{3, 2, false, launch}, host}, {job{2, 0, false, launch}, path}, {job{1, 3, false, launch}, host}} {
			if i > 1 && !reliability.Long(t) {
				continue
			}
			rest, _ := c.j.train(t, c.path, 8)
			require.InDeltaSlice(t, want[4:], rest, 1e-10, c.j)
			_, same := c.j.train(t, c.path, 4)
			d, err := inspect.Diff(context.Background(), c.path, same, nil)
			require.NoError(t, err)
			require.True(t, d.Same, "%v: %v", c.j, d)
		}
	})
}

func TestLongFSDPOnDevices(t *testing.T) { reliability.AsLong(t, TestFSDPOnDevices) }

// With dynamic loss scaling, ranks with devices skip the same steps as a rank with a CPU. A run
// that resumes continues with the same scale, bit by bit. TestResumeAfterOverflow and TestFSDPOnDevices are its short forms.
func TestLongOverflowOnDevices(t *testing.T) {
	reliability.SkipUnlessLong(t)
	want, _ := job{1, 0, true, nil}.train(t, "", 16)
	disttest.OnEach(t, disttest.Machines(), 3, func(t *testing.T, launch disttest.Launcher) {
		for _, j := range []job{{3, 3, true, nil}, {2, 0, true, nil}} {
			j.launch = launch
			all, whole := j.train(t, "", 16)
			require.InDeltaSlice(t, want, all, 1e-2, j)
			_, path := j.train(t, "", 7)
			rest, resumed := j.train(t, path, 16)
			require.Equal(t, all[7:], rest, j)
			d, err := inspect.Diff(context.Background(), whole, resumed, nil)
			require.NoError(t, err)
			require.True(t, d.Same, "%v: %v", j, d)
		}
	})
}

// TestOptimizerDiffers: a run with a loss scale does not resume from a checkpoint without one, nor the other way round.
func TestOptimizerDiffers(t *testing.T) {
	_, plain := job{1, 0, false, nil}.train(t, "", 1)
	_, scaled := job{1, 0, true, nil}.train(t, "", 7)
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 1}, func(ctx context.Context, r *dist.Rank) error {
		for _, c := range []struct {
			path, want string
			scaler     *optim.Scaler
		}{{plain, "missing: the scaler's state", optim.NewScaler()}, {scaled, "the scaler's state; of another shape", nil}} {
			params := nn.Init(newMLP(), r.Device, tensor.Float64, 1)
			opt := optim.NewAdamW(params, optim.AdamWConfig{Scaler: c.scaler})
			_, err := ckpt.Load(ctx, r.World, c.path, &ckpt.State{Params: params, Optimizer: opt}, ckpt.LoadConfig{})
			require.ErrorContains(t, err, c.want)
			_, err = ckpt.Load(ctx, r.World, c.path, &ckpt.State{Params: params, Optimizer: opt}, ckpt.LoadConfig{Partial: true})
			require.NoError(t, err)
		}
		return nil
	}))
}

package powersgd_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/ddp/powersgd"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// scaledRun trains two layers, and a parameter whose gradients are given, with PowerSGD on two ranks. There are several buckets.
type scaledRun struct {
	dtype tensor.DType
	steps int
	scale float64                                  // of the loss at first; 0: no Scaler
	each  func(step int, s *optim.Scaler)          // before each step
	spoil func(step, rank int, x, given []float64) // changes the layers' input, or the gradient that is given
	leave func(step int) bool                      // steps that are left out
	late  bool                                     // Attach comes after the optimizer
}

// scaledModel computes its gradient of Given last.
type scaledModel struct {
	Given         *tensor.Param
	First, Second *nn.Linear
}

func (m *scaledModel) loss(tape *tensor.Tape, x, given, y tensor.Tensor) tensor.Tensor {
	sum := tape.Use(m.Given).Reshape(1, 8, scaledSize).Mul(tape.Input(given)).Sum()
	return nn.MSE(m.Second.Forward(m.First.Forward(tape.Input(x))), tape.Input(y)).Add(sum)
}

const scaledSize = 64

// run returns also the optimizer's state at the end.
func (c scaledRun) run(t *testing.T) (res disttest.Result, end optim.State) {
	t.Helper()
	attach := func(r *dist.Rank, _ *dist.Mesh) (a disttest.Attached, err error) {
		model := &scaledModel{tensor.NewParam(tensor.Constant(0), 8, scaledSize), nn.NewLinear(scaledSize, scaledSize),
			nn.NewLinear(scaledSize, scaledSize)}
		var s *optim.Scaler
		if c.scale != 0 {
			s = &optim.Scaler{Scale: c.scale}
		}
		optimizer := func() {
			a.Own = optim.NewSGD(a.Params, optim.SGDConfig{LR: 1, Scaler: s, Nonfinite: optim.Skip(1)})
			optim.NewSGD(a.Params, optim.SGDConfig{LR: 1}) // one that does no steps
		}
		if c.late {
			a.Params = nn.Init(model, r.Device, c.dtype, 5)
			optimizer()
		}
		a.Params, err = ddp.Attach(r.World, model, ddp.Config{DType: c.dtype, Seed: 5, BucketBytes: scaledSize * scaledSize * c.dtype.Size(),
			Hook: powersgd.New(powersgd.Config{Rank: 2, Start: 1})})
		if !c.late {
			optimizer()
		}
		a.Step = func(state *disttest.State) ([]float64, error) { return c.step(model, s, state) }
		a.End = func(state *disttest.State) error {
			if r.World.Rank() == 0 {
				end = state.Optimizer.State()
			}
			return nil
		}
		return a, err
	}
	res = training{Ranks: 2, Steps: c.steps, Attach: attach}.Run(t)
	return res, end
}

func (c scaledRun) step(model *scaledModel, s *optim.Scaler, state *disttest.State) ([]float64, error) {
	if c.leave != nil && c.leave(state.Step) {
		return nil, nil
	}
	x, given, y := c.batch(state.Step, state.Rank)
	scale := 1.0
	if s != nil {
		if c.each != nil {
			c.each(state.Step, s)
		}
		scale = s.Scale
	}
	defer state.Tape.Reset()
	loss := model.loss(state.Tape, x, given, y)
	state.Tape.Backward(loss, tensor.Scale(scale))
	return tensor.Floats(loss), state.Optimizer.Step()
}

// batch is this rank's part of one of four.
func (c scaledRun) batch(step int, r *dist.Rank) (x, given, y tensor.Tensor) {
	rank := r.World.Rank()
	rng, all := rand.New(rand.NewPCG(uint64(step%4), uint64(rank))), [3][]float64{}
	for range 8 * scaledSize {
		v := rng.NormFloat64()
		all[0], all[1], all[2] = append(all[0], v), append(all[1], 1e-3*rng.NormFloat64()), append(all[2], math.Sin(3*v))
	}
	if c.spoil != nil {
		c.spoil(step, rank, all[0], all[1])
	}
	rows := r.World.Rows(8*rank, 16)
	given = c.tensor(all[1]).View(1, 8, scaledSize).WithRows(r.World.Rows(rank, 2))
	return c.tensor(all[0]).WithRows(rows), given, c.tensor(all[2])
}

func (c scaledRun) tensor(v []float64) tensor.Tensor {
	if c.dtype == tensor.Float64 {
		return tensor.FromSlice(v, 8, scaledSize)
	}
	single := make([]float32, len(v))
	for i, f := range v {
		single[i] = float32(f)
	}
	return tensor.FromSlice(single, 8, scaledSize)
}

func requireFinite(t *testing.T, all disttest.Values) {
	t.Helper()
	for name, values := range all {
		for i, v := range values {
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0), "%s %d", name, i)
		}
	}
}

// An overflow on one rank costs one step, and halves the scale once. Training then goes on.
func TestAfterAnOverflow(t *testing.T) {
	for _, bad := range []float64{math.Inf(1), math.NaN(), 1e12} { // with the last one, the square of a gradient overflows
		got, end := scaledRun{dtype: tensor.Float32, steps: 40, scale: 1 << 16, spoil: func(step, rank int, x, _ []float64) {
			if step == 5 && rank == 1 {
				x[3] = bad
			}
		}}.run(t)
		require.Equal(t, 39, end.Steps, bad)
		require.Equal(t, float64(1<<15), end.Scaler.Scale, bad)
		require.Less(t, got.Losses[36], got.Losses[0], bad)
		requireFinite(t, got.Last)
	}
}

// A skipped step leaves what the hook keeps of all parameters as it was: the next steps are those of a run without it. Here one
// number of one gradient overflows, in the last bucket.
func TestForgetsSkippedSteps(t *testing.T) {
	const bad = 7
	run := scaledRun{dtype: tensor.Float64, steps: 20, scale: 1 << 16}
	run.leave = func(step int) bool { return step == bad }
	want, wantEnd := run.run(t)
	run.leave, run.spoil = nil, func(step, rank int, _, given []float64) {
		if step == bad && rank == 0 {
			given[100] = math.Inf(-1)
		}
	}
	got, end := run.run(t)
	require.Equal(t, 19, end.Steps)
	require.Equal(t, wantEnd.Steps, end.Steps)
	require.Equal(t, wantEnd.Scaler.Scale/2, end.Scaler.Scale)
	got.Losses[bad], got.Norms[bad] = want.Losses[bad], want.Norms[bad]
	disttest.RequireEqual(t, want, got, 1e-10)
}

// Without a Scaler, a step that is skipped leaves no NaN in what the hook keeps.
func TestForgetsNaN(t *testing.T) {
	got, end := scaledRun{dtype: tensor.Float64, steps: 12, spoil: func(step, rank int, _, given []float64) {
		if step == 7 && rank == 0 {
			given[100] = math.NaN()
		}
	}}.run(t)
	require.Equal(t, 11, end.Steps)
	requireFinite(t, got.Last)
}

// The scale of the loss, and that it changes, changes nothing else: errors are in the scale of the gradients that they are added to.
func TestWithAnyScale(t *testing.T) {
	want, _ := scaledRun{dtype: tensor.Float64, steps: 20}.run(t)
	scales := []float64{1 << 16, 1 << 16, 1 << 8, 1 << 10, 3, 1 << 30}
	for _, late := range []bool{false, true} {
		for name, each := range map[string]func(int, *optim.Scaler){
			"constant": nil,
			"changing": func(step int, s *optim.Scaler) { s.Scale = scales[step%len(scales)] },
			"doubled":  func(step int, s *optim.Scaler) { s.Good = 1999 },
		} {
			got, end := scaledRun{dtype: tensor.Float64, steps: 20, scale: 1 << 16, each: each, late: late}.run(t)
			require.Equal(t, 20, end.Steps, name)
			want.Norms = got.Norms // without a Scaler there are none
			disttest.RequireEqual(t, want, got, 1e-10)
		}
	}
}

// A number whose square overflows, in a column that was zero until then, is a gradient to skip, and then over.
func TestForgetsHugeNumbers(t *testing.T) {
	got, end := scaledRun{dtype: tensor.Float64, steps: 12, spoil: func(step, rank int, _, given []float64) {
		for i := range 8 {
			given[i*scaledSize] = 0
		}
		if step == 7 && rank == 0 {
			given[0] = 1e160
		}
	}}.run(t)
	require.Equal(t, 11, end.Steps)
	requireFinite(t, got.Last)
}

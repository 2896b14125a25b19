package disttest

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// alone attaches a model that each rank trains for itself, with all rows.
func alone(seed func(rank int) uint64, change func(a *Attached, r *dist.Rank)) Training {
	return Training{Steps: 10, Attach: func(r *dist.Rank, m *dist.Mesh) (Attached, error) {
		model := nn.Sequential{nn.NewLinear(5, 7), nn.Tanh, nn.NewDropout(0.2), nn.NewLinear(7, 5)}
		a := Attached{Params: nn.Init(model, r.Device, tensor.Float64, seed(r.World.Rank())), Loss: func(b Batch) tensor.Tensor {
			x, y := b.Samples(Dataset{DType: tensor.Float64, Features: 5})
			return nn.CrossEntropy(model.Forward(x), y)
		}}
		if m != nil {
			a.Data = m.Group("one") // of one rank
		}
		if change != nil {
			change(&a, r)
		}
		return a, nil
	}}
}

func seven(int) uint64 { return 7 }

// Each part of a result counts, and the first difference is named: where it is, what it is, and the layouts.
func TestDiffers(t *testing.T) {
	want := alone(seven, nil).Run(t)
	require.Len(t, want.Losses, 10)
	require.Len(t, want.Micro, 20)
	require.Less(t, want.Losses[9], want.Losses[0])
	require.Greater(t, want.Norms[0], 0.4, "clipping does something")
	RequireEqual(t, want, alone(seven, nil).Run(t), 0)
	for text, change := range map[string]func(r *Result){
		"loss step 3 is ":                              func(r *Result) { r.Losses[3] += 2e-6 },
		"loss of microbatch step 5 is ":                func(r *Result) { r.Micro[5] += 2e-6 },
		"norm of gradients step 9 is ":                 func(r *Result) { r.Norms[9] += 2e-6 },
		"initial parameter 0.weight 2 is ":             func(r *Result) { r.First["0.weight"][2] += 1e-15 },
		"parameter 3.bias 1 is ":                       func(r *Result) { r.Last["3.bias"][1] += 2e-6 },
		"moment 0.weight.exp_avg 0 is NaN, want ":      func(r *Result) { r.Moments["0.weight.exp_avg"][0] = math.NaN() },
		"they differ by 2e-06, more than 1e-06\n":      func(r *Result) { r.Losses[0] = want.Losses[0] + 2e-6 },
		"parameter names are [0.bias 0.weight 3.bias]": func(r *Result) { delete(r.Last, "3.weight") },
		"loss step: 9 elements, want 10":               func(r *Result) { r.Losses = r.Losses[:9] },
		"want: 1 ranks, 22 rows in 2 microbatches, tape seed 3\n  got: 1 ranks, 22 rows": func(r *Result) { r.Norms[0]++ },
	} {
		got := alone(seven, nil).Run(t)
		require.NoError(t, got.Differs(want, 1e-6))
		change(&got)
		require.ErrorContains(t, got.Differs(want, 1e-6), text)
	}
	zero, minus := want, want
	zero.Norms, minus.Norms = []float64{0}, []float64{math.Copysign(0, -1)}
	require.NoError(t, minus.Differs(zero, 1e-300))
	require.Error(t, minus.Differs(zero, 0), "bits")
	nan := want
	nan.Norms = []float64{math.NaN()}
	require.Error(t, nan.Differs(nan, 1))
	require.ErrorContains(t, Result{}.Differs(Result{}, 1), "there is nothing to compare with")
	other := want
	other.Micro = other.Losses // one a step
	require.NoError(t, other.Differs(want, 0))
}

// What ranks must agree on, they are asked: parameters, losses, and norms.
func TestRanksThatDisagree(t *testing.T) {
	c := alone(func(rank int) uint64 { return uint64(rank) }, nil)
	c.Mesh = "all=3,one=1"
	res, err := c.Try()
	require.ErrorContains(t, err, "0.weight: rank 1 has ")
	require.Len(t, res.Errs, 3)
	c = alone(seven, func(a *Attached, r *dist.Rank) {
		a.Before = func(s *State) error {
			if s.Step == 4 && r.World.Rank() == 2 {
				tensor.Data[float64](s.Params[1].Local)[3] += 1e-12
			}
			return nil
		}
	})
	c.Mesh = "all=3,one=1"
	_, err = c.Try()
	require.ErrorContains(t, err, "loss of a step: rank 2 has ")
}

// A failure is told with the layout, and what each rank said.
func TestFailureIsExplained(t *testing.T) {
	c := alone(seven, func(a *Attached, r *dist.Rank) {
		a.After = func(s *State) error {
			if s.Step == 2 && r.World.Rank() == 1 {
				return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 3), dist.Sum).Wait()
			}
			if err := r.World.Barrier().Wait(); err != nil {
				panic(&tensor.Failure{Op: "after", Err: err})
			}
			return nil
		}
	})
	c.Mesh, c.Name, c.Seed = "all=2,one=1", "with a cable", 5
	res, err := c.Try()
	require.Error(t, err)
	require.Len(t, res.Norms, 3, "steps before it")
	text := res.Explain(err)
	require.Contains(t, text, "2 ranks, 22 rows in 2 microbatches, tape seed 5, all=2,one=1, with a cable: ")
	require.Regexp(t, "rank 1: .*allreduce", text)
	require.Regexp(t, "rank 0: .*barrier", text)
	require.Len(t, res.Norms, 3, "steps that were done")
	require.Contains(t, text, "allreduce by direct seq 5 of group world, 12 bytes", "what was in flight")
	EachFails(t, 2, "group world", func(r *dist.Rank) error {
		if r.World.Rank() == 0 {
			panic(&tensor.Failure{Op: "group world"})
		}
		return errors.New("group world")
	})
}

// Microbatches may differ by a row: together they have all.
func TestUnevenMicrobatches(t *testing.T) {
	var batches [][2]int
	c := alone(seven, func(a *Attached, _ *dist.Rank) {
		loss := a.Loss
		a.Loss = func(b Batch) tensor.Tensor {
			batches = append(batches, [2]int{b.First, b.N})
			return loss(b)
		}
	})
	c.Steps, c.Micro = 2, 4
	require.Len(t, c.Run(t).Micro, 8)
	require.Equal(t, [][2]int{{0, 5}, {5, 6}, {11, 5}, {16, 6}, {22, 5}, {27, 6}, {33, 5}, {38, 6}}, batches)
}

// A training continues where another one was, on one rank: with its parameters, moments, and random state.
func TestSince(t *testing.T) {
	first, random, moments := Values{}, tensor.TapeState{}, optim.State{}
	want := alone(seven, func(a *Attached, r *dist.Rank) {
		a.Before = func(s *State) (err error) {
			if s.Step == 6 {
				random, moments = s.Tape.State(), s.Optimizer.State()
				for i, m := range moments.Tensors {
					moments.Tensors[i].Tensor = tensor.FromSlice(tensor.Floats(m.Tensor), m.Tensor.Shape().Dims...)
				}
				first, err = Wholes(r.World, s.Params)
			}
			return err
		}
	}).Run(t)
	c := alone(func(int) uint64 { return 8 }, func(a *Attached, _ *dist.Rank) {
		a.Start = func(s *State) error {
			s.Step = 6
			s.Tape.SetState(random)
			for _, p := range s.Params {
				tensor.Copy(p.Local, tensor.FromSlice(first[p.Name()], p.Dims()...))
			}
			return s.Optimizer.SetState(moments)
		}
	})
	require.Len(t, want.Since(6, first).Micro, 8)
	RequireEqual(t, want.Since(6, first), c.Run(t), 0)
}

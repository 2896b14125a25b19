package ddp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// mixture is a dense vector and four stacked experts. Token i goes to expert i mod 4.
type mixture struct {
	Dense   *tensor.Param
	Experts *tensor.Param // [4, 3]

	dp, ep tensor.Axes // tokens differ along the first; along the second, they are at their experts
}

func newMixture() *mixture {
	return &mixture{Dense: tensor.NewParam(tensor.UniformInit(-1, 1), 3), Experts: tensor.NewParam(tensor.UniformInit(-1, 1), 4, 3)}
}

// loss is the sum over the tokens of experts first, first+1, …, of which each has those of the given number from token on.
func (m *mixture) loss(t *tensor.Tape, first, token, n int) nn.T {
	var sum nn.T
	experts := t.Use(m.Experts)
	for e := range m.Experts.Dims()[0] {
		x := tensor.New(m.Dense.Value.Device(), tensor.Float64, n, 3)
		for i := range n {
			tensor.UniformInit(-1, 1).Fill(x.Range(3*i, 3*i+3), 8, uint64(3*(4*(token+i)+first+e)))
		}
		x = x.WithTypes(x.Types().With(m.dp, tensor.Varying).With(m.ep, tensor.Cut))
		y := t.Input(x).Mul(experts.Slice(0, e, e+1)).Tanh().Mul(t.Use(m.Dense)).Tanh().Sum()
		if sum.IsZero() {
			sum = y
		} else {
			sum = sum.Add(y)
		}
	}
	return sum
}

// train does ten steps of two microbatches of 8 tokens an expert.
func (m *mixture) train(tape *tensor.Tape, opt *optim.Optimizer, first, part, parts int) error {
	n := 4 / parts
	for step := range 10 {
		tape.Backward(m.loss(tape, first, 8*step+part*n, n), tensor.More())
		tape.Backward(m.loss(tape, first, 8*step+4+part*n, n))
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	return nil
}

// Experts that are shared out over ep are summed over those that hold the same ones, all else over all ranks: parameters,
// gradients and their norm are those of one rank.
func TestOverSmallerGroups(t *testing.T) {
	one := newMixture()
	ps := nn.Init(one, tensor.NewCPU(1), tensor.Float64, 5)
	ref := optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.01, Clip: 0.3})
	require.NoError(t, one.train(tensor.NewTape(one.Dense.Value.Device()), ref, 0, 0, 1))
	require.Greater(t, ref.GradNorm(), 1.0, "clipping does something")
	for _, mode := range []struct {
		attach attacher
		ep     int
	}{{ddp.Attach, 1}, {ddp.Attach, 2}, {ddp.Attach, 4}, {ddp.Naive, 2}} {
		require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 4, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
			mesh, err := r.Mesh(fmt.Sprintf("dp=%d,ep=%d", 4/mode.ep, mode.ep))
			if err != nil {
				return err
			}
			m := newMixture()
			k := 4 / mode.ep
			first := k * mesh.Coord("ep")
			m.Experts.Cut([]int{k, 3}, tensor.Box{Lo: []int{first, 0}, Hi: []int{first + k, 3}})
			m.dp, m.ep = mesh.Group("dp").Axes(), mesh.Group("ep").Axes()
			m.Experts.Lay(m.ep, tensor.Cut)
			params, err := mode.attach(r.World, m, ddp.Config{DType: tensor.Float64, Seed: 5, BucketBytes: 64, Over: func(p *tensor.Param) *dist.Group {
				if p == m.Experts {
					return mesh.Group("dp")
				}
				return nil
			}})
			if err != nil {
				return err
			}
			require.Equal(t, []bool{r.World.Rank() == 0, mesh.Coord("dp") == 0}, []bool{m.Dense.Shard.Counts, m.Experts.Shard.Counts})
			opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.3, Norm: r.World})
			if err := m.train(tensor.NewTape(r.Device), opt, first, mesh.Coord("dp"), 4/mode.ep); err != nil {
				return err
			}
			want := append(tensor.Floats(one.Dense.Value), tensor.Floats(one.Experts.Value)[3*first:3*(first+k)]...)
			require.InDeltaSlice(t, want, append(tensor.Floats(m.Dense.Value), tensor.Floats(m.Experts.Value)...), 1e-12)
			require.InDelta(t, ref.GradNorm(), opt.GradNorm(), 1e-12)
			return nil
		}))
	}
}

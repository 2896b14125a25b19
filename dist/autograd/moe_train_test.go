package autograd_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// moeTraining is ten steps of two microbatches on edp × ep ranks. Each rank has its own tokens. The experts are divided over ep; ranks
// along edp have the same ones.
type moeTraining struct {
	top, capacity int
	edp, ep       int
	fsdp          bool
	idle          bool                         // rank 0 has all tokens
	change        func(m *moeModel, g moeMesh) // makes the program wrong, after the experts are cut
	over          func(m *moeModel, g moeMesh, p *tensor.Param) *dist.Group
	dense         func(g moeMesh) *dist.Group // the group for Attach; nil: all ranks
}

type moeMesh struct{ edp, ep, all, none *dist.Group }

func (c moeTraining) run() (*trained, error) {
	return train(c.edp*c.ep, func(r *dist.Rank) ([]float64, nn.Params, error) {
		mesh, err := r.Mesh(fmt.Sprintf("edp=%d,ep=%d", c.edp, c.ep))
		if err != nil {
			return nil, nil, err
		}
		return c.rank(r, moeMesh{mesh.Group("edp"), mesh.Group("ep"), r.World, mesh.Group()})
	})
}

func (c moeTraining) rank(r *dist.Rank, g moeMesh) (numbers []float64, params nn.Params, err error) {
	m := newMoE(c.top, c.capacity)
	m.cut(g.ep, g.all)
	if c.change != nil {
		c.change(m, g)
	}
	if params, err = c.attach(m, g); err != nil {
		return nil, nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	numbers, norms, err := tenSteps(tape, opt, func(micro int) nn.T { return c.loss(m, tape, r, micro) })
	if err != nil {
		return nil, nil, err
	}
	numbers = append(numbers, float64(m.dropped))
	if err := r.World.SumFloats(numbers); err != nil {
		return nil, nil, err
	}
	return append(numbers, norms...), params, nil
}

// attach divides the model. Gradients of experts are summed over the ranks that have the same ones, all others over all ranks.
func (c moeTraining) attach(m *moeModel, g moeMesh) (nn.Params, error) {
	all := g.all
	if c.dense != nil {
		all = c.dense(g)
	}
	if c.fsdp {
		experts := g.edp
		if c.over != nil {
			experts = c.over(m, g, m.Up)
		}
		s := fsdp.New(fsdp.Config{Shard: all, DType: tensor.Float64, Seed: 3})
		s.Unit(m.In, m.Router)
		s.Unit(m.Up, m.Down).Over(experts, nil)
		s.Unit(m.Shared, m.Out)
		return s.Attach(m)
	}
	return ddp.Attach(all, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 300, Over: func(p *tensor.Param) *dist.Group {
		switch {
		case c.over != nil:
			return c.over(m, g, p)
		case p == m.Up || p == m.Down:
			return g.edp
		}
		return nil
	}})
}

func (c moeTraining) loss(m *moeModel, tape *tensor.Tape, r *dist.Rank, micro int) nn.T {
	const rows = 11
	first, n := disttest.Part(rows, r.World.Rank(), r.World.Size())
	if c.idle {
		first, n = disttest.Part(rows, min(r.World.Rank(), 1), 1)
		if r.World.Rank() > 0 {
			first, n = rows, 0
		}
	}
	x, y := disttest.Dataset{DType: tensor.Float64, Features: moeFeatures}.Samples(r.Device, micro*rows+first, n)
	place := r.World.Rows(micro%2*rows+first, 2*rows)
	return nn.CrossEntropy(m.Forward(tape.Input(x.WithRows(place))), y)
}

// On one rank, each token gets the outputs of its experts, weighted by the router.
func TestMixtureOfExpertsOfATensor(t *testing.T) {
	r, err := train(1, func(r *dist.Rank) ([]float64, nn.Params, error) {
		m := newMoE(2, 0)
		m.cut(r.World, r.World)
		nn.Init(m, r.Device, tensor.Float64, 3)
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		v, _ := disttest.Dataset{DType: tensor.Float64, Features: moeFeatures}.Samples(r.Device, 0, 6)
		x := tape.Input(v)
		got := m.experts(x).Sub(m.Shared.Forward(x).GELU())
		weights, idx := m.Router.Forward(x).Softmax().TopK(2)
		for i, e := range tensor.Data[int64](idx) {
			row, k := x.Slice(0, i/2, i/2+1), int(e)
			part := func(p *tensor.Param) nn.T { return tape.Use(p).Slice(0, k, k+1).Reshape(p.Dims()[1:]...) }
			y := tensor.Linear(tensor.Linear(row, part(m.Up), nn.T{}).GELU(), part(m.Down), nn.T{})
			y = y.Scale(tensor.Floats(weights)[i])
			got = got.Sub(y.Pad(0, i/2, 5-i/2))
		}
		return tensor.Floats(got), nil, nil
	})
	require.NoError(t, err)
	for _, d := range r.numbers {
		require.InDelta(t, 0, d, 1e-12)
	}
}

// A mixture of experts trains as on one rank, under ddp and under fsdp, on any mesh: with one, two or four experts for each token, with
// tokens dropped at a capacity, and with ranks that have no tokens.
func TestMixtureOfExpertsEqualsOneRank(t *testing.T) {
	for _, c := range []moeTraining{{top: 1}, {top: 2}, {top: 4}, {top: 2, capacity: 3}, {top: 2, idle: true}} {
		c.edp, c.ep = 1, 1
		want, err := c.run()
		require.NoError(t, err)
		if dropped := want.numbers[20]; c.capacity > 0 {
			require.NotZero(t, dropped)
		} else {
			require.Zero(t, dropped)
		}
		for _, mesh := range [][2]int{{1, 2}, {2, 2}, {1, 4}} {
			for _, c.fsdp = range []bool{false, true} {
				c.edp, c.ep = mesh[0], mesh[1]
				t.Run(fmt.Sprintf("top %d capacity %d idle %v edp %d ep %d fsdp %v", c.top, c.capacity, c.idle, c.edp, c.ep, c.fsdp), func(t *testing.T) {
					got, err := c.run()
					require.NoError(t, err)
					got.requireSame(t, want)
				})
			}
		}
	}
}

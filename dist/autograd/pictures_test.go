package autograd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// pictures is a small network with batch norms, of pictures of two channels.
type pictures struct {
	Net  nn.Sequential
	sync func(g *dist.Group) tensor.Function
}

func pictureJob(sync func(g *dist.Group) tensor.Function) job {
	part := func(_, rank, ranks int) (first, n int) { // of seven pictures
		first = []int{0, 4, 4}[rank]
		return first, map[int][]int{1: {7}, 2: {4, 3}, 3: {4, 0, 3}}[ranks][rank]
	}
	return job{training: training{Batch: 14, Part: part}, model: func() model {
		return &pictures{nn.Sequential{nn.NewConv2d(2, 5, 3, ops.Conv2dOptions{Padding: [2]int{1, 1}}), nn.NewBatchNorm2d(5), nn.ReLU,
			nn.NewMaxPool2d(2), nn.NewConv2d(5, 4, 2, ops.Conv2dOptions{}), nn.NewBatchNorm2d(4), nn.Tanh, nn.NewDropout2d(0.2),
			nn.Flatten{}, nn.NewLinear(4*2*3, 3)}, sync}
	}}
}

func (m *pictures) cut(g *ranks) {
	if m.sync != nil {
		nn.SyncBatchNorm(m.Net, m.sync(g.Group("dp", "fsdp")))
	}
}

func (m *pictures) units(s *fsdp.Sharding, _ *ranks) { s.Keep(m.Net) }

func (m *pictures) loss(b disttest.Batch) nn.T {
	x, y := tensor.New(b.Tape.Device(), tensor.Float64, b.N, 2, 6, 8), make([]int64, b.N)
	tensor.NormalInit(1, 2).Fill(x, 1, uint64(b.First*2*6*8))
	for i := range y {
		y[i] = int64((b.First + i) % 3)
	}
	return nn.CrossEntropy(m.Net.Forward(b.Tape.Input(x.WithRows(b.Rows))), tensor.FromSlice(y, b.N))
}

func allReduce(g *dist.Group) tensor.Function { return &autograd.AllReduce{Group: g} }

// With synchronized batch norms, uneven ranks train as one rank: losses, parameters and running statistics are equal, and what they compute
// in evaluation.
func TestSyncBatchNormEqualsOneRank(t *testing.T) {
	var evaluated []float64
	c := pictureJob(allReduce)
	c.end = func(n model, s *disttest.State) error {
		eval := tensor.NewTape(s.Rank.Device, tensor.NoGrad())
		sum := []float64{n.loss(s.Batch(eval, 0)).Item()}
		err := s.Rank.World.SumFloats(sum)
		if s.Rank.World.Rank() == 0 {
			evaluated = append(evaluated, sum...)
		}
		return err
	}
	requireOneRank(t, c, turns(t, 2, "dp=1", "dp=2", "dp=3", "fsdp=3")...)
	for _, loss := range evaluated {
		require.InDelta(t, evaluated[0], loss, 1e-10)
	}
}

func TestLongSyncBatchNormEqualsOneRank(t *testing.T) {
	reliability.AsLong(t, TestSyncBatchNormEqualsOneRank)
}

// Batch norms with the statistics of only a rank's own rows are refused, and so are sums whose gradient is not summed.
func TestWrongBatchNormIsRefused(t *testing.T) {
	sync := func(f func(g *dist.Group) tensor.Function) func(m *pictures, g *ranks) {
		return func(m *pictures, g *ranks) { nn.SyncBatchNorm(m.Net, f(g.Group("dp"))) }
	}
	c := pictureJob(nil)
	c.Mesh = "dp=2"
	requireRefused(t, c, map[string]wrong[*pictures]{
		"own statistics":          {func(*pictures, *ranks) {}, "SyncBatchNorm"},
		"Copy":                    {sync(func(g *dist.Group) tensor.Function { return &autograd.Copy{Group: g} }), "autograd.Copy"},
		"the gradient not summed": {sync(func(g *dist.Group) tensor.Function { return &autograd.Sum{Group: g} }), "counts its gradient once"},
	})
}

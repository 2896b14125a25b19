package autograd_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// layered is a small network of features [rows, 6, 8], and its loss.
type layered struct {
	Net    nn.Sequential
	lossOf func(x, y nn.T) nn.T
}

func (m *layered) cut(*ranks) {}

func (m *layered) units(s *fsdp.Sharding, _ *ranks) {
	for _, l := range m.Net {
		if len(nn.Within(l)) > 0 {
			s.Unit(l)
		}
	}
}

func (m *layered) loss(b disttest.Batch) nn.T {
	dev := b.Tape.Device()
	x, y := tensor.New(dev, tensor.Float64, b.N, 6, 8), tensor.New(dev, tensor.Float64, b.N, 3)
	tensor.NormalInit(0.5, 1).Fill(x, 1, uint64(b.First*6*8))
	tensor.NormalInit(1, 1).Fill(y, 2, uint64(b.First*3))
	return m.lossOf(m.Net.Forward(b.Tape.Input(x.WithRows(b.Rows))), y.WithRows(b.Rows))
}

// view is a layer that reshapes rows.
type view []int

func (v view) Forward(x nn.T) nn.T { return x.Reshape(append([]int{-1}, v...)...) }

type logSoftmax struct{}

func (logSoftmax) Forward(x nn.T) nn.T { return ops.LogSoftmax(x) }

func layeredJob(lossOf func(x, y nn.T) nn.T, net func() nn.Sequential) job {
	part := func(_, rank, ranks int) (first, n int) { // of seven rows
		first = []int{0, 4, 4}[rank]
		return first, map[int][]int{1: {7}, 2: {4, 3}, 3: {4, 0, 3}}[ranks][rank]
	}
	return job{training: training{Batch: 14, Part: part}, model: func() model { return &layered{Net: net(), lossOf: lossOf} }}
}

// Recurrent layers, convolutions of all kinds, and their losses train on uneven ranks, one of which may have no rows, as on one rank.
func TestLayersEqualOneRank(t *testing.T) {
	transposed := ops.ConvTranspose2dOptions{Conv2dOptions: ops.Conv2dOptions{Stride: [2]int{2, 2}}, OutputPadding: [2]int{1, 1}}
	jobs := map[string]job{
		"LSTM, L1": layeredJob(nn.L1, func() nn.Sequential {
			return nn.Sequential{nn.NewLSTM(8, 5, nn.RecurrentOptions{Layers: 2, Bidirectional: true}), nn.Flatten{}, nn.NewLinear(60, 3)}
		}),
		"GRU, Huber": layeredJob(func(x, y nn.T) nn.T { return nn.Huber(x, y, 0.8) }, func() nn.Sequential {
			return nn.Sequential{nn.NewGRU(8, 5, nn.RecurrentOptions{Layers: 2}), nn.Flatten{}, nn.NewLinear(30, 3)}
		}),
		"Conv1d, KLDiv": layeredJob(func(x, y nn.T) nn.T { return nn.KLDiv(x, ops.Softmax(x.Tape().Input(y))).Scale(2) }, func() nn.Sequential {
			return nn.Sequential{nn.NewConv1d(6, 4, 3, ops.Conv1dOptions{Stride: 2, Padding: 1}), nn.Tanh, nn.Flatten{}, nn.NewLinear(16, 3),
				logSoftmax{}}
		}),
		"ConvTranspose2d, SmoothL1": layeredJob(func(x, y nn.T) nn.T { return nn.SmoothL1(x, y, 1.5).Scale(2) }, func() nn.Sequential {
			return nn.Sequential{view{6, 2, 4}, nn.NewConvTranspose2d(6, 2, 3, transposed), nn.Tanh, nn.NewUpsample(2, ops.Bilinear),
				nn.NewUpsample(2, ops.Nearest), nn.NewAvgPool2d(8), nn.Flatten{}, nn.NewLinear(30, 3)}
		}),
	}
	for i, name := range slices.Sorted(maps.Keys(jobs)) {
		if name == "GRU, Huber" && !reliability.Long(t) {
			continue
		}
		t.Run(name, func(t *testing.T) { requireOneRank(t, jobs[name], turns(t, i, "dp=2", "dp=3", "fsdp=3", "fsdp=2")...) })
	}
}

func TestLongLayersEqualOneRank(t *testing.T) { reliability.AsLong(t, TestLayersEqualOneRank) }

// A mean over a rank's own rows, in place of the loss that counts the batch, is refused.
func TestWrongLossOfLayersIsRefused(t *testing.T) {
	c := layeredJob(nn.L1, func() nn.Sequential {
		return nn.Sequential{nn.NewGRU(8, 5, nn.RecurrentOptions{}), nn.Flatten{}, nn.NewLinear(30, 3)}
	})
	c.Mesh = "dp=2"
	own := func(x, y nn.T) nn.T { return x.Sub(x.Tape().Input(y)).Abs().Mean() }
	requireRefused(t, c, map[string]wrong[*layered]{
		"the mean of own rows": {func(m *layered, _ *ranks) { m.lossOf = own }, "GlobalMean"},
	})
}

package autograd_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// moeJob begins on one rank.
func moeJob(top, capacity int, dropped *atomic.Int64) job {
	return job{training: training{Mesh: "ep=1"}, model: func() model { return newMoE(top, capacity, dropped) }}
}

// On one rank, each token gets the outputs of its experts, weighted by the router.
func TestMixtureOfExpertsOfATensor(t *testing.T) {
	run(t, 1, func(r *dist.Rank) error {
		m := newMoE(2, 0, new(atomic.Int64))
		m.ep, m.all = r.World, r.World
		nn.Init(m, r.Device, tensor.Float64, 3)
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		v, _ := moeSet.Samples(r.Device, 0, 6)
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
		for _, d := range tensor.Floats(got) {
			require.InDelta(t, 0, d, 1e-12)
		}
		return nil
	})
}

// A mixture of experts trains as on one rank, under ddp and under fsdp, on any mesh: with one, two or four experts for each token, with
// tokens dropped at a capacity, and with ranks that have no tokens.
func TestMixtureOfExpertsEqualsOneRank(t *testing.T) {
	idle := func(rows, rank, _ int) (first, n int) { // rank 0 has all tokens
		if rank > 0 {
			return rows, 0
		}
		return 0, rows
	}
	for _, c := range []struct {
		top, capacity int
		part          func(rows, rank, ranks int) (first, n int)
	}{{1, 0, nil}, {2, 0, nil}, {4, 0, nil}, {2, 3, nil}, {2, 0, idle}} {
		t.Run(fmt.Sprintf("top %d capacity %d idle %v", c.top, c.capacity, c.part != nil), func(t *testing.T) {
			var dropped atomic.Int64
			j := moeJob(c.top, c.capacity, &dropped)
			j.Part = c.part
			requireOneRank(t, j, "ep=2", "dp=2,ep=2", "ep=4", "fsdp=1,ep=2", "fsdp=2,ep=2", "fsdp=1,ep=4")
			require.Equal(t, c.capacity > 0, dropped.Load() > 0)
		})
	}
}

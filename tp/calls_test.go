package tp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// divided returns a model on ranks that divide it, and its loss.
func divided(t *testing.T, r *dist.Rank, c gpt.Config, seq bool) (*gpt.Model, *tp.CrossEntropy, *dist.Group) {
	mesh, err := r.Mesh("tp=2")
	require.NoError(t, err)
	m, err := gpt.New(c)
	require.NoError(t, err)
	loss, err := parallelize(m, tp.Config{Group: mesh.Group("tp"), Sequence: seq})
	require.NoError(t, err)
	nn.Init(m, r.Device, tensor.Float32, 1)
	return m, loss, mesh.Group("tp")
}

// A layer has two all-reduces forward and two backward, or as many all-gathers and reduce-scatters, which send what the formulas of
// package autograd say. Beside them stand the vocabulary's, and those of parameters that are used on a part of the tokens.
func TestCallsAndBytes(t *testing.T) {
	c := gpt.Config{Kind: gpt.GPT2, Vocab: 64, Positions: 16, Width: 32, Layers: 3, Heads: 4, Tied: true}
	const batch, ranks, floats = 2, 2, 4
	activations := uint64(batch * c.Positions * c.Width * floats)
	share := activations * (ranks - 1) / ranks // of an all-gather or reduce-scatter; an all-reduce sends twice that
	layers := uint64(c.Layers)
	for _, seq := range []bool{false, true} {
		require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
			m, loss, g := divided(t, r, c, seq)
			tape := tensor.NewTape(r.Device)
			ids := tensor.New(r.Device, tensor.Int64, batch, c.Positions)
			l := loss.Loss(m.Forward(tape.Input(ids)), ids)
			forward := g.Stats()
			tape.Backward(l)
			whole := g.Stats()
			numbers := uint64(2 * 3 * batch * c.Positions * floats * (ranks - 1) / ranks)
			if !seq {
				require.Equal(t, map[string]uint64{"allreduce": 1 + 2*layers + 2}, forward.Calls)
				require.Equal(t, map[string]uint64{"allreduce": 1 + 2*layers + 2 + 2*layers + 1}, whole.Calls)
				require.Equal(t, (1+2*layers)*2*share+numbers, forward.Wire["allreduce"])
				require.Equal(t, (2*layers+1)*2*share, whole.Wire["allreduce"]-forward.Wire["allreduce"])
				return nil
			}
			small := 6*layers + 2 // a block's norms and late biases, and the last norm
			require.Equal(t, map[string]uint64{"allreduce": 1 + 2, "allgather": 2*layers + 1, "reducescatter": 2 * layers}, even(forward.Calls))
			require.Equal(t, map[string]uint64{"allreduce": 1 + 2 + small, "allgather": 2*layers + 1 + 2*layers + 1, "reducescatter": 2*layers + 2*layers + 1}, even(whole.Calls))
			require.Equal(t, (2*layers+1+2*layers+1)*share, even(whole.Wire)["allgather"])
			require.Equal(t, (2*layers+2*layers+1)*share, even(whole.Wire)["reducescatter"])
			return nil
		}))
	}
}

// even counts operations on parts of given sizes as those on equal ones.
func even(n map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for name, v := range n {
		switch name {
		case "allgatherv":
			name = "allgather"
		case "reducescatterv":
			name = "reducescatter"
		}
		out[name] += v
	}
	return out
}

// A step allocates nothing on the heap.
func TestStepAllocatesNothing(t *testing.T) {
	c := gpt.Config{Kind: gpt.Llama, Vocab: 33, Positions: 8, Width: 16, Layers: 2, Heads: 4, KVHeads: 2}
	for _, seq := range []bool{false, true} {
		disttest.SteadySteps(t, dist.Run, 12, 6, func(r *dist.Rank) (func() error, error) {
			m, loss, _ := divided(t, r, c, seq)
			params := nn.ParamsOf(m)
			tape, ids := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Int64, 3, 7)
			return func() error {
				tape.Backward(loss.Loss(m.Forward(tape.Input(ids)), ids))
				for _, p := range params {
					p.Consume()
				}
				tape.Reset()
				return nil
			}, nil
		})
	}
}

package tp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// divided returns a model on ranks that divide it, and its loss.
func divided(t *testing.T, r *dist.Rank, c gpt.Config, cfg tp.Config) (*gpt.Model, *tp.CrossEntropy, *dist.Group) {
	mesh, err := r.Mesh("tp=2")
	require.NoError(t, err)
	m, err := gpt.New(c)
	require.NoError(t, err)
	cfg.Group = mesh.Group("tp")
	loss, err := parallel.Divide(m, cfg, nil)
	require.NoError(t, err)
	nn.Init(m, r.Device, tensor.Float32, 1)
	return m, loss, mesh.Group("tp")
}

// A layer has two all-reduces forward and two backward, or as many all-gathers and reduce-scatters, which send what the formulas of
// package autograd say. Beside them stand the vocabulary's, and those of parameters that are used on a part of the tokens. Blocks that are
// computed again in backward communicate again, but for nothing else: two all-reduces each. Chunks send the same bytes, in more calls.
func TestCallsAndBytes(t *testing.T) {
	c := gpt.Config{Kind: gpt.GPT2, Vocab: 64, Positions: 16, Width: 32, Layers: 3, Heads: 4, Tied: true}
	const batch, ranks, floats = 2, 2, 4
	activations := uint64(batch * c.Positions * c.Width * floats)
	share := activations * (ranks - 1) / ranks // of an all-gather or reduce-scatter; an all-reduce sends twice that
	layers, sent := uint64(c.Layers), make([]uint64, len(forms))
	for i, cfg := range forms {
		require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
			m, loss, g := divided(t, r, c, cfg)
			tape := tensor.NewTape(r.Device)
			ids := tensor.New(r.Device, tensor.Int64, batch, c.Positions)
			l := loss.Loss(m.Forward(tape.Input(ids)), ids)
			forward := g.Stats()
			tape.Backward(l)
			whole := g.Stats()
			if r.World.Rank() == 0 {
				sent[i] = whole.WireBytes()
			}
			if cfg.Chunks > 0 {
				return nil
			}
			numbers := uint64(2 * 3 * batch * c.Positions * floats * (ranks - 1) / ranks)
			if !cfg.Sequence {
				require.Equal(t, map[string]uint64{"allreduce": 1 + 2*layers + 2}, forward.Calls)
				require.Equal(t, map[string]uint64{"allreduce": 1 + 2*layers + 2 + 2*layers + 1}, whole.Calls)
				require.Equal(t, (1+2*layers)*2*share+numbers, forward.Wire["allreduce"])
				require.Equal(t, (2*layers+1)*2*share, whole.Wire["allreduce"]-forward.Wire["allreduce"])
				for _, p := range nn.ParamsOf(m) {
					p.Consume()
				}
				tape.Reset()
				tape.Backward(loss.Loss(job{again: true}.logits(m, tape.Input(ids)), ids))
				require.Equal(t, whole.Calls["allreduce"]+2*layers, g.Stats().Calls["allreduce"]-whole.Calls["allreduce"])
				return nil
			}
			small := 6*layers + 2 // a block's norms and late biases, and the last norm
			require.Equal(t, map[string]uint64{"allreduce": 1 + 2, "allgather": 2*layers + 1, "reducescatter": 2 * layers}, even(forward.Calls))
			again := 2 * layers // what columns read is not kept, but for the last ones, the logits
			require.Equal(t, map[string]uint64{"allreduce": 1 + 2 + small, "allgather": 2*layers + 1 + 2*layers + 1 + again,
				"reducescatter": 2*layers + 2*layers + 1}, even(whole.Calls))
			require.Equal(t, (2*layers+1+2*layers+1+again)*share, even(whole.Wire)["allgather"])
			require.Equal(t, (2*layers+2*layers+1)*share, even(whole.Wire)["reducescatter"])
			return nil
		}))
	}
	require.NotZero(t, sent[1])
	require.Equal(t, sent[1], sent[2])
}

// A rank keeps its part of the tokens from forward to backward, and what lies between the divided layers: what these read is gathered
// again.
func TestKeepsItsTokens(t *testing.T) {
	const ranks, batch, floats = 2, 4, 4
	c := gpt.Config{Kind: gpt.GPT2, Vocab: 64, Positions: 64, Width: 32, Layers: 6, Heads: 4, Tied: true}
	activation := batch * c.Positions * c.Width * floats
	live := map[string]int{}
	for name, cfg := range map[string]*tp.Config{"one rank": nil, "whole": {}, "parts": {Sequence: true}} {
		n := ranks
		if cfg == nil {
			n = 1
		}
		require.NoError(t, disttest.OnRanks(n, func(r *dist.Rank) error {
			tape, ids := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Int64, batch, c.Positions)
			var l nn.T
			if cfg != nil {
				m, loss, _ := divided(t, r, c, *cfg)
				l = loss.Loss(m.Forward(tape.Input(ids)), ids)
			} else {
				m, err := gpt.New(c)
				require.NoError(t, err)
				nn.Init(m, r.Device, tensor.Float32, 1)
				l = nn.CrossEntropy(m.Forward(tape.Input(ids)), ids)
			}
			if r.World.Rank() == 0 {
				live[name], _ = tape.Memory()
			}
			tape.Backward(l)
			return nil
		}))
	}
	between := 4 * activation // of a block: what each of two rows sums, before and behind the bias
	around := 6 * activation  // what looks tokens up, what the logits read, and the loss
	require.LessOrEqual(t, live["parts"], live["one rank"]/ranks+c.Layers*between/ranks+around)
	require.Greater(t, live["whole"]-live["parts"], c.Layers*5*activation) // norms, sums, residuals: half; what columns read: all but one
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
	for _, cfg := range forms {
		disttest.SteadySteps(t, dist.Run, 12, 6, func(r *dist.Rank) (func() error, error) {
			m, loss, _ := divided(t, r, c, cfg)
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

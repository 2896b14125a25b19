package parallel_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// joined is a training on devices that compute queries, keys and values in one product, or, of a model with fewer keys, keys and values;
// and gates beside what they gate.
type joined struct {
	fewer     bool // keys than queries, with rotary positions
	layout    parallel.Layout
	stage     int // of fsdp
	lora      bool
	frozen    bool // queries
	recompute bool
	none      bool // is one product
}

func (j joined) training(t *testing.T, one bool) disttest.Training {
	c := disttest.Training{Batch: 7, Steps: 10, Name: fmt.Sprintf("%+v", j)}
	if !one {
		c.Mesh, c.On = j.layout.Mesh(2), func(ctx context.Context, cfg dist.Config, fn func(context.Context, *dist.Rank) error) error {
			cfg.Device = tensortest.Remotes(t)
			return dist.Run(ctx, cfg, fn)
		}
	}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		return j.attach(t, r, mesh)
	}
	return c
}

func (j joined) attach(t *testing.T, r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
	config := gpt.Config{Kind: gpt.GPT2, Vocab: 11, Positions: 5, Width: 9, Layers: 2, Heads: 3, KVHeads: 3, HeadDim: 3, Hidden: 10}
	if j.fewer {
		config = gpt.Config{Kind: gpt.Llama, Vocab: 11, Positions: 5, Width: 10, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 4, Hidden: 7}
	}
	m := disttest.Must(gpt.New(config))
	m.Recompute = j.recompute
	if j.lora {
		nn.LoRA(m, nn.LoRAConfig{Rank: 3, Alpha: 40, Targets: []string{"blocks.*.attn.?"}})
	}
	for _, b := range m.Blocks {
		if j.frozen {
			b.Attn.Q.W.Freeze()
		}
	}
	at := disttest.Attached{Norm: r.World}
	loss, part := nn.CrossEntropy, func(x tensor.Tensor) tensor.Tensor { return x }
	if mesh == nil {
		at.Params = nn.Init(m, r.Device, tensor.Float64, 3)
	} else {
		c := parallel.Config{DDP: ddp.Config{DType: tensor.Float64, Seed: 3}}
		if j.stage > 0 {
			c.FSDP = &fsdp.Config{DType: tensor.Float64, Seed: 3, Stage: j.stage}
		}
		a, err := parallel.Attach(mesh, m, c)
		if err != nil {
			return at, err
		}
		at.Params, at.Data, at.Sum = a.Params, a.Data, a.Sum
		part = func(x tensor.Tensor) tensor.Tensor { return a.Part(x) }
		loss = a.Loss
	}
	at.Loss = func(b disttest.Batch) nn.T {
		of, after := make([]int64, b.N*5), make([]int64, b.N*5)
		for i := range of {
			k := b.First*5 + i
			of[i] = int64(k * k % 19 % 11)
			after[i] = (3*of[i] + int64(k%2)) % 11
		}
		x := tensor.FromSlice(of, b.N, 5).WithRows(b.Rows)
		return loss(m.Forward(b.Tape.Input(part(x))), part(tensor.FromSlice(after, b.N, 5).WithRows(b.Rows)))
	}
	at.After = func(s *disttest.State) error {
		dev, ok := r.Device.(*tensortest.Remote)
		if !ok {
			return nil
		}
		got, last := dev.Counts().Linears, r.World.Rank() == r.World.Size()-1
		if j.none && got > 0 || !j.none && got == 0 && last { // other ranks may have no rows
			return fmt.Errorf("step %d had %d products for several layers", s.Step, got)
		}
		return nil
	}
	return at, nil
}

// Layers that are one product are trained as on one rank in host memory, where each has its own: by ddp, by all stages of fsdp, beside
// frozen ones, and with activation checkpointing. The shares of tp are one product, too. Adapters have products of their own.
func TestJoinedLayersEqualOneRank(t *testing.T) {
	for i, j := range []joined{
		{layout: parallel.Layout{DP: 1}}, {layout: parallel.Layout{DP: 3}}, {layout: parallel.Layout{DP: 2}, recompute: true},
		{layout: parallel.Layout{DP: 2}, frozen: true}, {layout: parallel.Layout{FSDP: 3}, stage: 1},
		{layout: parallel.Layout{FSDP: 2}, stage: 2}, {layout: parallel.Layout{FSDP: 3}, stage: 3},
		{layout: parallel.Layout{FSDP: 2}, stage: 3, recompute: true}, {layout: parallel.Layout{TP: 3}},
		{layout: parallel.Layout{DP: 2}, lora: true, none: true},
		{fewer: true, layout: parallel.Layout{DP: 3}}, {fewer: true, layout: parallel.Layout{FSDP: 2}, stage: 3, recompute: true},
		{fewer: true, layout: parallel.Layout{FSDP: 3}, stage: 2}, {fewer: true, layout: parallel.Layout{TP: 2}},
	} {
		if !slices.Contains([]int{3, 6, 8, 9, 11}, i) && !reliability.Long(t) {
			continue
		}
		want := j.training(t, true).Run(t)
		require.NotEmpty(t, want)
		disttest.RequireEqual(t, want, j.training(t, false).Run(t), 1e-10)
	}
}

func TestLongJoinedLayersEqualOneRank(t *testing.T) {
	reliability.AsLong(t, TestJoinedLayersEqualOneRank)
}

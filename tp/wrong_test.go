package tp_test

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// inner returns the layer before what Columns and Heads put behind it.
func inner(l nn.Layer) nn.Layer { return reflect.ValueOf(l).Elem().Field(0).Interface().(nn.Layer) }

// bare returns a parameter like p, whose gradient is not summed.
func bare(p *tensor.Param) *tensor.Param { return tensor.NewParam(tensor.Constant(1), p.Global()...) }

// A program that lacks one of its communications is refused before a step is trained.
func TestEachCommunicationIsNeeded(t *testing.T) {
	type change = func(m *gpt.Model, mesh *dist.Mesh)
	both := map[string]change{
		"sum of the vocabulary": func(m *gpt.Model, _ *dist.Mesh) { m.Tok.Post = nil },
		"before heads":          func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[1].Norm1 = inner(m.Blocks[1].Norm1) },
		"behind heads":          func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[1].Attn.Out.Post = nil },
		"before columns":        func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[0].Norm2 = inner(m.Blocks[0].Norm2) },
		"behind rows":           func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[0].MLP.(*nn.MLP).Down.Post = nil },
		"before the logits":     func(m *gpt.Model, _ *dist.Mesh) { m.Norm = inner(m.Norm) },
	}
	sequence := map[string]change{
		"tokens are not divided":  func(m *gpt.Model, _ *dist.Mesh) { m.Embedded = nil },
		"a norm's sum":            func(m *gpt.Model, _ *dist.Mesh) { n := inner(m.Blocks[0].Norm1).(*nn.LayerNorm); n.W = bare(n.W) },
		"a norm's bias' sum":      func(m *gpt.Model, _ *dist.Mesh) { n := inner(m.Norm).(*nn.LayerNorm); n.B = bare(n.B) },
		"the sum of a row's bias": func(m *gpt.Model, _ *dist.Mesh) { l := m.Blocks[0].Attn.Out; l.B = bare(l.B) },
	}
	for _, seq := range []bool{false, true} {
		all := map[string]change{}
		for name, c := range both {
			all[name] = c
		}
		if seq {
			for name, c := range sequence {
				all[name] = c
			}
		}
		for name, c := range all {
			res, err := training{layout: layout{dp: 2, kv: 2, rep: 1, seq: seq}, config: models["gpt2"], break_: c}.run()
			require.Error(t, err, "%s, sequence %v", name, seq)
			require.Empty(t, res.norms, name)
		}
	}
}

// Other programs whose gradients would be wrong.
func TestWrongPrograms(t *testing.T) {
	for want, c := range map[string]func(m *gpt.Model, mesh *dist.Mesh){
		"axis kv": func(m *gpt.Model, mesh *dist.Mesh) {
			m.Blocks[0].Attn.Out.Post = &autograd.Sum{Group: mesh.Group("kv")}
		},
		"axis dp": func(m *gpt.Model, mesh *dist.Mesh) {
			m.Blocks[0].Attn.Out.Post = &autograd.Sum{Group: mesh.Group("dp")}
		},
	} {
		_, err := training{layout: layout{dp: 2, kv: 2, rep: 1, seq: want == "axis kv"}, config: models["gpt2"], break_: c}.run()
		require.ErrorContains(t, err, want)
	}
}

// What cannot be divided is an error on every rank that says what could.
func TestWhatDoesNotDivide(t *testing.T) {
	for want, c := range map[string]struct {
		ranks  string
		config gpt.Config
		cfg    func(mesh *dist.Mesh) tp.Config
	}{
		"6 heads of blocks.0.attn.q.weight do not divide over 4 ranks: the number of ranks must divide 6":                           {"kv=4,rep=1", models["llama"], nil},
		"2 heads of blocks.0.attn.k.weight do not divide over 4 ranks: give Config.KV and Config.Replicas, groups of 2 and 2 ranks": {"kv=4,rep=1", models["gqa"], nil},
		"4 heads of blocks.0.attn.k.weight do not divide over 3 ranks: the number of ranks must divide 4, or be a multiple of it": {"kv=3,rep=1",
			gpt.Config{Kind: gpt.Llama, Vocab: 9, Positions: 4, Width: 24, Layers: 1, Heads: 12, KVHeads: 4}, nil},
		"Config.KV has 1 ranks and Config.Replicas 2, for 2 heads of blocks.0.attn.k.weight: with replicas, each rank has one head": {"kv=1,rep=2", models["gqa"],
			func(m *dist.Mesh) tp.Config {
				return tp.Config{Group: m.Group("kv", "rep"), KV: m.Group("kv"), Replicas: m.Group("rep")}
			}},
		"a table of 2 rows does not divide over 3 ranks": {"kv=3,rep=1", gpt.Config{Kind: gpt.Llama, Vocab: 2, Positions: 4, Width: 12, Layers: 1, Heads: 3}, nil},
		"Config.Group is nil":                            {"kv=2,rep=1", models["gqa"], func(*dist.Mesh) tp.Config { return tp.Config{} }},
		"Config.Chunks is 2: it must be 0 to 32, and needs Config.Sequence": {"kv=2,rep=1", models["gqa"],
			func(m *dist.Mesh) tp.Config { return tp.Config{Group: m.Group("kv"), Chunks: 2} }},
		"Config.Chunks is 33: it must be 0 to 32": {"kv=2,rep=1", models["gqa"],
			func(m *dist.Mesh) tp.Config { return tp.Config{Group: m.Group("kv"), Sequence: true, Chunks: 33} }},
		"set both Config.KV and Config.Replicas, or neither": {"kv=2,rep=1", models["gqa"],
			func(m *dist.Mesh) tp.Config { return tp.Config{Group: m.Group("kv"), KV: m.Group("kv")} }},
		"Config.Group must be the group of both axes, Replicas last": {"kv=2,rep=2", models["gqa"],
			func(m *dist.Mesh) tp.Config {
				return tp.Config{Group: m.Group("kv", "rep"), KV: m.Group("rep"), Replicas: m.Group("kv")}
			}},
	} {
		mesh := c.ranks
		ranks := int(mesh[3]-'0') * int(mesh[len(mesh)-1]-'0')
		failed := make([]error, ranks)
		require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: ranks, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			m, err := gpt.New(c.config)
			if err != nil {
				return err
			}
			mesh, err := r.Mesh(c.ranks)
			if err != nil {
				return err
			}
			cfg := tp.Config{Group: mesh.Group("kv", "rep")}
			if c.cfg != nil {
				cfg = c.cfg(mesh)
			}
			_, failed[r.World.Rank()] = parallelize(m, cfg)
			return nil
		}))
		for rank, err := range failed {
			if !strings.Contains(want, "Replicas last") || rank%3 != 0 { // ranks 0 and 3 stand at one place in both orders
				require.ErrorContains(t, err, want)
			}
		}
	}
}

// Ranks that divide layers and get sequences of different lengths fail, all of them, before a step is trained.
func TestOtherLengths(t *testing.T) {
	for _, cfg := range []tp.Config{{}, {Sequence: true}, {Sequence: true, Chunks: 2}} {
		failed := make([]error, 2)
		err := dist.Run(context.Background(), dist.Config{Ranks: 2, Timeout: 5 * time.Second, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			m, loss, _ := divided(t, r, models["gpt2"], cfg)
			tape, ids := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Int64, 3, positions-r.World.Rank())
			rank := r.World.Rank()
			failed[rank] = tensor.Try(func() { tape.Backward(loss.Loss(m.Forward(tape.Input(ids)), ids)) })
			return failed[rank]
		})
		require.ErrorContains(t, err, "allreduce") // of the vocabulary: the first one
		for _, err := range failed {
			var d *dist.Error
			require.ErrorAs(t, err, &d)
			require.ErrorContains(t, err, "shapes float32[3,5,12] and float32[3,4,12]")
		}
	}
}

// Ranks that build or divide another model are told so before they train: their results would be wrong, or they would wait for each other.
func TestOtherModels(t *testing.T) {
	llama := models["llama"]
	for want, change := range map[string]func(c *gpt.Config, cfg *tp.Config, freeze *bool){
		"rank 1 has parameter blocks.0.mlp.gate_proj.weight[10 12]":       func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Hidden = 10 },
		"rank 1 has blocks.0.attn: HeadDim=6":                             func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Heads, c.KVHeads, c.HeadDim = 2, 2, 6 },
		"rank 1 has blocks.0.norm1: Eps=0.5":                              func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Eps = 0.5 },
		"rank 1 has Config.Sequence=true Chunks=0":                        func(_ *gpt.Config, cfg *tp.Config, _ *bool) { cfg.Sequence = true },
		"rank 1 has parameter tok.weight[11 12] frozen=true":              func(_ *gpt.Config, _ *tp.Config, freeze *bool) { *freeze = true },
		"rank 1 of 2: tp.Heads: 3 heads of blocks.0.attn.q.weight do not": func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Heads, c.KVHeads, c.HeadDim = 3, 3, 4 },
		"parameters where rank 0 has":                                     func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Layers++ },
	} {
		failed := make([]error, 2)
		require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			c, cfg, freeze := llama, tp.Config{Group: r.World}, false
			if r.World.Rank() == 1 {
				change(&c, &cfg, &freeze)
			}
			m, err := gpt.New(c)
			if err != nil {
				return err
			}
			if freeze {
				m.Tok.W.Freeze()
			}
			_, failed[r.World.Rank()] = parallelize(m, cfg)
			return nil
		}))
		for _, err := range failed {
			require.ErrorContains(t, err, want)
		}
	}
}

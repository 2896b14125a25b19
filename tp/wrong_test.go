package tp_test

import (
	"maps"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
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
		all := maps.Clone(both)
		if seq {
			maps.Copy(all, sequence)
		}
		for _, c := range all {
			job{model: "gpt2", mesh: "dp=2,kv=2", cfg: tp.Config{Sequence: seq}, change: c}.training().Refused(t, "")
		}
	}
}

// Other programs whose gradients would be wrong, or that forget one of Ulysses' parts.
func TestWrongPrograms(t *testing.T) {
	sum := func(axis string) func(m *gpt.Model, mesh *dist.Mesh) {
		return func(m *gpt.Model, mesh *dist.Mesh) {
			m.Blocks[0].Attn.Out.Post = &autograd.Sum{Group: mesh.Group(axis)}
		}
	}
	const part = "would see this rank's part of its sequence only"
	for _, c := range []struct {
		want, mesh string
		seq        bool
		change     func(m *gpt.Model, mesh *dist.Mesh)
	}{
		{"axis kv", "dp=2,kv=2", true, sum("kv")},
		{"axis dp", "dp=2,kv=2", false, sum("dp")},
		{part, "cp=2", false, func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[1].Attn.Spread, m.Blocks[1].Attn.Join = nil, nil }},
		{part, "cp=2", false, func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[0].Attn.Spread = nil }},
		{"reshape", "cp=2", false, func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[1].Attn.Join = nil }},
	} {
		job{model: "gpt2", mesh: c.mesh, cfg: tp.Config{Sequence: c.seq}, change: c.change}.training().Refused(t, c.want)
	}
}

// What cannot be divided is an error on every rank that says what could.
func TestWhatDoesNotDivide(t *testing.T) {
	for want, c := range map[string]struct {
		ranks  string
		config gpt.Config
		cfg    func(mesh *dist.Mesh) tp.Config
	}{
		"6 heads of blocks.0.attn.q.weight do not divide over 4 ranks: the number of ranks must divide 6": {"kv=4,same=1", models["llama"], nil},
		"2 heads of blocks.0.attn.k.weight do not divide over 4 ranks: give Config.KV and Config.Replicas, groups of 2 and 2 ranks": {
			"kv=4,same=1", models["gqa"], nil,
		},
		"4 heads of blocks.0.attn.k.weight do not divide over 3 ranks: the number of ranks must divide 4, or be a multiple of it": {"kv=3,same=1",
			gpt.Config{Kind: gpt.Llama, Vocab: 9, Positions: 4, Width: 24, Layers: 1, Heads: 12, KVHeads: 4}, nil},
		"Config.KV has 1 ranks and Config.Replicas 2, for 2 heads of blocks.0.attn.k.weight: with replicas, " +
			"each rank has one head": {"kv=1,same=2", models["gqa"],
			func(m *dist.Mesh) tp.Config {
				return tp.Config{Group: m.Group("kv", "same"), KV: m.Group("kv"), Replicas: m.Group("same")}
			}},
		"a table of 2 rows does not divide over 3 ranks": {"kv=3,same=1",
			gpt.Config{Kind: gpt.Llama, Vocab: 2, Positions: 4, Width: 12, Layers: 1, Heads: 3}, nil},
		"Config.Group is nil": {"kv=2,same=1", models["gqa"], func(*dist.Mesh) tp.Config { return tp.Config{} }},
		"Config.Chunks is 2: it must be 0 to 32, and needs Config.Sequence": {"kv=2,same=1", models["gqa"],
			func(m *dist.Mesh) tp.Config { return tp.Config{Group: m.Group("kv"), Chunks: 2} }},
		"Config.Chunks is 33: it must be 0 to 32": {"kv=2,same=1", models["gqa"],
			func(m *dist.Mesh) tp.Config { return tp.Config{Group: m.Group("kv"), Sequence: true, Chunks: 33} }},
		"set both Config.KV and Config.Replicas, or neither": {"kv=2,same=1", models["gqa"],
			func(m *dist.Mesh) tp.Config { return tp.Config{Group: m.Group("kv"), KV: m.Group("kv")} }},
		"Config.Group must be the group of both axes, Replicas last": {"kv=2,same=2", models["gqa"],
			func(m *dist.Mesh) tp.Config {
				return tp.Config{Group: m.Group("kv", "same"), KV: m.Group("same"), Replicas: m.Group("kv")}
			}},
	} {
		ranks := int(c.ranks[3]-'0') * int(c.ranks[len(c.ranks)-1]-'0')
		disttest.EachFails(t, ranks, want, func(r *dist.Rank) error {
			m, err := gpt.New(c.config)
			require.NoError(t, err)
			mesh, err := r.Mesh(c.ranks)
			require.NoError(t, err)
			cfg := tp.Config{Group: mesh.Group("kv", "same")}
			if c.cfg != nil {
				cfg = c.cfg(mesh)
			}
			_, err = parallel.Divide(m, cfg, nil)
			return err
		})
	}
}

// Ranks that divide layers and get sequences of different lengths fail, all of them, before a step is trained.
func TestOtherLengths(t *testing.T) {
	for _, cfg := range forms {
		disttest.EachFails(t, 2, "shapes float32[3,5,12] and float32[3,4,12]", func(r *dist.Rank) error {
			m, loss, _ := divided(t, r, models["gpt2"], cfg)
			tape, ids := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Int64, 3, positions-r.World.Rank())
			err := tensor.Try(func() { tape.Backward(loss.Loss(m.Forward(tape.Input(ids)), ids)) })
			require.ErrorAs(t, err, new(*dist.Error))
			require.ErrorContains(t, err, "allreduce") // of the vocabulary: the first one
			return err
		})
	}
}

// Ranks that build or divide another model are told so before they train: their results would be wrong, or they would wait for each other.
func TestOtherModels(t *testing.T) {
	llama := models["llama"]
	for want, change := range map[string]func(c *gpt.Config, cfg *tp.Config, freeze *bool){
		"rank 1 has parameter blocks.0.mlp.gate_proj.weight[10 12]": func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Hidden = 10 },
		"rank 1 has blocks.0.attn: HeadDim=6": func(c *gpt.Config, _ *tp.Config, _ *bool) {
			c.Heads, c.KVHeads, c.HeadDim = 2, 2, 6
		},
		"rank 1 has blocks.0.norm1: Eps=0.5":                 func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Eps = 0.5 },
		"rank 1 has Config.Sequence=true Chunks=0":           func(_ *gpt.Config, cfg *tp.Config, _ *bool) { cfg.Sequence = true },
		"rank 1 has parameter tok.weight[11 12] frozen=true": func(_ *gpt.Config, _ *tp.Config, freeze *bool) { *freeze = true },
		"rank 1 of 2: tp.Heads: 3 heads of blocks.0.attn.q.weight do not": func(c *gpt.Config, _ *tp.Config, _ *bool) {
			c.Heads, c.KVHeads, c.HeadDim = 3, 3, 4
		},
		"parameters where rank 0 has": func(c *gpt.Config, _ *tp.Config, _ *bool) { c.Layers++ },
	} {
		disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
			c, cfg, freeze := llama, tp.Config{Group: r.World}, false
			if r.World.Rank() == 1 {
				change(&c, &cfg, &freeze)
			}
			m, err := gpt.New(c)
			require.NoError(t, err)
			if freeze {
				m.Tok.W.Freeze()
			}
			_, err = parallel.Divide(m, cfg, nil)
			return err
		})
	}
}

// A layer that is cut is refused 8-bit floats, whichever comes first: its rank has a part of the rows that are scaled.
func TestFloat8IsRefused(t *testing.T) {
	for op, first := range map[string]bool{"nn.Float8: ": false, "nn.Forward: ": true} {
		for _, target := range []string{"1", "2"} { // columns, rows
			want := op + target + " is cut by tensor parallelism, or has Pre or Post: 8-bit floats would be scaled by a part of its rows"
			disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
				up, down := nn.NewLinear(16, 32), nn.NewLinear(32, 16)
				m := nn.Sequential{nn.NewLayerNorm(16), up, down}
				if first {
					nn.Float8(m, ops.PerRow, target)
				}
				disttest.OK(tp.Parallelize(m, tp.Config{Group: r.World}, func(p *tp.Parallel) {
					m[0] = p.Columns(m[0], up)
					p.Row(down)
				}))
				if !first {
					nn.Float8(m, ops.PerRow, target)
				}
				nn.Init(m, r.Device, tensor.Float32, 1)
				tape := tensor.NewTape(r.Device)
				defer tape.Close()
				m.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, 16, 16)))
				return nil
			})
		}
	}
}

package parallel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// plan is a training of a small model of a kind.
type plan struct {
	kind     gpt.Kind
	layout   *parallel.Layout // nil: one rank, without package parallel
	sequence bool
	window   int
	targets  []string // of adapters; nil: the whole model is trained
}

// config has what distinguishes the kind.
func (p plan) config() gpt.Config {
	c := gpt.Config{Kind: p.kind, Vocab: 11, Positions: 8, Width: 12, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 4, Hidden: 10,
		Window: p.window}
	switch p.kind {
	case gpt.SmolLM3:
		c.NoRopeEvery = 2
	case gpt.Gemma2:
		c.FullEvery, c.QueryScalar, c.AttnSoftCap, c.LogitSoftCap = 2, 3, 0.5, 2
	case gpt.Gemma3:
		c.FullEvery, c.Base, c.LocalBase = 2, 500, 10
	case gpt.Mixtral, gpt.Qwen3MoE:
		c.Hidden, c.Experts, c.Top, c.Balance, c.Normalize = 8, 6, 2, 0.1, p.kind == gpt.Qwen3MoE
	}
	return c
}

func (p plan) training() disttest.Training {
	c := disttest.Training{Attach: p.attach, Batch: 7, Steps: 10, Name: fmt.Sprintf("%v %+v %v", p.kind, p.layout, p.sequence)}
	if p.layout != nil {
		c.Mesh = p.layout.Mesh(2)
	}
	return c
}

func (p plan) attach(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
	m := disttest.Must(gpt.New(p.config()))
	if p.targets != nil {
		nn.LoRA(m, nn.LoRAConfig{Rank: 3, Alpha: 40, Targets: p.targets})
	}
	ids := func(b disttest.Batch) (x, next tensor.Tensor) {
		of, after := make([]int64, b.N*8), make([]int64, b.N*8)
		for i := range of {
			k := b.First*8 + i
			of[i] = int64(k * k % 19 % 11)
			after[i] = (3*of[i] + int64(k%2)) % 11
		}
		return tensor.FromSlice(of, b.N, 8).WithRows(b.Rows), tensor.FromSlice(after, b.N, 8).WithRows(b.Rows)
	}
	if p.layout == nil {
		return disttest.Attached{Params: nn.Init(m, r.Device, tensor.Float64, 3), Norm: r.World, Loss: func(b disttest.Batch) nn.T {
			x, next := ids(b)
			return nn.CrossEntropy(m.Forward(b.Tape.Input(x)), next)
		}}, nil
	}
	c := parallel.Config{Sequence: p.sequence, DDP: ddp.Config{DType: tensor.Float64, Seed: 3}}
	if p.layout.FSDP > 1 {
		c.FSDP = &fsdp.Config{DType: tensor.Float64, Seed: 3}
	}
	a, err := parallel.Attach(mesh, m, c)
	if err != nil {
		return disttest.Attached{}, err
	}
	return disttest.Attached{Params: a.Params, Norm: r.World, Data: a.Data, Sum: a.Sum, Loss: func(b disttest.Batch) nn.T {
		x, next := ids(b)
		if p.kind == gpt.Qwen2 {
			return a.Loss(m.Forward(b.Tape.Input(a.Part(x))), a.Part(next))
		}
		return a.FeatureLoss(m.Features(b.Tape.Input(a.Part(x))), a.Part(next))
	}}, nil
}

// The newer kinds are trained as on one rank by all that divides layers, parameters or sequences, with rows that do not divide. All but one
// have a loss without logits, where one rank has them. The short form has one layout of each kind.
func TestKindsEqualOneRank(t *testing.T) {
	for k, kind := range []gpt.Kind{gpt.Mistral, gpt.Qwen2, gpt.Qwen3, gpt.Phi3, gpt.SmolLM3} {
		want := plan{kind: kind}.training().Run(t)
		for i, l := range []struct {
			parallel.Layout
			sequence bool
		}{{parallel.Layout{DP: 3}, false}, {parallel.Layout{TP: 2}, false}, {parallel.Layout{TP: 2}, true}, {parallel.Layout{TP: 4}, false},
			{parallel.Layout{TP: 4}, true}, {parallel.Layout{FSDP: 2}, false}, {parallel.Layout{FSDP: 2, TP: 2}, true},
			{parallel.Layout{CP: 2}, false}, {parallel.Layout{Ring: 2}, false}} {
			if i != []int{7, 5, 2, 1, 8}[k] && !reliability.Long(t) {
				continue
			}
			disttest.RequireEqual(t, want, plan{kind: kind, layout: &l.Layout, sequence: l.sequence}.training().Run(t), 1e-10)
		}
	}
}

func TestLongKindsEqualOneRank(t *testing.T) { reliability.AsLong(t, TestKindsEqualOneRank) }

// A loss of features has the cap of logits.
func TestSoftCapEqualsOneRank(t *testing.T) {
	want := plan{kind: gpt.Gemma2}.training().Run(t)
	for _, l := range []parallel.Layout{{DP: 1}, {DP: 2}, {TP: 2}, {FSDP: 2}} {
		if l.TP == 0 && !reliability.Long(t) {
			continue
		}
		disttest.RequireEqual(t, want, plan{kind: gpt.Gemma2, layout: &l}.training().Run(t), 1e-10)
	}
}

func TestLongSoftCapEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestSoftCapEqualsOneRank) }

// So are those with experts, which ranks may divide, too, and adapters of their routers, by turns.
func TestExpertsEqualOneRank(t *testing.T) {
	for k, one := range []plan{{kind: gpt.Mixtral, window: 3}, {kind: gpt.Qwen3MoE},
		{kind: gpt.Mixtral, targets: []string{"blocks.*.mlp.gate", "blocks.*.attn.?"}}, {kind: gpt.Qwen3MoE, targets: []string{"*.gate"}}} {
		want := one.training().Run(t)
		for i, l := range []struct {
			parallel.Layout
			sequence bool
		}{{parallel.Layout{DP: 2}, false}, {parallel.Layout{TP: 2}, false}, {parallel.Layout{TP: 2}, true}, {parallel.Layout{FSDP: 2}, false},
			{parallel.Layout{EP: 2}, false}, {parallel.Layout{EP: 3}, false}, {parallel.Layout{FSDP: 2, EP: 2}, false},
			{parallel.Layout{DP: 2, EP: 2, TP: 2}, true}, {parallel.Layout{CP: 2, EP: 2}, false}} {
			if i != []int{6, 1, 2, 8}[k] && !reliability.Long(t) {
				continue
			}
			p := one
			p.layout, p.sequence = &l.Layout, l.sequence
			disttest.RequireEqual(t, want, p.training().Run(t), 1e-10)
		}
	}
}

func TestLongExpertsEqualOneRank(t *testing.T) { reliability.AsLong(t, TestExpertsEqualOneRank) }

// An adapter of a router comes before ranks divide tokens: its gradient would be that of a part of them.
func TestLateAdapterOfARouter(t *testing.T) {
	err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.New(plan{kind: gpt.Mixtral}.config()))
		a := disttest.Must(parallel.Attach(disttest.Must(r.Mesh(parallel.Layout{TP: 2}.Mesh(2))), m,
			parallel.Config{Sequence: true, DDP: ddp.Config{DType: tensor.Float64}}))
		adapter := &nn.Adapter{Down: tensor.NewParam(tensor.Constant(1), 3, 12), Up: tensor.NewParam(tensor.Constant(1), 6, 3), Alpha: 1}
		m.Blocks[0].MLP.(*moe.Layer).Router.Adapter = adapter
		x := tensor.FromSlice(make([]int64, 8), 1, 8).WithRows(a.Data.Rows(0, 1))
		return tensor.Try(func() { m.Forward(tensor.NewTape(r.Device).Input(x)) })
	})
	require.ErrorContains(t, err, "blocks.0.mlp.gate.weight has got its adapter after Parallelize: call nn.LoRA first")
}

// So are models with windows of attention, by turns, too; a ring refuses them.
func TestWindowsEqualOneRank(t *testing.T) {
	for k, kind := range []gpt.Kind{gpt.Mistral, gpt.Qwen2, gpt.Gemma2, gpt.Gemma3} {
		want := plan{kind: kind, window: 3}.training().Run(t)
		for i, l := range []struct {
			parallel.Layout
			sequence bool
		}{{parallel.Layout{DP: 2}, false}, {parallel.Layout{TP: 2}, false}, {parallel.Layout{TP: 2}, true}, {parallel.Layout{FSDP: 2}, false},
			{parallel.Layout{FSDP: 2, TP: 2}, true}, {parallel.Layout{CP: 2}, false}} {
			if i != []int{5, 0, 2, 3}[k] && !reliability.Long(t) {
				continue
			}
			disttest.RequireEqual(t, want, plan{kind: kind, layout: &l.Layout, sequence: l.sequence, window: 3}.training().Run(t), 1e-10)
		}
		require.NotEqual(t, plan{kind: kind, window: 8}.training().Run(t), want, "the window hides nothing")
	}
	for want, p := range map[string]plan{
		"a ring computes no windows of attention, and the model has one of 3 of 8 positions": {kind: gpt.Mistral,
			layout: &parallel.Layout{Ring: 2}, window: 3},
		"a ring computes no soft caps and no other scale of scores, and the model has AttnSoftCap 0.5 and QueryScalar 3": {kind: gpt.Gemma2,
			layout: &parallel.Layout{Ring: 2}, window: 8}} {
		err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
			_, err := p.attach(r, disttest.Must(r.Mesh(p.layout.Mesh(2))))
			return err
		})
		require.ErrorContains(t, err, want)
	}
}

func TestLongWindowsEqualOneRank(t *testing.T) { reliability.AsLong(t, TestWindowsEqualOneRank) }

// Ranks that share sequences take documents apart from tokens, and say so; labels must be cut with them, too.
func TestDocumentsRefused(t *testing.T) {
	for _, l := range []parallel.Layout{{Ring: 2}, {CP: 2}, {Ring: 2, CP: 2}} {
		err := dist.Run(t.Context(), dist.Config{Ranks: max(l.Ring, 1) * max(l.CP, 1), Threads: 1}, func(_ context.Context, r *dist.Rank) error {
			a := disttest.Must(parallel.Attach(disttest.Must(r.Mesh(l.Mesh(2))), disttest.Must(gpt.New(plan{kind: gpt.Qwen3}.config())),
				parallel.Config{DDP: ddp.Config{DType: tensor.Float64}}))
			return tensor.Try(func() { a.Part(tensor.FromSlice(make([]int64, 3*2*8), 3, 2, 8)) })
		})
		require.ErrorContains(t, err, "int64[3,2,8] has the numbers of documents: ranks that share a sequence take them apart (gpt.Documents)")
	}
	err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.New(plan{kind: gpt.Qwen3}.config()))
		a := disttest.Must(parallel.Attach(disttest.Must(r.Mesh(parallel.Layout{Ring: 2}.Mesh(2))), m,
			parallel.Config{DDP: ddp.Config{DType: tensor.Float64}}))
		y := tensor.FromSlice(make([]int64, 8), 1, 8).WithRows(r.World.Rows(0, 1))
		docs := tensor.FromSlice([]int64{0, 0, 0, 0, 1, 1, 2, 3}, 1, 8)
		return tensor.Try(func() { a.FeatureLoss(m.Features(tensor.NewTape(r.Device).Input(a.Part(y, docs)), docs), a.Part(y)) })
	})
	require.ErrorContains(t, err, "the targets are not of the rows of the step's input")
}

// values returns those of a folder's model, as one rank reads them.
func values(t *testing.T, dir string) map[string][]float64 {
	all := map[string][]float64{}
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.Open(dir))
		params := nn.Init(m, r.Device, tensor.Float64, 1)
		disttest.Must(ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig()))
		for _, p := range params {
			all[p.Name()] = tensor.Floats(p.Value)
		}
		return nil
	}))
	return all
}

// logits returns those of a folder's model on some ranks, and how many bytes each rank has read.
func logits(t *testing.T, dir string, l parallel.Layout) (y []float64, read []int64) {
	read = make([]int64, max(l.FSDP, 1)*max(l.EP, 1)*max(l.TP, 1))
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: len(read), Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.Open(dir))
		c := parallel.Config{DDP: ddp.Config{DType: tensor.Float32}}
		if l.FSDP > 1 {
			c.FSDP = &fsdp.Config{DType: tensor.Float32}
		}
		a := disttest.Must(parallel.Attach(disttest.Must(r.Mesh(l.Mesh(m.Config.KVHeads))), m, c))
		report, err := ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: a.Params}, m.LoadConfig())
		disttest.OK(err)
		read[r.World.Rank()] = report.BytesRead
		ids := make([]int64, 3*9) // as ids(0) of write.py
		for i := range ids {
			ids[i] = int64((i*i + 3*i) / 2 % 13)
		}
		tape := tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Eval())
		x := m.Forward(tape.Input(tensor.FromSlice(ids, 3, 9)))
		if m.Drawn != nil {
			x = tape.Apply(m.Drawn, x.Reshape(27, x.Dim(2)))
		}
		if r.World.Rank() == 0 {
			y = tensor.Floats(x)
		}
		return nil
	}))
	return y, read
}

// In float32, a model computes what transformers computes in float64, also where ranks have parts of it; each rank reads its experts alone.
func TestLogitsOfFiles(t *testing.T) {
	var expect map[string]struct{ Before []float64 }
	text, err := os.ReadFile(filepath.Join("..", "testdata", "expect.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &expect))
	require.NotEmpty(t, expect)
	for kind, want := range expect {
		dir := filepath.Join("..", "testdata", kind)
		y, all := logits(t, dir, parallel.Layout{})
		require.InDeltaSlice(t, want.Before, y, 1e-5, kind)
		c := disttest.Must(gpt.ReadConfig(dir))
		layouts := []parallel.Layout{{TP: 2 + c.Heads%2}, {FSDP: 2}}
		switch {
		case c.Experts > 0 && !reliability.Long(t):
			layouts = []parallel.Layout{{EP: 4}}
		case !reliability.Long(t):
			layouts = layouts[:1]
		case c.Experts > 0:
			layouts = append(layouts, parallel.Layout{EP: 2}, parallel.Layout{EP: 4})
		}
		for _, l := range layouts {
			y, read := logits(t, dir, l)
			require.InDeltaSlice(t, want.Before, y, 1e-5, "%s, %+v", kind, l)
			if l.EP == 4 {
				require.Less(t, float64(slices.Max(read)), 0.66*float64(all[0]), "of what one rank reads, which has all experts")
			}
		}
	}
}

func TestLongLogitsOfFiles(t *testing.T) { reliability.AsLong(t, TestLogitsOfFiles) }

// Ranks that divide layers read their parts of the files, of fused matrices too, and write the same ones.
func TestKindsFromFiles(t *testing.T) {
	for _, kind := range []string{"mistral", "qwen2", "qwen3", "phi3", "late", "smollm3", "gemma2", "gemma3", "mixtral", "qwen3_moe"} {
		if !reliability.Long(t) && !slices.Contains([]string{"qwen2", "phi3", "gemma3", "qwen3_moe"}, kind) {
			continue
		}
		dir, to := filepath.Join("..", "testdata", kind), t.TempDir()
		require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 4, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
			m := disttest.Must(gpt.Open(dir))
			l := parallel.Layout{FSDP: 2, TP: 2}
			if m.Config.Experts > 0 {
				l = parallel.Layout{FSDP: 2, EP: 2}
			}
			mesh := disttest.Must(r.Mesh(l.Mesh(m.Config.KVHeads)))
			a := disttest.Must(parallel.Attach(mesh, m, parallel.Config{FSDP: &fsdp.Config{DType: tensor.Float64, Seed: 1}}))
			disttest.Must(ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: a.Params}, m.LoadConfig()))
			saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
			disttest.OK(saver.Save(ctx, ckpt.State{Params: a.Params, Files: disttest.Must(m.Files())}))
			return saver.Close()
		}))
		path, err := ckpt.Latest(to)
		require.NoError(t, err)
		require.Equal(t, values(t, dir), values(t, path), kind)
	}
}

func TestLongKindsFromFiles(t *testing.T) { reliability.AsLong(t, TestKindsFromFiles) }

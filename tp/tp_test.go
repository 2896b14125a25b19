package tp_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// A model whose layers are divided trains as on one rank, from values that have the same bits: by heads, hidden features and words, with
// tokens that are whole or divided between them (a mesh has one of these forms), under ddp, fsdp and both. So it does with adapters, which
// are divided with their layers; with blocks that are computed again, and communicate again; with sequences that are divided, in parts that
// differ (Ulysses); and in the naive way. The short form has one mesh of each, or none; the long one has the others.
func TestEqualsOneRank(t *testing.T) {
	for _, c := range []struct {
		job
		meshes, short string
	}{
		{job{model: "gpt2"}, "kv=2 dp=2,kv=3 fsdp=3,kv=2 dp=2,fsdp=2,kv=2 dp=2,cp=3 fsdp=2,cp=2 cp=3,kv=2", "dp=2,kv=3"},
		{job{model: "llama"}, "kv=6 dp=2,kv=2 fsdp=2,kv=3 fsdp=3,cp=2 cp=2,kv=3", "fsdp=2,kv=3"},
		{job{model: "gqa"}, "kv=2 kv=2,same=2 dp=2,kv=2,same=3 fsdp=2,kv=2,same=2 cp=2", "kv=2,same=2"},
		{job{model: "gpt2", lora: true}, "dp=2,kv=3 fsdp=2,kv=2", "fsdp=2,kv=2"},
		{job{model: "llama", lora: true}, "kv=2 fsdp=3,kv=2", ""},
		{job{model: "gqa", lora: true}, "kv=2,same=2 fsdp=2,kv=2,same=2", "kv=2,same=2"},
		{job{model: "llama", lora: true, save: "embed_tokens lm_head norm"}, "dp=2 fsdp=2 kv=2 fsdp=2,kv=3", "kv=2"},
		{job{model: "gpt2", lora: true, save: "wpe ln_f c_attn"}, "dp=2 fsdp=2 kv=2 fsdp=2,kv=3", ""},
		{job{model: "phi3", lora: true}, "dp=2 fsdp=2 kv=2 kv=2,same=2 fsdp=2,kv=2,same=2", "kv=2"},
		{job{model: "gpt2", again: true}, "dp=2,kv=2 cp=2", "dp=2,kv=2"},
		{job{model: "llama", again: true}, "cp=3", "cp=3"},
		{job{model: "gqa", again: true}, "fsdp=2,kv=2,same=2 dp=2,cp=2", ""},
		{job{model: "gpt2", ones: true}, "dp=1 kv=2 cp=2 dp=2 fsdp=1 fsdp=2", "dp=2"},
		{job{model: "gqa", ones: true, again: true}, "dp=1 kv=2 dp=2 fsdp=1,cp=2", "fsdp=1,cp=2"},
		{job{model: "gpt2", ones: true, lora: true}, "dp=1 dp=2 fsdp=1 fsdp=2", "dp=2"},
		{job{model: "gpt2", naive: true}, "kv=2 dp=2,kv=3", "kv=2"},
		{job{model: "gqa", naive: true}, "kv=5 fsdp=2,kv=2", ""},
	} {
		t.Run(fmt.Sprintf("%s, lora %v %s, again %v, naive %v, ones %v", c.model, c.lora, c.save, c.again, c.naive, c.ones), func(t *testing.T) {
			t.Parallel()
			meshes := strings.Fields(c.meshes)
			for i, mesh := range meshes {
				if mesh == c.short == reliability.Long(t) {
					meshes[i] = ""
				}
			}
			if strings.Join(meshes, "") == "" {
				return
			}
			want := job{model: c.model, lora: c.lora, save: c.save}.training().Run(t)
			if require.NotEqual(t, want.Losses[0], want.Losses[len(want.Losses)-1]); !c.lora {
				require.Greater(t, want.Norms[0], 0.4, "clipping does something")
				want.Learns(t, 0.97)
			}
			for i, mesh := range meshes {
				if mesh == "" {
					continue
				}
				c.mesh, c.cfg = mesh, tp.Config{}
				if !c.naive && (c.ones || strings.Contains(mesh, "kv")) {
					c.cfg = forms[i%len(forms)]
				}
				disttest.RequireEqual(t, want, c.training().Run(t), 1e-10)
			}
		})
	}
}

func TestLongEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestEqualsOneRank) }

// Adafactor's means are of whole matrices, also where tp divides them by rows or columns, or with fsdp beside it. The loss does not depend
// on biases of keys: their gradients are roundings, which Eps keeps small.
func TestAdafactorEqualsOneRank(t *testing.T) {
	run := func(mesh string) disttest.Result {
		c := job{model: "gpt2", mesh: mesh}.training()
		c.Rule = func(p nn.Params, n optim.Norm) *optim.Optimizer {
			return optim.NewAdafactor(p, optim.AdafactorConfig{LR: 0.1, WeightDecay: 0.1, Eps: [2]float64{1e-8}, Clip: 0.4, Norm: n,
				Ranks: n.(optim.TensorNorm)})
		}
		return c.Run(t)
	}
	want := run("")
	want.Learns(t, 0.97)
	for _, mesh := range []string{"kv=2", "kv=3", "fsdp=2,kv=2"} {
		if mesh != "fsdp=2,kv=2" && !reliability.Long(t) {
			continue
		}
		disttest.RequireEqual(t, want, run(mesh), 1e-10)
	}
}

func TestLongAdafactorEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestAdafactorEqualsOneRank) }

// Each rank reads its part of Hugging Face's files, also where several layers are one matrix there, and never holds the whole; logits
// are those of one rank.
func TestLoad(t *testing.T) {
	for name, n := range map[string]int{"gpt2": 3, "llama": 2} {
		dir := filepath.Join("..", "models", "gpt", "testdata", name)
		ids := tensor.FromSlice([]int64{1, 4, 9, 3, 12, 10, 10, 12}, 2, 4)
		var want []float64
		var all int64 // bytes
		var whole int // of parameters, on one rank
		for _, ranks := range []int{1, n} {
			require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
				m, err := gpt.Open(dir)
				require.NoError(t, err)
				if ranks > 1 {
					mesh, err := r.Mesh(fmt.Sprint("tp=", n))
					require.NoError(t, err)
					_, err = parallel.Divide(m, tp.Config{Group: mesh.Group("tp")}, nil)
					require.NoError(t, err)
				}
				params := nn.Init(m, r.Device, tensor.Float64, 1)
				report, err := ckpt.Load(t.Context(), r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
				require.NoError(t, err)
				tape := tensor.NewTape(r.Device, tensor.NoGrad())
				logits := m.Forward(tape.Input(ids))
				if ranks > 1 {
					logits = tape.Apply(m.Drawn, logits)
				}
				held := r.Device.Memory().ByName()["parameters"].Peak
				if ranks == 1 {
					want, all, whole = tensor.Floats(logits), report.BytesRead, held
					return nil
				}
				require.InDeltaSlice(t, want, tensor.Floats(logits), 1e-12, name)
				most := 1/float64(n) + 0.1 // norms, positions and late biases are whole
				require.Less(t, float64(report.BytesRead), most*float64(all), name)
				require.Less(t, float64(held), most*float64(whole), name)
				return nil
			}))
		}
	}
}

// A checkpoint of two ranks says what each of four or six would read, of which several have the same keys and values: what they do read.
func TestVerifySaysWhatRanksRead(t *testing.T) {
	dir := t.TempDir()
	on := func(kv, same int, f func(r *dist.Rank, st *ckpt.State) error) {
		require.NoError(t, disttest.OnRanks(kv*same, func(r *dist.Rank) error {
			mesh, err := r.Mesh(fmt.Sprintf("kv=%d,same=%d", kv, same))
			require.NoError(t, err)
			m, err := gpt.New(models["gqa"])
			require.NoError(t, err)
			_, err = parallel.Divide(m, tp.Config{Group: mesh.Group("kv", "same"), KV: mesh.Group("kv"), Replicas: mesh.Group("same")}, nil)
			require.NoError(t, err)
			return f(r, &ckpt.State{Params: nn.Init(m, r.Device, tensor.Float64, 1)})
		}))
	}
	on(2, 1, func(r *dist.Rank, st *ckpt.State) error {
		return ckpt.NewSaver(r.World, dir, ckpt.Config{}).Save(t.Context(), *st)
	})
	dir = filepath.Join(dir, "step-00000000")
	for _, same := range []int{2, 3} {
		v, err := inspect.Verify(t.Context(), dir, inspect.VerifyConfig{Layout: fmt.Sprint("tp=", 2*same)})
		require.NoError(t, err)
		require.True(t, v.OK, v.Errors)
		read := make([]int64, 2*same)
		on(2, same, func(r *dist.Rank, st *ckpt.State) error {
			report, err := ckpt.Load(t.Context(), r.World, dir, st, ckpt.LoadConfig{})
			if err == nil {
				read[r.World.Rank()] = report.BytesRead
			}
			return err
		})
		for i, want := range read {
			require.Equal(t, want, v.Ranks[i].Bytes, "rank %d of %d", i, 2*same)
		}
	}
	v, err := inspect.Verify(t.Context(), dir, inspect.VerifyConfig{Layout: "tp=5"})
	require.NoError(t, err)
	require.False(t, v.OK)
	require.Contains(t, fmt.Sprint(v.Misfits), "units of 2 do not divide over 5 ranks: the number of ranks must divide")
}

// mlps are two blocks of a norm and an MLP, with residual connections.
type mlps struct {
	Norm     [2]nn.Layer
	Up, Down [2]*nn.Linear
	split    tensor.Function
}

func newMLPs(g *dist.Group, chunks int) (*mlps, error) {
	m := &mlps{}
	for i := range 2 {
		m.Norm[i], m.Up[i], m.Down[i] = nn.NewLayerNorm(6), nn.NewLinear(6, 8), nn.NewLinear(8, 6)
	}
	return m, tp.Parallelize(m, tp.Config{Group: g, Sequence: g.Size() > 1, Chunks: chunks}, func(p *tp.Parallel) {
		for i := range 2 {
			m.Norm[i] = p.Columns(m.Norm[i], m.Up[i])
			p.Row(m.Down[i])
		}
		m.split = p.Tokens()
	})
}

// loss returns the sum of squares behind both blocks, the first of which around calls; see, if not nil, gets what columns read. around may
// return a tensor of another tape.
func (m *mlps) loss(x nn.T, see func(x nn.T), around func(t *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T) nn.T {
	if m.split != nil {
		x = x.Tape().Apply(m.split, x)
	}
	block := func(i int) func(in ...nn.T) nn.T {
		return func(in ...nn.T) nn.T {
			y := m.Norm[i].Forward(in[0])
			see(y)
			return m.Down[i].ForwardAdd(m.Up[i].Forward(y).GELU(), in[0])
		}
	}
	return block(1)(around(x.Tape(), block(0), x)).Square().Sum()
}

// Tokens that are gathered again give the gradients of one rank whatever else the tape does: scopes, checkpoints, weight gradients that are
// put off, tensors that are kept, an evaluation of fewer tokens before each step or before Backward, a second tape for the second block.
func TestTapeBesideSequences(t *testing.T) {
	want := besideTape("tp=1", 0, "").Run(t)
	for i, mode := range []string{"", "scope", "checkpoint", "keep", "deferred", "evaluation", "other tokens before a checkpoint", "stages"} {
		for k, chunks := range []int{0, 3} {
			if i%2 == k && !reliability.Long(t) {
				continue
			}
			disttest.RequireEqual(t, want, besideTape("tp=2", chunks, mode).Run(t), 1e-10)
		}
	}
}

func TestLongTapeBesideSequences(t *testing.T) { reliability.AsLong(t, TestTapeBesideSequences) }

// besideTape trains mlps with five tokens.
func besideTape(mesh string, chunks int, mode string) disttest.Training {
	c := disttest.Training{Mesh: mesh, Name: fmt.Sprintf("%q, %d pieces", mode, chunks)}
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		m := disttest.Must(newMLPs(mesh.Group("tp"), chunks))
		eval, next, see := tensor.NewTape(r.Device, tensor.NoGrad()), tensor.NewTape(r.Device), func(nn.T) {}
		var out, in nn.T
		fewer := func() {
			m.loss(eval.Input(tensor.FromSlice(squares(3*6), 3, 6)), func(nn.T) {}, plainly)
			eval.Reset()
		}
		around := plainly
		switch mode {
		case "scope":
			around = func(t *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T { return t.Scope(block, x) }
		case "stages":
			around = func(_ *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T {
				out = block(x)
				in = next.LeafOf(out, out.Origin())
				return in
			}
		case "checkpoint", "other tokens before a checkpoint":
			around = func(t *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T { return t.Checkpoint(block, x) }
		case "keep":
			see = func(x nn.T) { x.Tape().Keep(x) }
		}
		step := func(s *disttest.State) ([]float64, error) {
			defer s.Tape.Reset()
			defer next.Reset()
			if mode == "evaluation" {
				fewer()
			}
			l := m.loss(s.Tape.Input(tensor.FromSlice(squares(5*6), 5, 6)), see, around)
			loss := l.Item()
			switch mode {
			case "deferred":
				s.Tape.Backward(l, tensor.DeferWeights())
				s.Tape.RunDeferred()
			case "stages":
				next.Backward(l)
				s.Tape.BackwardFrom([]nn.T{out}, []nn.T{s.Tape.Input(next.GradOf(in))})
			case "other tokens before a checkpoint":
				fewer()
				s.Tape.Backward(l)
			default:
				s.Tape.Backward(l)
			}
			return []float64{loss}, s.Optimizer.Step()
		}
		return disttest.Attached{Params: nn.Init(m, r.Device, tensor.Float64, 1), Norm: r.World, Step: step}, nil
	}
	return c
}

func plainly(_ *tensor.Tape, block func(...nn.T) nn.T, x nn.T) nn.T { return block(x) }

func squares(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i*i%7) - 3
	}
	return v
}

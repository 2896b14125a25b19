package cp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

const words = 11

// The models: learned positions, and rotary ones with one head of keys, and with two.
var models = map[string]gpt.Config{
	"gpt2":  {Kind: gpt.GPT2, Vocab: words, Positions: 13, Width: 12, Layers: 2, Heads: 6, Hidden: 13, Tied: true},
	"llama": {Kind: gpt.Llama, Vocab: words, Positions: 13, Width: 12, Layers: 2, Heads: 3, KVHeads: 1, Hidden: 13},
	"gqa":   {Kind: gpt.Llama, Vocab: words, Positions: 13, Width: 12, Layers: 2, Heads: 6, KVHeads: 2, Hidden: 13},
}

// job is a training. Ranks of cp, or of ring and uly, divide sequences, those of dp and fsdp have other rows.
type job struct {
	model     string
	positions int
	mesh      string // "": one rank
	stage     int    // of fsdp; 0: ddp
	again     bool   // blocks are computed again in backward
	change    func(m *gpt.Model, mesh *dist.Mesh)
	part      func(f *cp.Ring) func(x nn.T) nn.T // in place of Ring.Part
	sum       string                             // axis over which gradients are summed; "": all
	experts   moe.Config                         // in place of MLPs, shared by the ranks of ep; no experts: MLPs
	documents bool                               // sequences have several, of uneven lengths
	classes   bool                               // of sequences are learned, in place of tokens
}

func (j job) training() disttest.Training {
	return disttest.Training{Attach: j.attach, Mesh: j.mesh, Batch: 10, Name: fmt.Sprintf("%+v", j)}
}

// drop adds dropout of hidden values to each block.
func drop(m *gpt.Model) {
	for _, b := range m.Blocks {
		b.Norm1, b.Norm2 = nn.Sequential{b.Norm1, nn.NewDropout(0.2)}, nn.Sequential{b.Norm2, nn.NewDropout(0.2)}
	}
}

func (j job) attach(r *dist.Rank, mesh *dist.Mesh) (a disttest.Attached, err error) {
	m := disttest.Must(gpt.New(models[j.model]))
	drop(m)
	layers := j.mix(m)
	m.Recompute = j.again
	part := func(x nn.T) nn.T { return x } // this rank's positions
	mix := &mixed{Ring: &cp.Ring{Group: r.World, HeadDim: m.Config.HeadDim}}
	a = disttest.Attached{Norm: r.World, Loss: func(b disttest.Batch) nn.T {
		ids, next := j.tokens(b.First, b.N, b.Rows)
		if j.documents {
			mix.ids = documentsFrom(b.First, b.N, j.positions)
		}
		y := m.Forward(b.Tape.Input(part(ids)))
		if j.classes {
			return ofSequences(y, ids, mesh).Add(nn.CrossEntropy(y, part(next)).Scale(0.5))
		}
		return nn.CrossEntropy(y, part(next))
	}}
	if mesh != nil {
		mix.Ring = j.ring(mesh, m.Config.HeadDim)
		part = func(x nn.T) nn.T { return partOf(mix.Ring, x, mix.ids) }
	}
	for _, b := range m.Blocks {
		if b.Attn.Mix = mix; mesh == nil && !j.documents {
			b.Attn.Mix = nil
		}
	}
	if mesh == nil {
		a.Params = nn.Init(m, r.Device, tensor.Float64, 3)
		return a, nil
	}
	if f := mix.Ring; j.part != nil {
		part = j.part(f)
	}
	if j.change != nil {
		j.change(m, mesh)
	}
	a.Data, a.Sum = mesh.Group("dp"), r.World
	if layers != nil {
		return j.attachExperts(a, m, mesh, layers)
	}
	if j.sum != "" {
		a.Sum = mesh.Group(j.sum)
	}
	if j.stage == 0 {
		a.Params, err = ddp.Attach(a.Sum, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 500})
		return a, err
	}
	s := fsdp.New(fsdp.Config{Stage: j.stage, Shard: a.Sum, DType: tensor.Float64, Seed: 3})
	s.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for _, b := range m.Blocks {
		s.Unit(b)
	}
	a.Params, err = s.Attach(m)
	return a, err
}

// ofSequences is the loss of the mean logits of each sequence, whose class is its first token.
func ofSequences(y, ids nn.T, mesh *dist.Mesh) nn.T {
	if y = y.Sum(1).Scale(1.0 / float64(ids.Dim(1))); mesh != nil {
		y = y.Tape().Apply(&autograd.Sum{Group: mesh.Group("cp")}, y)
	}
	var classes []int64
	for i := range ids.Dim(0) {
		classes = append(classes, tensor.Data[int64](ids)[i*ids.Dim(1)])
	}
	return nn.CrossEntropy(y, tensor.FromSlice(classes, ids.Dim(0)).WithRows(ids.Rows()))
}

// mixed is a ring with the documents of a microbatch.
type mixed struct {
	*cp.Ring
	ids tensor.Tensor
}

func (f *mixed) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	if !f.ids.IsZero() {
		in = append(slices.Clone(in), f.ids)
	}
	return f.Ring.Forward(c, in)
}

func (f *mixed) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if f.ids.IsZero() {
		f.Ring.Backward(c, g, grads)
		return
	}
	all := make([]tensor.Tensor, 4)
	f.Ring.Backward(c, g, all)
	copy(grads, all)
}

// documentsFrom are those of rows from one on: in each row, they have other lengths.
func documentsFrom(first, n, positions int) tensor.Tensor {
	ids := make([]int64, n*positions)
	for i := range ids {
		row, at := first+i/positions, i%positions
		switch short := row * row % 5; {
		case at >= positions-short:
			ids[i] = 2
		case at > row%3:
			ids[i] = 1
		}
	}
	return tensor.FromSlice(ids, n, positions)
}

// mix makes mixtures of experts of the MLPs.
func (j job) mix(m *gpt.Model) (layers []*moe.Layer) {
	if j.experts.Experts == 0 {
		return nil
	}
	for _, b := range m.Blocks {
		l := moe.NewLayer(j.experts)
		b.MLP, layers = l, append(layers, l)
	}
	return layers
}

// attachExperts gives each rank of ep its experts. These ranks have other rows.
func (j job) attachExperts(a disttest.Attached, m *gpt.Model, mesh *dist.Mesh, layers []*moe.Layer) (_ disttest.Attached, err error) {
	a.Data = mesh.Group("dp", "ep")
	ranks := moe.Ranks{Tokens: a.Sum, Positions: mesh.Group("cp"), Experts: mesh.Group("ep").With(dist.Name("experts"))}
	if err := moe.Parallelize(ranks, layers...); err != nil {
		return a, err
	}
	a.Params, err = ddp.Attach(a.Sum, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 500,
		Over: moe.Over(mesh.Group("dp", "cp"), layers...)})
	return a, err
}

func (j job) ring(mesh *dist.Mesh, headDim int) *cp.Ring {
	if strings.Contains(j.mesh, "uly") {
		return cp.Unified(mesh.Group("ring"), mesh.Group("uly"), headDim)
	}
	return &cp.Ring{Group: mesh.Group("cp"), HeadDim: headDim}
}

// tokens returns ids [rows, positions] from a row on and those that follow them, which depend on the one before.
func (j job) tokens(first, n int, at tensor.Rows) (ids, next tensor.Tensor) {
	a, b := make([]int64, n*j.positions), make([]int64, n*j.positions)
	for i := range a {
		k := first*j.positions + i
		a[i] = int64(k * k % 19 % words)
		b[i] = (3*a[i] + int64(k%2)) % words
	}
	return tensor.FromSlice(a, n, j.positions).WithRows(at), tensor.FromSlice(b, n, j.positions).WithRows(at)
}

// A model whose sequences a ring divides is trained as on one rank: losses, norms and parameters of ten steps.
func TestRingEqualsOneRank(t *testing.T) {
	meshes := []string{"dp=1,cp=2", "dp=2,cp=2", "dp=1,cp=3", "dp=1,cp=4"}
	if reliability.Long(t) {
		meshes = append(meshes, "dp=3,cp=2", "dp=2,cp=3", "dp=2,cp=4", "dp=1,cp=1", "dp=1,cp=7")
	}
	for turn, model := range []string{"gpt2", "llama"} {
		for i, positions := range []int{7, 12} {
			if i == turn && !reliability.Long(t) {
				continue
			}
			one := job{model: model, positions: positions}
			want := one.training().Run(t)
			for k, mesh := range meshes {
				for stage := range 4 {
					if !reliability.Long(t) && (stage != (i+k+turn)%4 || k != (i+2*turn)%4) {
						continue
					}
					j := one
					j.mesh, j.stage, j.again = mesh, stage, (i+k+stage/2)%2 == 1
					disttest.RequireEqual(t, want, j.training().Run(t), 1e-10)
				}
			}
		}
	}
}

func TestLongRingEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestRingEqualsOneRank) }

// So is one whose ranks of a ring have neighbours that divide heads.
func TestUnifiedEqualsOneRank(t *testing.T) {
	meshes := []string{"dp=1,ring=2,uly=2"}
	if reliability.Long(t) {
		meshes = append(meshes, "dp=2,ring=2,uly=2", "dp=1,ring=3,uly=2", "dp=2,ring=1,uly=2", "dp=2,ring=2,uly=1", "dp=1,uly=2,ring=2")
	}
	for k, model := range []string{"gpt2", "gqa"} {
		for i, positions := range []int{9, 12} {
			if i != k && !reliability.Long(t) {
				continue
			}
			one := job{model: model, positions: positions}
			want := one.training().Run(t)
			for n, mesh := range meshes {
				for stage := range 4 {
					if !reliability.Long(t) && stage != 3*k {
						continue
					}
					j := one
					j.mesh, j.stage, j.again = mesh, stage, (i+n+stage)%2 == 1
					disttest.RequireEqual(t, want, j.training().Run(t), 1e-10)
				}
			}
		}
	}
}

func TestLongUnifiedEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestUnifiedEqualsOneRank) }

// So is one with a loss of whole sequences, on ranks with other rows and other positions.
func TestLossOfSequences(t *testing.T) {
	one := job{model: "gqa", positions: 7, classes: true}
	want := one.training().Run(t)
	for i, mesh := range []string{"dp=2,cp=2", "dp=1,cp=2", "dp=3,cp=2"} {
		if i > 0 && !reliability.Long(t) {
			continue
		}
		j := one
		j.mesh, j.stage = mesh, 3-i
		disttest.RequireEqual(t, want, j.training().Run(t), 1e-10)
	}
}

func TestLongLossOfSequences(t *testing.T) { reliability.AsLong(t, TestLossOfSequences) }

// So is one with experts, also if ranks of ep share them, with losses of the router that count the tokens of the batch.
func TestRingOfExpertsEqualsOneRank(t *testing.T) {
	one := job{model: "gqa", positions: 9, experts: ofExperts}
	want := one.training().Run(t)
	for _, mesh := range []string{"dp=1,ep=1,cp=3", "dp=1,ep=2,cp=2", "dp=2,ep=1,cp=2"} {
		if mesh != "dp=1,ep=2,cp=2" && !reliability.Long(t) {
			continue
		}
		j := one
		j.mesh = mesh
		disttest.RequireEqual(t, want, j.training().Run(t), 1e-10)
	}
}

func TestLongRingOfExpertsEqualsOneRank(t *testing.T) {
	reliability.AsLong(t, TestRingOfExpertsEqualsOneRank)
}

var ofExperts = moe.Config{Features: 12, Hidden: 7, Experts: 4, Router: router.Config{Top: 2}, Balance: 0.1, Z: 0.01}

// What needs the order of a sequence's tokens is refused: ranks of a ring have two runs of them.
func TestOrderOfExpertsInARingIsRefused(t *testing.T) {
	for _, change := range []func(c *moe.Config){func(c *moe.Config) { c.Capacity = 1 }, func(c *moe.Config) { c.Sequence = 9 }} {
		j := job{model: "gqa", positions: 9, experts: ofExperts, mesh: "dp=1,ep=2,cp=2"}
		change(&j.experts)
		j.training().Refused(t, "a balance loss of sequences, and a Capacity, need Ranks.Positions, the ranks with parts of the same sequences")
	}
}

// So is one whose sequences have documents of uneven lengths, of which ranks have parts with equal areas.
func TestDocumentsEqualOneRank(t *testing.T) {
	meshes := []string{"dp=1,cp=2", "dp=2,cp=2", "dp=1,cp=3", "dp=1,cp=4", "dp=1,ring=2,uly=2"}
	for i, model := range []string{"gpt2", "gqa"} {
		if i == 0 && !reliability.Long(t) {
			continue
		}
		one := job{model: model, positions: 13 - 2*i, documents: true}
		want := one.training().Run(t)
		for k, mesh := range meshes {
			if !reliability.Long(t) && k < 4 {
				continue
			}
			j := one
			j.mesh, j.stage, j.again = mesh, (2*i+k)%4, k%3 > 0
			disttest.RequireEqual(t, want, j.training().Run(t), 1e-10)
		}
	}
}

func TestLongDocumentsEqualOneRank(t *testing.T) { reliability.AsLong(t, TestDocumentsEqualOneRank) }

// Programs that forget a part of the ring, or take that of another division, are refused before a step is trained.
func TestWrongRingsAreRefused(t *testing.T) {
	for want, change := range map[string]func(j *job){
		"a position would see this rank's part of its sequence only": func(j *job) {
			j.change = func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[1].Attn.Mix = nil }
		},
		"an input is replicated, must be varying": func(j *job) {
			j.part = func(*cp.Ring) func(x nn.T) nn.T { return func(x nn.T) nn.T { return x } }
		},
		"not those of Ring.Part": func(j *job) {
			j.part = func(f *cp.Ring) func(x nn.T) nn.T { return (&cp.Ulysses{Group: f.Group}).Part }
		},
		"not those of Ulysses.Part": func(j *job) {
			j.change = func(m *gpt.Model, mesh *dist.Mesh) {
				u := &cp.Ulysses{Group: mesh.Group("cp"), HeadDim: m.Config.HeadDim}
				m.Blocks[1].Attn.Core = nn.Core{Spread: u.ToHeads(), Join: u.ToPositions()}
			}
		},
		"not those of Ring.PartOfDocuments": func(j *job) {
			j.documents = true
			j.part = func(f *cp.Ring) func(x nn.T) nn.T { return f.Part }
		},
		"of a step with": func(j *job) { // ranks with other rows
			j.change = func(m *gpt.Model, mesh *dist.Mesh) {
				m.Blocks[0].Attn.Mix = &cp.Ring{Group: mesh.Group("dp", "cp"), HeadDim: m.Config.HeadDim}
			}
		},
		"axis cp: parameter": func(j *job) { j.sum = "dp" },
	} {
		j := job{model: "gpt2", positions: 7, mesh: "dp=2,cp=2"}
		change(&j)
		j.training().Refused(t, want)
	}
}

// The same holds for Unified.
func TestWrongUnifiedIsRefused(t *testing.T) {
	for want, change := range map[string]func(j *job){
		"1 heads of keys and values do not divide over the 2 ranks of its second group: give it a number that divides 1": func(j *job) {
			j.model = "llama"
		},
		"axis uly: an input is replicated, must be varying": func(j *job) {
			j.part = func(f *cp.Ring) func(x nn.T) nn.T { return (&cp.Ring{Group: f.Group}).Part }
		},
		"not those of Ring.Part": func(j *job) {
			j.change = func(m *gpt.Model, mesh *dist.Mesh) {
				m.Blocks[1].Attn.Mix = cp.Unified(mesh.Group("uly"), mesh.Group("ring"), m.Config.HeadDim)
			}
		},
		"axis uly: parameter": func(j *job) { j.sum = "ring" },
	} {
		j := job{model: "gqa", positions: 7, mesh: "dp=1,ring=2,uly=2"}
		change(&j)
		j.training().Refused(t, want)
	}
}

// Steps of a ring allocate nothing.
func TestRingAllocatesNothing(t *testing.T) {
	for _, d := range []division{{2, 1}, {1, 2}} {
		steadySteps(t, d)
	}
}

func steadySteps(t *testing.T, d division) {
	if reliability.Racing {
		t.Skip("with the race detector, a sync.Pool forgets batches")
	}
	j := job{model: "gqa", positions: 9}
	disttest.SteadySteps(t, dist.Run, 16, 3, func(r *dist.Rank) (func() error, error) {
		m := disttest.Must(gpt.New(models[j.model]))
		f := d.of(r, m.Config.HeadDim)
		for _, b := range m.Blocks {
			b.Attn.Mix = f
		}
		params, err := ddp.Attach(r.World, m, ddp.Config{DType: tensor.Float32, Seed: 3})
		if err != nil {
			return nil, err
		}
		opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3}), tensor.NewTape(r.Device)
		ids, next := j.tokens(0, 2, r.World.Rows(0, 2))
		ids, next = f.Part(ids), f.Part(next)
		return func() error {
			tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(ids)), next))
			defer tape.Reset()
			return opt.Step()
		}, nil
	})
}

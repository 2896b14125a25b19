package tp_test

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

const words, positions = 11, 5

// The models: neither hidden features nor the vocabulary divide by the ranks.
var models = map[string]gpt.Config{
	"gpt2":  {Kind: gpt.GPT2, Vocab: words, Positions: positions, Width: 12, Layers: 2, Heads: 6, Hidden: 13, Tied: true},
	"llama": {Kind: gpt.Llama, Vocab: words, Positions: positions, Width: 12, Layers: 2, Heads: 6, KVHeads: 6, Hidden: 13},
	"gqa":   {Kind: gpt.Llama, Vocab: words, Positions: positions, Width: 24, Layers: 1, Heads: 12, KVHeads: 2, Hidden: 7, Tied: true},
	"phi3":  {Kind: gpt.Phi3, Vocab: words, Positions: positions, Width: 24, Layers: 1, Heads: 12, KVHeads: 2, Hidden: 7},
}

// forms are the ways in which tokens lie between the divided layers: whole, in parts, and in parts that travel in pieces.
var forms = []tp.Config{{}, {Sequence: true}, {Sequence: true, Chunks: 3}}

// job is a training of a model. Ranks of kv and same divide its layers, those of cp its sequences; ranks of dp and fsdp have other rows.
type job struct {
	model  string    // of models
	mesh   string    // axes, of which some may lack; without fsdp, ddp sums gradients. "": one rank, with the model as it is
	cfg    tp.Config // without groups
	naive  bool      // in place of layers that are divided
	lora   bool
	save   string                              // modules that are trained beside adapters
	again  bool                                // blocks are computed again in backward
	ones   bool                                // layers and sequences are divided also where an axis has one rank
	change func(m *gpt.Model, mesh *dist.Mesh) // of the program, before Attach
	loss   lossOf                              // in place of tp.CrossEntropy
	square bool                                // the mean square of what is between layers counts, too
}

// squared is a layer in front of which a penalty of the activations is added.
type squared struct{ nn.Layer }

func (l squared) Forward(x nn.T) nn.T {
	n := x.Tape().Rows().Total * positions * x.Dim(-1)
	return l.Layer.Forward(tensor.WithAux(x, x.Square().Sum(), 0.5/float64(n)))
}

// square adds a penalty between the layers of the last block.
func square(m *gpt.Model) {
	b := m.Blocks[len(m.Blocks)-1]
	b.Norm2 = squared{b.Norm2}
}

type lossOf func(logits, labels nn.T) nn.T

func (j job) training() disttest.Training {
	return disttest.Training{Attach: j.attach, Mesh: whole(j.mesh), Batch: 10, Name: fmt.Sprintf("%+v", j)}
}

// whole adds the axes that a mesh lacks.
func whole(mesh string) string {
	for _, axis := range []string{"dp", "fsdp", "cp", "kv", "same"} {
		if mesh != "" && !strings.Contains(","+mesh, ","+axis+"=") {
			mesh += "," + axis + "=1"
		}
	}
	return mesh
}

func (j job) attach(r *dist.Rank, mesh *dist.Mesh) (a disttest.Attached, err error) {
	m := disttest.Must(gpt.New(models[j.model]))
	m.Recompute = j.again
	if j.lora {
		nn.LoRA(m, nn.LoRAConfig{Rank: 2, Alpha: 3, Targets: []string{"blocks.*", "head"}, Save: strings.Fields(j.save)})
	}
	loss := func(logits, labels nn.T) nn.T { return nn.CrossEntropy(logits, labels) }
	part := func(x nn.T) nn.T { return x } // this rank's positions
	a = disttest.Attached{Norm: r.World, Loss: func(b disttest.Batch) nn.T {
		ids, next := tokens(b.First, b.N, b.Rows)
		return loss(m.Forward(b.Tape.Input(part(ids))), part(next))
	}}
	if j.square {
		defer square(m) // behind Divide
	}
	if mesh == nil {
		a.Params = nn.Init(m, r.Device, tensor.Float64, 3)
		return a, nil
	}
	switch {
	case j.naive:
		err = tp.Naive(m, mesh.Group("kv", "same"))
	case j.ones || mesh.Size("kv")*mesh.Size("same") > 1:
		loss, err = j.divide(m, mesh)
	}
	if err != nil {
		return a, err
	}
	if j.ones || mesh.Size("cp") > 1 {
		u := &cp.Ulysses{Group: mesh.Group("cp"), HeadDim: m.Config.HeadDim}
		for _, b := range m.Blocks {
			b.Attn.Spread, b.Attn.Join = u.ToHeads(), u.ToPositions()
		}
		part = u.Part
	}
	if j.change != nil {
		j.change(m, mesh)
	}
	a.Data, a.Sum = mesh.Group("dp", "fsdp"), mesh.Group("dp", "fsdp", "cp")
	if !strings.Contains(j.mesh, "fsdp") {
		a.Params, err = ddp.Attach(a.Sum, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 500})
		return a, err
	}
	s := fsdp.New(fsdp.Config{Shard: mesh.Group("fsdp", "cp"), Replicate: mesh.Group("dp"), DType: tensor.Float64, Seed: 3})
	s.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for _, b := range m.Blocks {
		s.Unit(b)
	}
	a.Params, err = s.Attach(m)
	return a, err
}

// divide divides layers, and returns the loss.
func (j job) divide(m *gpt.Model, mesh *dist.Mesh) (lossOf, error) {
	cfg := j.cfg
	if cfg.Group = mesh.Group("kv", "same"); j.ones || mesh.Size("same") > 1 {
		cfg.KV, cfg.Replicas = mesh.Group("kv"), mesh.Group("same")
	}
	ce, err := parallel.Divide(m, cfg, nil)
	if j.loss != nil || err != nil {
		return j.loss, err
	}
	return func(logits, labels nn.T) nn.T { return ce.Loss(logits, labels) }, nil
}

// tokens returns ids [rows, positions] from a row on and those that follow them, which depend on the one before.
func tokens(first, n int, at tensor.Rows) (ids, next tensor.Tensor) {
	a, b := make([]int64, n*positions), make([]int64, n*positions)
	for i := range a {
		k := first*positions + i
		a[i] = int64(k * k % 19 % words)
		b[i] = (3*a[i] + int64(k%2)) % words
	}
	return tensor.FromSlice(a, n, positions).WithRows(at), tensor.FromSlice(b, n, positions).WithRows(at)
}

package parallel

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

// Layout is the number of ranks on each axis: 0 is 1. What Megatron calls context parallelism is Ring·CP.
type Layout struct {
	PP   int // stages of a pipeline, with different layers (gpt.Model.Stages)
	DP   int // copies of the model
	FSDP int // ranks that share the parameters of a copy
	EP   int // ranks that share experts
	Ring int // ranks that share each sequence, around which keys and values go (cp.Ring)
	CP   int // Ulysses: ranks that share each sequence, or what a rank of Ring has of it, and exchange heads (cp.Ulysses, cp.Unified)
	TP   int // ranks that divide each layer
}

// Mesh returns the axes of dist.Mesh that Attach wants, pp only if PP > 1. TP is two of them: ranks along kv have other heads of keys and
// values, those along same have the same heads, if there are fewer heads than ranks. mesh.Group("kv", "same") is Attached.Layers.
func (l Layout) Mesh(kvHeads int) string {
	heads, same := cmp.Or(l.TP, 1), 1
	if heads > kvHeads && heads%kvHeads == 0 {
		heads, same = kvHeads, heads/kvHeads
	}
	stages := ""
	if l.PP > 1 {
		stages = fmt.Sprintf("pp=%d,", l.PP)
	}
	return stages + fmt.Sprintf("dp=%d,fsdp=%d,ep=%d,ring=%d,cp=%d,kv=%d,same=%d",
		cmp.Or(l.DP, 1), cmp.Or(l.FSDP, 1), cmp.Or(l.EP, 1), cmp.Or(l.Ring, 1), cmp.Or(l.CP, 1), heads, same)
}

// Config says how a model is divided.
type Config struct {
	Sequence bool                 // see tp.Config
	Chunks   int                  // see tp.Config
	More     func(p *tp.Parallel) // divides what the model has besides the layers of package gpt, such as dropout; may be nil
	DDP      ddp.Config           // Attach sets Over
	FSDP     *fsdp.Config         // in place of DDP; Attach sets Shard and Replicate
}

// Attached is a model that is ready to be trained.
type Attached struct {
	Params nn.Params
	Shards *fsdp.Sharding // nil without Config.FSDP
	Data   *dist.Group    // ranks with other rows
	Sum    *dist.Group    // ranks with other rows or other positions: they sum gradients
	Layers *dist.Group    // ranks that divide each layer (tensor parallelism)
	// Groups are all that send parameters, gradients and activations; Experts, which are among them, those of each layer with experts.
	Groups, Experts []*dist.Group
	mixtures        []*moe.Layer
	// Part returns this rank's positions of sequences, of tokens and of labels. Where ranks share sequences, give it the numbers of packed
	// documents, too, which gpt.Documents returns: those of whole sequences, in host memory. Features needs them as well.
	Part func(x tensor.Tensor, docs ...tensor.Tensor) tensor.Tensor
	// Loss is this rank's part of the mean over labels, as nn.CrossEntropy; if ranks divide the words, options set Ignore and Count.
	// FeatureLoss is Loss of the logits for x, of Model.Features, which are never whole in memory.
	Loss, FeatureLoss func(x, labels nn.T, options ...ops.CrossEntropyOptions) nn.T
}

// Once is x on the first of the ranks that divide each layer (Layers), which all have the same loss, and 0 on the others: a sum over all
// ranks counts it once. Ranks that share sequences have the losses of different positions, and count all.
func (a *Attached) Once(x nn.T) nn.T {
	if a.Layers.Rank() == 0 {
		return x
	}
	return x.Scale(0)
}

// Attach gives each rank its part of m, on a mesh with the axes of Layout.Mesh, in the order that the packages need: first layers (tp), in
// them experts (moe), then sequences (cp), and last what each rank has left of the parameters, over the ranks with other rows or
// positions (fsdp or ddp). What is frozen, or has adapters (nn.LoRA), is so before; blocks that are computed again (tensor.Tape.Checkpoint)
// are divided as others. m may be some stages of a pipeline (NewPipeline, gpt.Model.Stages): then pass the whole mesh, with axis pp: its
// groups are of ranks with the same stages. fsdp needs OncePerStep there. It is collective.
func Attach(mesh *dist.Mesh, m *gpt.Model, c Config) (*Attached, error) {
	a := &Attached{Data: mesh.Group("dp", "fsdp", "ep"), Sum: mesh.Group("dp", "fsdp", "ep", "ring", "cp"), Layers: mesh.Group("kv", "same"),
		Loss: nn.CrossEntropy, Part: func(x tensor.Tensor, _ ...tensor.Tensor) tensor.Tensor { return x }}
	a.FeatureLoss = func(x, labels nn.T, o ...ops.CrossEntropyOptions) nn.T {
		return nn.LinearCrossEntropy(m.Head, x, labels, o...)
	}
	if err := a.divideLayers(mesh, m, c); err != nil {
		return nil, err
	}
	err := a.divideSequences(mesh, m)
	if err != nil {
		return nil, err
	}
	if c.FSDP != nil {
		err = a.shard(mesh, m, *c.FSDP)
	} else {
		g := a.Sum.With(dist.Name("ddp"))
		a.Groups = append(a.Groups, g)
		c.DDP.Over = moe.Over(mesh.Group("dp", "fsdp", "ring", "cp"), a.mixtures...)
		a.Params, err = ddp.Attach(g, m, c.DDP)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Attached) divideSequences(mesh *dist.Mesh, m *gpt.Model) error {
	group := func(axis string) *dist.Group {
		g := mesh.Group(axis)
		if g.Size() > 1 {
			g = g.With(dist.Name(axis))
			a.Groups = append(a.Groups, g)
		}
		return g
	}
	ring, ulysses, core := group("ring"), group("cp"), nn.Core{}
	switch f, u := cp.Unified(ring, ulysses, m.Config.HeadDim), (&cp.Ulysses{Group: ulysses, HeadDim: m.Config.HeadDim}); {
	case ring.Size() > 1:
		switch c := m.Config; {
		case c.Window > 0 && c.Window < c.Positions && c.FullLayers < c.Layers && c.FullEvery != 1:
			return fmt.Errorf("parallel: a ring computes no windows of attention, and the model has one of %d of %d positions: use cp", c.Window,
				c.Positions)
		case c.AttnSoftCap != 0 || c.QueryScalar != 0 && c.QueryScalar != c.HeadDim:
			return fmt.Errorf("parallel: a ring computes no soft caps and no other scale of scores, and the model has AttnSoftCap %v and "+
				"QueryScalar %d: use cp", c.AttnSoftCap, c.QueryScalar)
		}
		f.Even = slices.Contains(m.Blocks, nil) // a pipeline
		core.Mix, a.Part = f, sequences(f.Part, f.PartOfDocuments)
	case ulysses.Size() > 1:
		core.Spread, core.Join, a.Part = u.ToHeads(), u.ToPositions(), sequences(u.Part, nil)
	default:
		return nil
	}
	for _, b := range blocks(m) {
		core.Scores = b.Attn.Scores
		b.Attn.Core = core
	}
	return nil
}

// partFunc is Attached.Part.
type partFunc func(x tensor.Tensor, docs ...tensor.Tensor) tensor.Tensor

// sequences returns part, or with documents withDocs, if there is one.
func sequences(part func(x tensor.Tensor) tensor.Tensor, withDocs func(x, docs tensor.Tensor) tensor.Tensor) partFunc {
	return func(x tensor.Tensor, docs ...tensor.Tensor) tensor.Tensor {
		switch {
		case x.NDim() == 3 && x.DType() == tensor.Int64:
			panic(&tensor.Failure{Op: "parallel.Part", Err: fmt.Errorf("%v has the numbers of documents: ranks that share a sequence take "+
				"them apart (gpt.Documents)", x.Shape())})
		case len(docs) > 0 && withDocs != nil:
			return withDocs(x, docs[0])
		}
		return part(x)
	}
}

func (a *Attached) divideLayers(mesh *dist.Mesh, m *gpt.Model, c Config) error {
	if a.Layers.Size() == 1 {
		return a.divideExperts(mesh, m, nil)
	}
	a.Groups = append(a.Groups, a.Layers)
	cfg := tp.Config{Group: a.Layers, Sequence: c.Sequence, Chunks: c.Chunks}
	if mesh.Size("same") > 1 {
		cfg.KV, cfg.Replicas = mesh.Group("kv"), mesh.Group("same")
	}
	var err error
	loss, failed := Divide(m, cfg, func(p *tp.Parallel) {
		if c.More != nil {
			c.More(p)
		}
		err = a.divideExperts(mesh, m, p)
	})
	if err := cmp.Or(failed, err); err != nil {
		return err
	}
	a.Loss = loss.Loss
	a.FeatureLoss = func(x, labels nn.T, o ...ops.CrossEntropyOptions) nn.T {
		return loss.LinearLoss(m.Head, x, labels, o...)
	}
	return nil
}

// Divide is the part of Attach that divides layers: heads, hidden features, and the vocabulary. It returns the loss of divided logits. more
// divides what else the model has; it may be nil.
func Divide(m *gpt.Model, c tp.Config, more func(p *tp.Parallel)) (loss *tp.CrossEntropy, err error) {
	err = tp.Parallelize(m, c, func(p *tp.Parallel) {
		if m.Tok != nil {
			p.Vocab(m.Tok)
		}
		m.Embedded = p.Tokens()
		for _, b := range blocks(m) {
			b.Norm1 = p.Heads(b.Norm1, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
			p.Row(b.Attn.Out)
			for _, norm := range []nn.Layer{b.PostAttn, b.PostMLP} {
				if norm != nil {
					p.Norm(norm)
				}
			}
			b.Attn.QNorm, b.Attn.KNorm = divideNorm(b.Attn.QNorm, c.Group), divideNorm(b.Attn.KNorm, c.Group)
			switch mlp := b.MLP.(type) {
			case *nn.MLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Up)
				p.Row(mlp.Down)
			case *nn.GatedMLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Gate, mlp.Up)
				p.Row(mlp.Down)
			}
		}
		if m.Head != nil {
			m.Norm = p.Columns(m.Norm, m.Head)
		}
		m.Drawn = p.Logits(m.Config.Vocab)
		loss = p.CrossEntropy(m.Config.Vocab)
		if more != nil {
			more(p)
		}
	})
	return loss, err
}

// divideExperts gives each rank its part of the experts; with tensor parallelism, of each of them its part of the hidden features. Each
// layer has its own group, whose bytes are counted.
func (a *Attached) divideExperts(mesh *dist.Mesh, m *gpt.Model, p *tp.Parallel) error {
	for i, b := range blocks(m) {
		l, ok := b.MLP.(*moe.Layer)
		if !ok {
			continue
		}
		ranks := moe.Ranks{Tokens: a.Sum, Positions: mesh.Group("ring", "cp"),
			Experts: mesh.Group("ep").With(dist.Name(fmt.Sprintf("experts of layer %d", i)))}
		if p != nil {
			ranks.Hidden = p.Group
			ranks.Gather, ranks.Scatter = p.Between(b.Norm2)
		}
		if err := moe.Parallelize(ranks, l); err != nil {
			return err
		}
		a.Experts, a.mixtures = append(a.Experts, ranks.Experts), append(a.mixtures, l)
	}
	a.Groups = append(a.Groups, a.Experts...)
	return nil
}

// blocks yields the blocks that this rank has, and their numbers in the whole model.
func blocks(m *gpt.Model) iter.Seq2[int, *gpt.Block] {
	return func(yield func(int, *gpt.Block) bool) {
		for i, b := range m.Blocks {
			if b != nil && !yield(i, b) {
				return
			}
		}
	}
}

// shard cuts what each rank has left of the parameters over the ranks that have the same. A block is a unit, which is gathered when it is
// used. Its experts are another one, because fewer ranks have the same.
func (a *Attached) shard(mesh *dist.Mesh, m *gpt.Model, c fsdp.Config) (err error) {
	if c.Shard = mesh.Group("fsdp", "ep", "ring", "cp"); mesh.Size("dp") > 1 {
		c.Replicate = mesh.Group("dp")
	}
	a.Shards = fsdp.New(c)
	a.keep(m)
	for _, b := range blocks(m) {
		l, ok := b.MLP.(*moe.Layer)
		if !ok {
			a.Shards.Unit(b)
			continue
		}
		a.Shards.Unit(b.Norm1, b.Attn, b.Norm2, l.Router)
		if l.Shared != nil {
			a.Shards.Unit(l.Shared)
		}
		a.Shards.Unit(l.Experts).Over(mesh.Group("fsdp", "ring", "cp"), c.Replicate)
	}
	a.Params, err = a.Shards.Attach(m)
	a.Groups = append(a.Groups, a.Shards.Groups()...)
	return err
}

// keep makes units of what is outside of blocks. In the middle of a pipeline there is nothing.
func (a *Attached) keep(m *gpt.Model) {
	units := [][]any{{m.Tok, m.Pos, m.Norm, m.Head}}
	if m.Config.Tied { // two stages of a pipeline add up the table's gradients: each rank must have the same part of it on both
		units = [][]any{{m.Tok}, {m.Pos, m.Norm}}
		if m.Head != nil {
			units[1] = append(units[1], m.Head.Adapter)
		}
	}
	for _, layers := range units {
		if len(nn.Within(layers)) > 0 {
			a.Shards.Keep(layers...)
		}
	}
}

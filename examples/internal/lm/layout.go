package lm

import (
	"cmp"
	"flag"
	"fmt"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
)

// layout is the number of ranks on each axis.
type layout struct {
	dp    int // copies of the model; 0: as many as the ranks allow
	fsdp  int // parts of each copy
	stage int // of ZeRO
	tp    int // ranks that divide each layer
	sp    bool
	async int // pieces of the tokens that are communicated while others are computed
	cp    int // ranks that share each sequence
	ep    int // ranks that share experts; they have different sequences
}

func (l *layout) flags(fs *flag.FlagSet) {
	fs.IntVar(&l.dp, "dp", 0, "copies of the model, each on ranks of its own (0: 1, or as many as a launcher's ranks allow)")
	fs.IntVar(&l.fsdp, "fsdp", 1, "ranks that share a copy of the model")
	fs.IntVar(&l.tp, "tp", 1, "ranks that divide each layer: heads, hidden features, vocabulary")
	fs.BoolVar(&l.sp, "sp", false, "with -tp: between these layers each rank has a part of the tokens (sequence parallelism)")
	fs.IntVar(&l.async, "async", 0, "with -sp: tokens travel in so many pieces while layers compute (0: layers wait for all)")
	fs.IntVar(&l.cp, "cp", 1, "ranks that share each sequence: positions, and attention by heads (Ulysses)")
	fs.IntVar(&l.stage, "stage", 3, "what they share: 1 the optimizer's state, 2 gradients too, 3 parameters too")
}

func (l *layout) check() error {
	switch {
	case l.dp < 0 || l.fsdp < 1 || l.tp < 1 || l.cp < 1 || l.ep < 1:
		return train.Usagef("-dp %d -fsdp %d -tp %d -cp %d%s: ranks of an axis are at least 1", l.dp, l.fsdp, l.tp, l.cp, l.epFlag())
	case l.sp && l.tp == 1:
		return train.Usagef("-sp needs -tp")
	case l.async != 0 && !l.sp:
		return train.Usagef("-async needs -sp")
	case l.stage < 1 || l.stage > 3:
		return train.Usagef("-stage %d: 1, 2 or 3", l.stage)
	}
	return nil
}

// copyRanks is the number of ranks that hold a copy of the model together.
func (l *layout) copyRanks() int { return l.fsdp * l.tp * l.cp * l.ep }

// epFlag is the part of a layout that only models with experts have.
func (l *layout) epFlag() string {
	if l.ep == 1 {
		return ""
	}
	return fmt.Sprintf(" -ep %d", l.ep)
}

// ranks is the number of ranks without a launcher.
func (l *layout) ranks() int { return max(l.dp, 1) * l.copyRanks() }

// fill sets the layout for n ranks.
func (l *layout) fill(n int) error {
	if l.dp == 0 && n%l.copyRanks() == 0 {
		l.dp = n / l.copyRanks()
	}
	if l.dp*l.copyRanks() != n {
		dp := ""
		if l.dp > 0 {
			dp = fmt.Sprintf("-dp %d ", l.dp)
		}
		return train.Usagef("%s-fsdp %d -tp %d -cp %d%s does not fit the launcher's %d ranks", dp, l.fsdp, l.tp, l.cp, l.epFlag(), n)
	}
	return nil
}

// attached is a model that is ready to be trained.
type attached struct {
	params  nn.Params
	shards  *fsdp.Sharding // nil: every rank has all parameters
	groups  []*dist.Group  // those that send parameters, gradients and activations
	data    *dist.Group    // ranks with other rows
	sum     *dist.Group    // ranks with other rows or other positions: they sum gradients
	experts []*dist.Group  // of each layer with experts
	share   *cp.Ulysses    // nil: each rank has whole sequences
	first   bool           // of the ranks with the same rows
	loss    func(logits, labels nn.T) nn.T
}

// parallelize divides the model over the ranks: first the layers, then each rank's part of them.
func (o *Options) parallelize(r *dist.Rank, m *gpt.Model, dtype tensor.DType) (a attached, err error) {
	heads, same := min(o.tp, m.Config.KVHeads), 1
	if o.tp > heads && o.tp%heads == 0 {
		same = o.tp / heads // this many ranks have the same keys and values
	} else {
		heads = o.tp
	}
	mesh, err := r.World.Mesh(fmt.Sprintf("dp=%d,fsdp=%d,ep=%d,cp=%d,kv=%d,same=%d", o.dp, o.fsdp, o.ep, o.cp, heads, same))
	if err != nil {
		return a, err
	}
	layers := mesh.Group("kv", "same")
	a.data, a.sum, a.first = mesh.Group("dp", "fsdp", "ep"), mesh.Group("dp", "fsdp", "ep", "cp"), layers.Rank() == 0
	if o.tp == 1 {
		if err := o.share(&a, mesh, m, nil); err != nil {
			return a, err
		}
	}
	a.loss = func(logits, labels nn.T) nn.T { return nn.CrossEntropy(logits, labels) }
	if o.tp > 1 {
		a.groups = append(a.groups, layers)
		c := tp.Config{Group: layers, Sequence: o.sp, Chunks: o.async}
		if same > 1 {
			c.KV, c.Replicas = mesh.Group("kv"), mesh.Group("same")
		}
		if err = o.divide(&a, mesh, m, c); err != nil {
			return a, err
		}
	}
	if o.cp > 1 {
		if kv := max(m.Config.KVHeads/o.tp, 1); kv%o.cp != 0 {
			return a, train.Usagef("-cp %d: %d heads of keys and values of a rank do not divide over %d ranks", o.cp, kv, o.cp)
		}
		a.share = &cp.Ulysses{Group: mesh.Group("cp").With(dist.Name("cp")), HeadDim: m.Config.HeadDim}
		a.groups = append(a.groups, a.share.Group)
		for _, b := range m.Blocks {
			b.Attn.Spread, b.Attn.Join = a.share.ToHeads(), a.share.ToPositions()
		}
	}
	return a, o.attach(&a, mesh, m, dtype)
}

// part returns this rank's part of the sequences of a batch.
func (a *attached) part(x tensor.Tensor) tensor.Tensor {
	if a.share == nil {
		return x
	}
	return a.share.Part(x)
}

// divide gives each rank its part of every layer. The logits are divided, too, and the loss is computed from the parts.
func (o *Options) divide(a *attached, mesh *dist.Mesh, m *gpt.Model, c tp.Config) (err error) {
	failed := tp.Parallelize(m, c, func(p *tp.Parallel) {
		p.Vocab(m.Tok)
		m.Embedded = p.Tokens()
		for _, b := range m.Blocks {
			b.Norm1 = p.Heads(b.Norm1, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
			p.Row(b.Attn.Out)
			switch mlp := b.MLP.(type) {
			case *nn.MLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Up)
				p.Row(mlp.Down)
			case *nn.GatedMLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Gate, mlp.Up)
				p.Row(mlp.Down)
			}
		}
		m.Norm = p.Columns(m.Norm, m.Head)
		m.Drawn = p.Logits(m.Config.Vocab)
		a.loss = p.CrossEntropy(m.Config.Vocab).Loss
		err = o.share(a, mesh, m, p)
	})
	return cmp.Or(failed, err)
}

// attach gives each rank's parameters to ddp or fsdp.
func (o *Options) attach(a *attached, mesh *dist.Mesh, m *gpt.Model, dtype tensor.DType) (err error) {
	if o.fsdp == 1 {
		g := a.sum.With(dist.Name("ddp"))
		a.groups = append(a.groups, g)
		a.params, err = ddp.Attach(g, m, ddp.Config{DType: dtype, Seed: o.seed, Over: moe.Over(mesh.Group("dp", "fsdp", "cp"), layersOf(m)...)})
		return err
	}
	cfg := fsdp.Config{Shard: mesh.Group("fsdp", "ep", "cp"), Stage: o.stage, DType: dtype, Compute: dtype, Seed: o.seed}
	if dtype.IsHalf() {
		cfg.DType = tensor.Float32
	}
	if o.dp > 1 {
		cfg.Replicate = mesh.Group("dp")
	}
	a.shards = fsdp.New(cfg)
	a.shards.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for _, b := range m.Blocks {
		o.unit(a.shards, mesh, b)
	}
	a.params, err = a.shards.Attach(m)
	a.groups = append(a.groups, a.shards.Groups()...)
	return err
}

// unit makes a block a unit, which is gathered when it is used. Its experts are another unit, because other ranks share them.
func (o *Options) unit(s *fsdp.Sharding, mesh *dist.Mesh, b *gpt.Block) {
	l, ok := b.MLP.(*moe.Layer)
	if !ok {
		s.Unit(b)
		return
	}
	s.Unit(b.Norm1, b.Attn, b.Norm2, l.Router)
	if l.Shared != nil {
		s.Unit(l.Shared)
	}
	experts := s.Unit(l.Experts)
	if o.dp > 1 {
		experts.Over(mesh.Group("fsdp", "cp"), mesh.Group("dp"))
	} else {
		experts.Over(mesh.Group("fsdp", "cp"), nil)
	}
}

// optimizer returns the optimizer of -optim.
func (o *Options) optimizer(a attached, norm optim.Norm) *optim.Optimizer {
	warm := optim.Warmup(50, nil)
	if o.optim == "sgd" {
		return optim.NewSGD(a.params, optim.SGDConfig{LR: o.lr, Momentum: 0.9, Schedule: warm, Clip: 1, Norm: norm})
	}
	return optim.NewAdamW(a.params, optim.AdamWConfig{LR: o.lr, WeightDecay: 0.01, Schedule: warm, Clip: 1, Norm: norm})
}

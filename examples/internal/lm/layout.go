package lm

import (
	"flag"
	"fmt"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
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
	cp    int // ranks that share each sequence, or what a rank of ring has of it
	ep    int // ranks that share experts; they have different sequences
	pp    int // ranks with different layers; 0 and 1: none
	ring  int // ranks around which keys and values of each sequence go; 0 and 1: none
}

func (l *layout) flags(fs *flag.FlagSet) {
	fs.IntVar(&l.dp, "dp", 0, "copies of the model, each on ranks of its own (0: 1, or as many as a launcher's ranks allow)")
	fs.IntVar(&l.fsdp, "fsdp", 1, "ranks that share a copy of the model")
	fs.IntVar(&l.tp, "tp", 1, "ranks that divide each layer: heads, hidden features, vocabulary")
	fs.BoolVar(&l.sp, "sp", false, "with -tp: between these layers each rank has a part of the tokens (sequence parallelism)")
	fs.IntVar(&l.async, "async", 0, "with -sp: tokens travel in so many pieces while layers compute (0: layers wait for all)")
	fs.IntVar(&l.cp, "cp", 1, "ranks that share each sequence: positions, and attention by heads (Ulysses)")
	fs.IntVar(&l.ring, "ring", 1, "ranks that share each sequence, around which keys and values go; with -cp, those stand in for each of them")
	fs.IntVar(&l.stage, "stage", 3, "what they share: 1 the optimizer's state, 2 gradients too, 3 parameters too")
}

func (l *layout) check() error {
	switch {
	case l.dp < 0 || l.fsdp < 1 || l.tp < 1 || l.cp < 1 || l.ep < 1 || l.ring < 0 || l.pp < 0:
		return train.Usagef("-dp %d -fsdp %d -tp %d -cp %d%s: ranks of an axis are at least 1", l.dp, l.fsdp, l.tp, l.cp, l.otherFlags())
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
func (l *layout) copyRanks() int { return l.fsdp * l.tp * l.cp * max(l.ring, 1) * l.ep * max(l.pp, 1) }

// otherFlags are the parts of a layout that few have: rings, experts, and stages of a pipeline.
func (l *layout) otherFlags() (text string) {
	if l.ring < 0 || l.ring > 1 {
		text = fmt.Sprintf(" -ring %d", l.ring)
	}
	if l.ep != 1 {
		text += fmt.Sprintf(" -ep %d", l.ep)
	}
	if l.pp < 0 || l.pp > 1 {
		text += fmt.Sprintf(" -pp %d", l.pp)
	}
	return text
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
		return train.Usagef("%s-fsdp %d -tp %d -cp %d%s does not fit the launcher's %d ranks", dp, l.fsdp, l.tp, l.cp, l.otherFlags(), n)
	}
	return nil
}

// parallelize divides the model over the ranks. With -pp it returns this rank's stages, too.
func (o *Options) parallelize(r *dist.Rank, m *gpt.Model, dtype tensor.DType) (*parallel.Attached, *stages, error) {
	if kv := max(m.Config.KVHeads/o.tp, 1); kv%o.cp != 0 {
		return nil, nil, train.Usagef("-cp %d: %d heads of keys and values of a rank do not divide over %d ranks: -ring has no such limit",
			o.cp, kv, o.cp)
	}
	l := parallel.Layout{PP: o.pp, DP: o.dp, FSDP: o.fsdp, EP: o.ep, Ring: o.ring, CP: o.cp, TP: o.tp}
	mesh, err := r.World.Mesh(l.Mesh(m.Config.KVHeads))
	if err != nil {
		return nil, nil, err
	}
	p, err := o.stages(mesh, m)
	if err != nil {
		return nil, nil, err
	}
	c := parallel.Config{Sequence: o.sp, Chunks: o.async, DDP: ddp.Config{DType: dtype, Seed: o.seed}}
	if o.fsdp > 1 {
		c.FSDP = &fsdp.Config{Stage: o.stage, DType: dtype, Compute: dtype, Seed: o.seed, OncePerStep: p != nil}
		if dtype.IsHalf() {
			c.FSDP.DType = tensor.Float32
		}
	}
	a, err := parallel.Attach(mesh, m, c)
	if err == nil && p != nil {
		a.Groups = append(a.Groups, p.group)
	}
	return a, p, err
}

// optimizer returns the optimizer of -optim.
func (o *Options) optimizer(params nn.Params, norm optim.Norm) *optim.Optimizer {
	warm := optim.Warmup(50, nil)
	if o.optim == "sgd" {
		return optim.NewSGD(params, optim.SGDConfig{LR: o.lr, Momentum: 0.9, Schedule: warm, Clip: 1, Norm: norm})
	}
	return optim.NewAdamW(params, optim.AdamWConfig{LR: o.lr, WeightDecay: 0.01, Schedule: warm, Clip: 1, Norm: norm})
}

package main

import (
	"flag"
	"fmt"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
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
}

func (l *layout) flags(fs *flag.FlagSet) {
	fs.IntVar(&l.dp, "dp", 0, "copies of the model, each on ranks of its own (0: 1, or as many as a launcher's ranks allow)")
	fs.IntVar(&l.fsdp, "fsdp", 1, "ranks that share a copy of the model")
	fs.IntVar(&l.stage, "stage", 3, "what they share: 1 the optimizer's state, 2 gradients too, 3 parameters too")
}

func (l *layout) check() error {
	switch {
	case l.dp < 0 || l.fsdp < 1:
		return train.Usagef("-dp %d -fsdp %d: ranks of an axis are at least 1", l.dp, l.fsdp)
	case l.stage < 1 || l.stage > 3:
		return train.Usagef("-stage %d: 1, 2 or 3", l.stage)
	}
	return nil
}

// ranks is how many ranks there are without a launcher.
func (l *layout) ranks() int { return max(l.dp, 1) * l.fsdp }

// fill makes the layout that of n ranks.
func (l *layout) fill(n int) error {
	if l.dp == 0 && n%l.fsdp == 0 {
		l.dp = n / l.fsdp
	}
	if l.dp*l.fsdp != n {
		dp := ""
		if l.dp > 0 {
			dp = fmt.Sprintf("-dp %d ", l.dp)
		}
		return train.Usagef("%s-fsdp %d does not fit the launcher's %d ranks", dp, l.fsdp, n)
	}
	return nil
}

// attached is a model that is ready to be trained.
type attached struct {
	params nn.Params
	shards *fsdp.Sharding // nil: every rank has all parameters
	groups []*dist.Group  // that carry parameters and gradients
}

// attach divides the model over the ranks.
func (o *options) attach(r *dist.Rank, m *gpt.Model, dtype tensor.DType) (a attached, err error) {
	if o.fsdp == 1 {
		g := r.World.With(dist.Name("ddp"))
		a.groups = []*dist.Group{g}
		a.params, err = ddp.Attach(g, m, ddp.Config{DType: dtype, Seed: o.seed})
		return a, err
	}
	mesh, err := r.World.Mesh(fmt.Sprintf("dp=%d,fsdp=%d", o.dp, o.fsdp))
	if err != nil {
		return a, err
	}
	cfg := fsdp.Config{Shard: mesh.Group("fsdp"), Stage: o.stage, DType: dtype, Compute: dtype, Seed: o.seed}
	if dtype.IsHalf() {
		cfg.DType = tensor.Float32
	}
	if o.dp > 1 {
		cfg.Replicate = mesh.Group("dp")
	}
	a.shards = fsdp.New(cfg)
	a.shards.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for _, b := range m.Blocks {
		a.shards.Unit(b)
	}
	a.params, err = a.shards.Attach(m)
	a.groups = a.shards.Groups()
	return a, err
}

// optimizer returns that of -optim.
func (o *options) optimizer(a attached) *optim.Optimizer {
	var norm optim.Norm // of all gradients, wherever they are
	if a.shards != nil {
		norm = a.shards
	}
	warm := optim.Warmup(50, nil)
	if o.optim == "sgd" {
		return optim.NewSGD(a.params, optim.SGDConfig{LR: o.lr, Momentum: 0.9, Schedule: warm, Clip: 1, Norm: norm})
	}
	return optim.NewAdamW(a.params, optim.AdamWConfig{LR: o.lr, WeightDecay: 0.01, Schedule: warm, Clip: 1, Norm: norm})
}

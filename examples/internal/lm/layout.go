package lm

import (
	"flag"
	"fmt"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// Layout is the number of ranks on each axis. DP may be 0: as many as the ranks allow.
type Layout struct {
	parallel.Layout
	Stage int // of ZeRO, along FSDP
	SP    bool
	Async int // pieces of the tokens that are communicated while others are computed
}

func (l *Layout) flags(fs *flag.FlagSet) {
	l.EP, l.PP = 1, 1 // examples/moe has a flag for EP, examples/gpt for PP
	fs.IntVar(&l.DP, "dp", 0, "copies of the model, each on ranks of its own (0: 1, or as many as a launcher's ranks allow)")
	fs.IntVar(&l.FSDP, "fsdp", 1, "ranks that share a copy of the model")
	fs.IntVar(&l.TP, "tp", 1, "ranks that divide each layer: heads, hidden features, vocabulary")
	fs.BoolVar(&l.SP, "sp", false, "with -tp: between these layers each rank has a part of the tokens (sequence parallelism)")
	fs.IntVar(&l.Async, "async", 0, "with -sp: tokens travel in so many pieces while layers compute (0: layers wait for all)")
	fs.IntVar(&l.CP, "cp", 1, "ranks that share each sequence: positions, and attention by heads (Ulysses)")
	fs.IntVar(&l.Ring, "ring", 1, "ranks that share each sequence, around which keys and values go; with -cp, those stand in for each of them")
	fs.IntVar(&l.Stage, "stage", 3, "with -fsdp: what its ranks divide: 1 the optimizer's state, 2 gradients too, 3 parameters too")
}

func (l *Layout) check() error {
	switch {
	case l.DP < 0 || l.FSDP < 1 || l.TP < 1 || l.CP < 1 || l.EP < 1 || l.Ring < 1 || l.PP < 1:
		return train.Usagef("-dp %d -fsdp %d -tp %d -cp %d%s: ranks of an axis are at least 1", l.DP, l.FSDP, l.TP, l.CP, l.otherFlags())
	case l.SP && l.TP == 1:
		return train.Usagef("-sp needs -tp")
	case l.Async != 0 && !l.SP:
		return train.Usagef("-async needs -sp")
	case l.Stage < 1 || l.Stage > 3:
		return train.Usagef("-stage %d: 1, 2 or 3", l.Stage)
	}
	return nil
}

// copyRanks is the number of ranks that hold a copy of the model together.
func (l *Layout) copyRanks() int { return l.FSDP * l.TP * l.CP * l.Ring * l.EP * l.PP }

// otherFlags are the parts of a layout that few have: rings, experts, and stages of a pipeline.
func (l *Layout) otherFlags() (text string) {
	if l.Ring != 1 {
		text = fmt.Sprintf(" -ring %d", l.Ring)
	}
	if l.EP != 1 {
		text += fmt.Sprintf(" -ep %d", l.EP)
	}
	if l.PP != 1 {
		text += fmt.Sprintf(" -pp %d", l.PP)
	}
	return text
}

// Ranks is the number of ranks without a launcher.
func (l *Layout) Ranks() int { return max(l.DP, 1) * l.copyRanks() }

// Fill sets the layout for n ranks.
func (l *Layout) Fill(n int) error {
	if l.DP == 0 && n%l.copyRanks() == 0 {
		l.DP = n / l.copyRanks()
	}
	if l.DP*l.copyRanks() != n {
		dp := ""
		if l.DP > 0 {
			dp = fmt.Sprintf("-dp %d ", l.DP)
		}
		return train.Usagef("%s-fsdp %d -tp %d -cp %d%s does not fit the launcher's %d ranks", dp, l.FSDP, l.TP, l.CP, l.otherFlags(), n)
	}
	return nil
}

// Mesh returns the ranks on these axes, for a model with so many heads of keys and values.
func (l *Layout) Mesh(r *dist.Rank, kvHeads int) (*dist.Mesh, error) {
	if err := l.Fill(r.World.Size()); err != nil {
		return nil, err
	}
	if kv := max(kvHeads/l.TP, 1); kv%l.CP != 0 {
		return nil, train.Usagef("-cp %d: %d heads of keys and values of a rank do not divide over %d ranks: -ring has no such limit",
			l.CP, kv, l.CP)
	}
	return r.World.Mesh(l.Layout.Mesh(kvHeads))
}

// Config says how a model that computes in dtype is divided on these axes.
func (l *Layout) Config(dtype tensor.DType, seed uint64) parallel.Config {
	c := parallel.Config{Sequence: l.SP, Chunks: l.Async, DDP: ddp.Config{DType: dtype, Seed: seed}}
	if l.FSDP > 1 {
		c.FSDP = &fsdp.Config{Stage: l.Stage, DType: dtype, Compute: dtype, Seed: seed, OncePerStep: l.PP > 1}
		if dtype.IsHalf() {
			c.FSDP.DType = tensor.Float32
		}
	}
	return c
}

package moe

import (
	"fmt"
	"hash/crc64"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/internal/rebuild"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/moe/dispatch"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks says how ranks share tokens and experts.
type Ranks struct {
	// Tokens are all ranks with other tokens of a batch, such as mesh.Group("dp", "ep"): what a loss says of the balance of experts is
	// said of the tokens of all of them.
	Tokens *dist.Group
	// Positions are those of Tokens with other positions of the same rows (package cp), such as mesh.Group("cp"), in their order:
	// Config.Sequence and Capacity need them. nil: sequences are whole.
	Positions *dist.Group
	// Experts are the ranks of which each has a part of the experts, such as mesh.Group("ep"): some of Tokens, for each of them has
	// rows of its own. nil: every rank has all experts.
	Experts *dist.Group
	// Half has slots travel in bfloat16, forward and backward, whatever the type of the model. What a token gets is then rounded twice.
	Half bool
	// Hidden are ranks with the same tokens, of which each has a part of every expert's hidden features, and of the shared expert's, such as
	// mesh.Group("tp"). nil: experts are whole.
	Hidden *dist.Group
	// Gather and Scatter, for sequence parallelism: outside of the layer each rank of Hidden has a part of the tokens. They come from
	// tp.Parallel.Between. nil: it has all of them.
	Gather, Scatter tensor.Function
}

// parallel is how a layer uses Ranks.
type parallel struct {
	Ranks
	sumTokens, sumPositions tensor.Function // sum counts over Tokens, and over Positions; nil: nothing
	// What the ranks of Hidden compute with their parts of the features goes through toHidden, what they have computed through fromHidden:
	// Megatron's copy to, and reduce from, a tensor-parallel region. nil: nothing.
	toHidden, fromHidden tensor.Function
	adapted              bool // the router had an adapter, which then has gradients of the tokens of all ranks of Hidden
}

// Parallelize has ranks share the experts of layers: expert parallelism (Lepikhin et al. 2020, "GShard"). Each rank keeps a part of the
// experts, in their order; their number has to divide by that of the ranks. Call it before values are made: before nn.Init, ddp.Attach
// and the Attach of package fsdp. All ranks call it alike.
func Parallelize(r Ranks, layers ...*Layer) error {
	if err := rebuild.Refuse("moe"); err != nil {
		return err
	}
	switch {
	case r.Tokens == nil:
		return fmt.Errorf("moe: Ranks.Tokens is nil: it must be the group of the ranks with other tokens")
	case r.Positions != nil && r.Positions.Axes()&^r.Tokens.Axes() != 0:
		return fmt.Errorf("moe: ranks of Positions (%s) are not among those of Tokens (%s), but they have other tokens",
			r.Positions.Name(), r.Tokens.Name())
	case r.Experts != nil && r.Experts.Axes()&^r.Tokens.Axes() != 0:
		return fmt.Errorf("moe: ranks of Experts (%s) are not among those of Tokens (%s), but they have other tokens",
			r.Experts.Name(), r.Tokens.Name())
	case (r.Gather == nil) != (r.Scatter == nil) || r.Gather != nil && r.Hidden == nil:
		return fmt.Errorf("moe: Ranks.Gather and Ranks.Scatter must both be set, together with Ranks.Hidden, or neither")
	case r.Hidden != nil && r.Hidden.Axes()&r.Tokens.Axes() != 0:
		return fmt.Errorf("moe: ranks of Hidden (%s) are among those of Tokens (%s), but they have the same tokens",
			r.Hidden.Name(), r.Tokens.Name())
	}
	return tensor.Try(func() {
		for _, l := range layers {
			l.divide(r)
		}
	})
}

// divide leaves this rank its part of the experts.
func (l *Layer) divide(r Ranks) {
	if l.ranks.Tokens != nil {
		fail("Parallelize", "%s is divided already", l.Experts.Up.Name())
	}
	p, e := &l.ranks, l.Experts
	p.Ranks, p.sumTokens = r, &tally{group: r.Tokens}
	if r.Positions != nil {
		p.sumPositions = &tally{group: r.Positions}
	}
	l.dispatcher = dispatch.New(dispatch.Config{
		Tokens: r.Tokens, Positions: r.Positions, Experts: r.Experts, Half: r.Half, Capacity: l.c.Capacity,
	})
	if g := r.Hidden; g != nil {
		p.toHidden, p.fromHidden = &autograd.Copy{Group: g}, &autograd.Sum{Group: g}
		if r.Gather != nil {
			p.toHidden, p.fromHidden = r.Gather, r.Scatter
			p.adapted = l.Router.Adapter != nil
			for _, x := range l.routed() { // each rank's gradient is that of its tokens
				x.Through(&autograd.Copy{Group: g})
			}
		}
		if s := l.Shared; s != nil {
			divideShared(s, g)
		}
	}
	if e.Gate != nil {
		place(e.Gate, r.Experts, 0, "experts")
		place(e.Gate, r.Hidden, 1, hidden)
	}
	place(e.Up, r.Experts, 0, "experts")
	place(e.Up, r.Hidden, 1, hidden)
	place(e.Down, r.Experts, 0, "experts")
	place(e.Down, r.Hidden, 2, hidden)
}

// divideShared leaves this rank its part of the shared expert's hidden features, and of its adapters'. What the ranks of g have whole of
// an adapter has the gradients of all of them.
func divideShared(s *nn.GatedMLP, g *dist.Group) {
	var down *tensor.Param // which Linears share that are one in files
	for _, l := range []*nn.Linear{s.Gate, s.Up} {
		place(l.W, g, 0, hidden)
		if a := l.Adapter; a != nil {
			place(a.Up, g, 0, hidden)
			if a.Down != down {
				down = a.Down
				down.Through(&autograd.Copy{Group: g})
			}
		}
	}
	place(s.Down.W, g, 1, hidden)
	if a := s.Down.Adapter; a != nil {
		place(a.Down, g, 1, hidden)
		a.Up.Through(&autograd.Copy{Group: g})
	}
}

const hidden = "hidden features"

// place leaves the ranks of g an equal part each of a dimension of x, which has so many of what.
func place(x *tensor.Param, g *dist.Group, dim int, what string) {
	if g == nil {
		return
	}
	if all, n := x.Global()[dim], g.Size(); all%n != 0 {
		fail("Parallelize", "%d %s do not divide over %d ranks: the number of ranks has to divide %d", all, what, n, all)
	}
	x.Place(g.Axis(), layout.Division{Dim: dim})
}

// Over returns what ddp.Config.Over wants where the ranks of same have the same experts, and other tokens: mesh.Group("dp"). Experts
// have gradients of the tokens of all ranks that share them, and are summed over these; other parameters over all ranks.
func Over(same *dist.Group, layers ...*Layer) func(*tensor.Param) *dist.Group {
	return func(p *tensor.Param) *dist.Group {
		for _, l := range layers {
			if e := l.Experts; p == e.Gate || p == e.Up || p == e.Down {
				return same
			}
		}
		return nil
	}
}

// routed returns the parameters of which logits are made.
func (l *Layer) routed() nn.Params {
	if a := l.Router.Adapter; a != nil {
		return nn.Params{l.Router.W, a.Down, a.Up}
	}
	return nn.Params{l.Router.W}
}

// agree compares which experts the ranks of Hidden chose, in the first of every 1000 calls that train: with other values of a router, which
// should be the same, they would add up parts of different experts.
func (l *Layer) agree(experts nn.T) {
	g, t := l.ranks.Hidden, experts.Tape()
	if g == nil || g.Size() == 1 || !t.Training() || t.Recording() != nil {
		return
	}
	if l.calls++; l.calls%1000 != 1 {
		return
	}
	table := crc64.MakeTable(crc64.ECMA)
	seen := crc64.Checksum(tensor.ToHost(experts).Bytes(), table)
	if l.ranks.Gather != nil { // then each rank chose for its tokens
		for _, x := range l.routed() {
			seen = crc64.Update(seen, table, tensor.ToHost(x.Value).Bytes())
		}
	}
	all, err := dist.AllGatherObject(g, seen)
	if err != nil {
		panic(&tensor.Failure{Op: "moe.Layer", Err: err})
	}
	for rank, sum := range all {
		if sum != all[0] {
			fail("Layer", "ranks that share hidden features chose different experts for the same tokens: rank %d of %s others than rank 0; "+
				"their tokens, or values of %s, differ",
				rank, g.Name(), l.Router.W.Name())
		}
	}
}

// gathered returns what the ranks of Hidden chose for all their tokens.
func (l *Layer) gathered(experts nn.T) nn.T {
	return experts.Tape().Once(func() nn.T { return through(l.ranks.Gather, experts) })
}

// through returns f of x, and x where there is no f.
func through(f tensor.Function, x nn.T) nn.T {
	if f == nil {
		return x
	}
	return x.Tape().Apply(f, x)
}

package cp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Unified returns a Ring that divides sequences over the ranks of two groups, such as mesh.Group("ring") and mesh.Group("cp") of
// "dp=2,ring=2,cp=4" (Fang and Zhao 2024, "USP"). The ranks of ulysses exchange positions for heads, as in Ulysses, and the ring sends
// keys and values of these heads alone. Let those ranks be on one host: then only the ring's messages, which are hidden behind products,
// go between hosts. The ring divides each sequence, and the ranks of ulysses what one of its ranks would have. The number of ranks of
// ulysses must divide the heads of keys and values. Use it as a Ring: as nn.Core's Mix, after rotary positions.
func Unified(ring, ulysses *dist.Group, headDim int) *Ring {
	return &Ring{Group: ring, HeadDim: headDim, heads: &unified{newSwap(ulysses, 2, 1), newSwap(ulysses, 1, 2)}}
}

// unified are the exchanges of Unified: for heads, and back.
type unified struct{ there, back *swap }

// exchange returns x with all positions that one rank of the ring has, for some of its heads, or back. On a step with whole sequences there
// is nothing to do.
func (p *circle) exchange(x tensor.Tensor, back bool) tensor.Tensor {
	if p.heads == nil || p.seqTotal() == 0 || p.heads.there.Group.Size() == 1 {
		return x
	}
	s := p.heads.there
	if back {
		s = p.heads.back
	}
	s.divide(p.runsOf(0).size())
	return p.c.Tape().Apply(&s.AllToAll, x)
}

// groups are those that divide sequences.
func (f *Ring) groups() []*dist.Group {
	if f.heads == nil {
		return []*dist.Group{f.Group}
	}
	return []*dist.Group{f.Group, f.heads.there.Group}
}

// place returns this rank's number among the ranks that divide a sequence, and how many these are.
func (f *Ring) place() (rank, ranks int) {
	for _, g := range f.groups() {
		rank, ranks = rank*g.Size()+g.Rank(), max(ranks, 1)*g.Size()
	}
	return rank, ranks
}

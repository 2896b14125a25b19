package ckpt

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// extent is a range of the elements of a box that the same ranks hold, in the order that the tensor has in memory. One of these
// ranks writes it. So copies share the work, whoever makes them: replicas, copies of shards, what tensor parallelism replicates, a
// weight that two stages of a pipeline have.
type extent struct {
	part
	rank   int  // that writes it
	shared bool // several ranks hold it, and should have the same bits
}

// boxClaims are the claims on elements of one box.
type boxClaims struct {
	box    tensor.Box
	claims []boxClaim
}

type boxClaim struct{ rank, lo, hi int }

// extents cuts the claims where they begin and end, says who writes what, and makes sure that nothing is missing. Of those who hold an
// extent, the one that has the least to write so far writes it: load is the bits that each rank writes.
func (o *owned) extents(load []int64) (list []extent, err error) {
	boxes, whole, err := o.byBox()
	if err != nil {
		return nil, err
	}
	if product(o.Shape) == 0 {
		return []extent{{part: whole, rank: o.ranks[0]}}, nil
	}
	var parts []part
	for _, b := range boxes {
		var cuts []int
		for _, c := range b.claims {
			cuts = append(cuts, c.lo, c.hi)
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		for i, lo := range cuts[:len(cuts)-1] {
			x := extent{part: part{whole.shape, []tensor.Box{b.box}, lo, cuts[i+1]}, rank: -1}
			b.assign(&x, load)
			if x.rank >= 0 {
				load[x.rank] += int64(x.len()) * int64(o.DType.Bits())
				list, parts = append(list, x), append(parts, x.part)
			}
		}
	}
	return list, tile(whole.shape, parts)
}

// assign finds who writes x; nobody does if nobody has it.
func (b *boxClaims) assign(x *extent, load []int64) {
	for _, c := range b.claims {
		if c.lo > x.lo || c.hi < x.hi {
			continue
		}
		x.shared = x.rank >= 0
		if x.rank < 0 || load[c.rank] < load[x.rank] {
			x.rank = c.rank
		}
	}
}

// byBox collects the claims on each box. It also returns all of the tensor, as it is in memory.
func (o *owned) byBox() (list []*boxClaims, whole part, err error) {
	all := o.claimItem
	all.Boxes, all.Flat = nil, [2]int{}
	if whole, err = all.part(); err != nil {
		return nil, whole, err
	}
	for i, x := range o.parts {
		if x.empty() {
			continue
		}
		p, err := x.part()
		if err != nil {
			return nil, whole, err
		}
		for _, s := range p.segments() {
			k := slices.IndexFunc(list, func(b *boxClaims) bool { return sameBox(b.box, s.box) })
			if k < 0 {
				k, list = len(list), append(list, &boxClaims{box: s.box})
			}
			mine := boxClaim{o.ranks[i], s.lo, s.hi}
			if slices.ContainsFunc(list[k].claims, func(c boxClaim) bool { return c.rank == mine.rank && c.lo < mine.hi && mine.lo < c.hi }) {
				return nil, whole, fmt.Errorf("rank %d lists elements of it twice", mine.rank)
			}
			list[k].claims = append(list[k].claims, mine)
		}
	}
	return list, whole, nil
}

// piece is the extent as the file has it.
func (x extent) piece(transposed bool) piece {
	p := x.part
	if transposed {
		p = p.transposed()
	}
	if p.whole() {
		return piece{Rank: x.rank}
	}
	return piece{Rank: x.rank, Boxes: p.boxes, Flat: [2]int{p.lo, p.hi}}
}

package ckpt

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/tensor"
)

// extent is a range of the elements of a box, in the order in memory, that the same ranks hold. One of them writes it.
// So all kinds of copies share the work: replicas, copies of shards, what tensor parallelism replicates, a weight that
// two pipeline stages have.
type extent struct {
	shard.Part
	rank    int // the rank that writes it
	holders []holder
}

// holder is a rank that holds an extent, and where: the index of the item in its local plan, and the first element in
// that item.
type holder struct{ rank, index, at int }

// boxHeld is a box and the ranges of its elements that ranks hold.
type boxHeld struct {
	box   tensor.Box
	parts []heldRange
}

type heldRange struct {
	holder
	lo, hi int
}

// extents cuts a tensor into extents, chooses the rank that writes each one, and returns an error if elements are
// missing. Of the holders of an extent, the one with the least to write so far writes it. load has the bits that each
// rank writes.
func (o *owned) extents(boxes []*boxHeld, whole shard.Part, load []int64) (list []extent, err error) {
	if shard.Product(o.Shape) == 0 {
		first := holder{rank: o.parts[0].rank, index: o.parts[0].index}
		return []extent{{whole, first.rank, []holder{first}}}, nil
	}
	var parts []shard.Part
	for _, b := range boxes {
		for _, x := range b.cut(whole.Shape) {
			x.rank = x.holders[0].rank
			for _, h := range x.holders {
				if load[h.rank] < load[x.rank] {
					x.rank = h.rank
				}
			}
			load[x.rank] += int64(x.Len()) * int64(o.DType.Bits())
			list, parts = append(list, x), append(parts, x.Part)
		}
	}
	return list, shard.Tile(whole.Shape, parts)
}

// cut returns the extents of a box with their holders, in the order of the elements.
func (b *boxHeld) cut(shape []int) (list []extent) {
	var ends []int
	for _, c := range b.parts {
		ends = append(ends, c.lo, c.hi)
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	parts := slices.Clone(b.parts)
	slices.SortStableFunc(parts, func(x, y heldRange) int { return cmp.Compare(x.lo, y.lo) })
	var now []heldRange // ranges that contain element lo
	for i, lo := range ends[:len(ends)-1] {
		now = slices.DeleteFunc(now, func(c heldRange) bool { return c.hi <= lo })
		for len(parts) > 0 && parts[0].lo == lo {
			now, parts = append(now, parts[0]), parts[1:]
		}
		if len(now) == 0 {
			continue
		}
		x := extent{Part: shard.Part{Shape: shape, Boxes: []tensor.Box{b.box}, Lo: lo, Hi: ends[i+1]}}
		for _, c := range now {
			x.holders = append(x.holders, holder{c.rank, c.index, c.at + lo - c.lo})
		}
		list = append(list, x)
	}
	return list
}

// byBox returns which ranges of each box the ranks hold. It also returns the whole tensor as a part, as it is in
// memory.
func (o *owned) byBox() (list []*boxHeld, whole shard.Part, err error) {
	all := o.writeItem
	all.Boxes, all.Flat = nil, [2]int{}
	if whole, err = all.inMemory(); err != nil {
		return nil, whole, err
	}
	for _, x := range o.parts {
		if x.empty() {
			continue
		}
		p, err := x.inMemory()
		if err != nil {
			return nil, whole, err
		}
		for _, s := range p.ByBox() {
			k := slices.IndexFunc(list, func(b *boxHeld) bool { return b.box.Equal(s.Box) })
			if k < 0 {
				k, list = len(list), append(list, &boxHeld{box: s.Box})
			}
			b := list[k]
			for i := len(b.parts) - 1; i >= 0 && b.parts[i].rank == x.rank; i-- {
				if b.parts[i].lo < s.Hi && s.Lo < b.parts[i].hi {
					return nil, whole, fmt.Errorf("rank %d lists elements of it twice", x.rank)
				}
			}
			b.parts = append(b.parts, heldRange{holder{x.rank, x.index, s.At}, s.Lo, s.Hi})
		}
	}
	return list, whole, nil
}

// piece returns the extent as a piece of the tensor in the file.
func (x extent) piece(transposed bool) storage.PieceEntry {
	p := x.Part
	if transposed {
		p = p.Transposed()
	}
	if p.Whole() {
		return storage.PieceEntry{Rank: x.rank}
	}
	return storage.PieceEntry{Rank: x.rank, Boxes: p.Boxes, Flat: [2]int{p.Lo, p.Hi}}
}

package tensor

import (
	"fmt"
	"iter"
	"slices"
)

// Box is a rectangular part of a tensor: elements [Lo[i], Hi[i]) of each dimension.
type Box struct{ Lo, Hi []int }

// Len returns the number of elements.
func (b Box) Len() int {
	n := 1
	for i := range b.Lo {
		n *= b.Hi[i] - b.Lo[i]
	}
	return n
}

// within returns an error unless b lies in a tensor of the given shape.
func (b Box) within(dims []int) error {
	ok := len(b.Lo) == len(dims) && len(b.Hi) == len(dims)
	for i := 0; ok && i < len(dims); i++ {
		ok = 0 <= b.Lo[i] && b.Lo[i] <= b.Hi[i] && b.Hi[i] <= dims[i]
	}
	if !ok {
		return fmt.Errorf("the box from %v to %v is not in shape %v", b.Lo, b.Hi, dims)
	}
	return nil
}

func (b Box) overlaps(c Box) bool {
	for i := range b.Lo {
		if b.Hi[i] <= c.Lo[i] || c.Hi[i] <= b.Lo[i] {
			return false
		}
	}
	return b.Len() > 0 && c.Len() > 0
}

// Shard says which part of a parameter this rank holds: boxes of the model's tensor (Param.Cut: tensor and expert parallelism), then a flat
// range of these (sharded data parallelism). The zero Shard is the whole, on every rank.
type Shard struct {
	Global []int  // shape of the model's tensor
	Boxes  []Box  // empty: all of it
	Flat   [2]int // elements of the boxes, in order; {0,0}: all of them
	Unit   int    // elements along the cut that must stay together, such as those of a head; 0: 1
	Counts bool   // this rank counts these elements in norms, and no other rank that holds them; see NarrowCounts
}

// Cut makes p, which has no value yet, this rank's part of the model's tensor: the elements of boxes, one box after another, as a tensor of
// shape dims. From then on, Dims and Len are those of the part, and Global is the model's shape. Make and Fill give the part the bits that
// these elements have in the whole. Rows 4 to 8 of a matrix are one box; a fused matrix of queries, keys and values is cut into three. It
// is a Failure if boxes are outside the tensor, overlap, or do not fill dims, if p is Cut already, or if it has values or an owner.
func (p *Param) Cut(dims []int, boxes ...Box) {
	if err := p.cutError(dims, boxes); err != nil {
		fail("Cut "+p.name, nil, "%v to %v: %w", p.Global(), dims, err)
	}
	p.NarrowCounts(true)
	for _, b := range boxes {
		p.Shard.Boxes = append(p.Shard.Boxes, Box{slices.Clone(b.Lo), slices.Clone(b.Hi)})
	}
	p.dims = slices.Clone(dims)
}

func (p *Param) cutError(dims []int, boxes []Box) error {
	switch {
	case !p.Value.IsZero():
		return fmt.Errorf("it has a value already: cut it before nn.Init or Attach")
	case p.owner != nil:
		return fmt.Errorf("its gradient belongs to %s already", ownerName(p.owner))
	case len(p.Shard.Boxes) > 0:
		return fmt.Errorf("it is cut already, into %v", p.Shard.Boxes)
	case len(boxes) == 0:
		return fmt.Errorf("no boxes")
	}
	n := 0
	for i, b := range boxes {
		if err := b.within(p.dims); err != nil {
			return err
		}
		for _, c := range boxes[:i] {
			if b.overlaps(c) {
				return fmt.Errorf("the boxes %v and %v overlap", c, b)
			}
		}
		n += b.Len()
	}
	if n != product(dims) || slices.ContainsFunc(dims, func(d int) bool { return d < 0 }) {
		return fmt.Errorf("the boxes have %d elements, the part %d", n, product(dims))
	}
	return nil
}

// Global returns the shape of the model's tensor, also if p is cut.
func (p *Param) Global() []int {
	if p.Shard.Global != nil {
		return p.Shard.Global
	}
	return p.dims
}

// GlobalLen returns the number of elements of the model's tensor.
func (p *Param) GlobalLen() int { return product(p.Global()) }

// NarrowCounts says whether this rank counts p in norms, of all ranks in a group that hold the same elements. Each package that makes
// copies calls it for its group (ddp: rank 0 of the ranks that hold p). An earlier false stays false. So over all ranks of the job, each
// element counts once.
func (p *Param) NarrowCounts(mine bool) {
	if p.Shard.Global == nil {
		p.Shard.Global, p.Shard.Counts = slices.Clone(p.dims), true
	}
	p.Shard.Counts = p.Shard.Counts && mine
}

// Runs yields the places of elements lo to hi of this rank's boxes in the model's tensor, as runs of adjacent elements: the index of the
// first one, and their number.
func (p *Param) Runs(lo, hi int) iter.Seq2[int, int] {
	return func(yield func(first, n int) bool) {
		if len(p.Shard.Boxes) == 0 {
			if lo < hi {
				yield(lo, hi-lo)
			}
			return
		}
		for _, b := range p.Shard.Boxes {
			n := b.Len()
			if lo < n && hi > 0 && !b.runs(p.Shard.Global, max(lo, 0), min(hi, n), yield) {
				return
			}
			lo, hi = lo-n, hi-n
		}
	}
}

// runs yields the runs of elements lo to hi of b, and reports whether to go on.
func (b Box) runs(global []int, lo, hi int, yield func(first, n int) bool) bool {
	d, inner := len(global), 1 // dimensions from d on are whole
	for d > 0 && b.Lo[d-1] == 0 && b.Hi[d-1] == global[d-1] {
		d--
		inner *= global[d]
	}
	run := inner
	if d > 0 {
		d--
		run *= b.Hi[d] - b.Lo[d]
	}
	for lo < hi {
		row, skip := lo/run, lo%run
		n := min(run-skip, hi-lo)
		if !yield(b.at(global, row, d, inner)+skip, n) {
			return false
		}
		lo += n
	}
	return true
}

// at returns the index in the whole of the first element of a row of b. A row is a run of adjacent elements; b has one for each index of
// the dimensions before d. inner is the number of elements of the dimensions after d.
func (b Box) at(global []int, row, d, inner int) int {
	if len(global) == 0 {
		return 0
	}
	at, step := b.Lo[d]*inner, inner*global[d]
	for i := d - 1; i >= 0; i-- {
		n := b.Hi[i] - b.Lo[i]
		at += (b.Lo[i] + row%n) * step
		row /= n
		step *= global[i]
	}
	return at
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

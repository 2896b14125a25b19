package tensor

import (
	"fmt"
	"iter"
	"slices"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// Box is a rectangular part of a tensor: elements [Lo[i], Hi[i]) of each dimension.
type Box = layout.Box

// Place leaves the ranks of an axis a part each of p, which has no value yet. From then on, Dims and Len are those of this rank's part, and
// Global is the model's shape. Make and Fill give the part the bits that these elements have in the whole. Rows 4 to 8 of a matrix are a
// part; of a fused matrix of queries, keys and values it is a share of each (layout.Division). It is a Failure if the axis cannot divide p
// so, or divides it or sums its gradient already, or if p has values or an owner.
func (p *Param) Place(axis layout.Axis, d layout.Division) {
	q, err := p.place.Place(axis, d)
	switch {
	case err != nil:
	case !p.Value.IsZero():
		err = fmt.Errorf("it has a value already: place it before nn.Init or Attach")
	case p.owner != nil:
		err = fmt.Errorf("its gradient belongs to %s already", ownerName(p.owner))
	}
	if err != nil {
		fail("Place "+p.name, nil, "%v: %w", p.Global(), err)
	}
	p.axesFree("Place", axis.Axes&p.place.Summed(), Cut, "its gradient is summed over this axis, on whose ranks it is now cut")
	p.axesFree("Place", axis.Axes&p.place.Divided(), Cut, "it is cut over this axis already")
	p.put(q)
}

// SumOver says that the caller, the owner of the gradient, sums it over the ranks along axes. Along all other axes that do not divide a
// parameter it is Invariant: its values are the same, and its gradient is the same without communication. It panics with a *Failure if p is
// cut over one of them, or summed already: the gradient would be wrong.
func (p *Param) SumOver(axes Axes) {
	p.axesFree("SumOver", axes&p.place.Divided(), Replicated,
		"it is cut over this axis: its gradient is this rank's alone and must not be summed over it")
	p.axesFree("SumOver", axes&p.place.Summed(), Replicated, "its gradient is summed over this axis already")
	p.put(p.place.SumOver(axes))
}

// put sets the placement, and what each Use needs of it.
func (p *Param) put(q layout.Placement) {
	var dims uint8 // of which this rank has a part
	for _, d := range q.Divisions() {
		dims |= 1 << d.Dim
	}
	cut, summed := q.Divided(), q.Summed()
	p.place, p.n, p.ty, p.at = q, product(q.Dims()), layout.TypesOf(^summed, ^(summed|cut), cut), place{}.WithCut(dims)
}

func (p *Param) axesFree(op string, taken Axes, k Kind, text string) {
	if taken != 0 {
		a := taken.First()
		e := &typing.Error{Axis: a, Clash: typing.ClashLay, Have: p.ty.At(a), Want: k, Text: fmt.Sprintf("%v: %s", p, text)}
		failWith(op, nil, e)
	}
}

// Shard says that Local has elements lo to hi-1 of this rank's part. Sharded data parallelism calls it.
func (p *Param) Shard(lo, hi int) { p.place = p.place.Shard(lo, hi) }

// Placement returns how p is divided over ranks, and what this rank has of it.
func (p *Param) Placement() layout.Placement { return p.place }

// IsCut reports whether other ranks have other parts of p. It says nothing of sharded data parallelism, which gathers them.
func (p *Param) IsCut() bool { return p.ty.On(Cut) != 0 }

// partOf says what a gradient is a part of. What the host makes of it then differs from one rank.
type partOf uint8

const (
	ofNothing  partOf = iota
	ofSum             // other ranks have other terms, until the last microbatch
	ofElements        // other ranks have other elements, along an axis or by Shard: each element counts alone
)

// markPart says of p's gradient what it is a part of.
func (p *Param) markPart() {
	h := p.Grad.hdr()
	switch {
	case h.part == ofElements || p.IsCut() || p.Local.Len() != p.Len():
		h.part = ofElements
	case p.state == gradPartial && p.owner != nil && p.place.Summed() != 0:
		h.part = ofSum
	default:
		h.part = ofNothing
	}
}

func (h *header) mustNotBePart(op string) {
	switch h.part {
	case ofSum:
		fail(op, these(h), "a gradient of this rank's rows alone: the ranks add up behind the last microbatch (the Backward without More). "+
			"Read and change it after that; Grad.ToLocal() is this rank's part")
	case ofElements:
		fail(op, these(h), "a gradient's elements on this rank alone: their norm or mean is not that of one rank. Write Grad.ToLocal() for what "+
			"is right for each element; add sums up with SumFloats of what the optimizer has as its Norm; its Clip clips")
	}
}

// ToLocal returns x, or, if x is the gradient of a parameter that ranks divide, or have not added up yet, this rank's part of it for the
// host to read and write, as PyTorch's DTensor.to_local. Without it, the part is refused: what is computed of it is not what one rank has.
func (x Tensor) ToLocal() Tensor {
	h := x.hdr()
	if h.part == ofNothing {
		return x
	}
	return Tensor{&header{dtype: h.dtype, st: h.st, off: h.off, n: h.n, ndim: h.ndim, dims: h.dims, ld: h.ld}, 0}
}

// Dims returns the shape of this rank's part, which is the whole unless Place was called. Global returns the model's.
func (p *Param) Dims() []int { return p.place.Dims() }

// Len returns the number of elements of this rank's part. With fsdp, Local is a part of these.
func (p *Param) Len() int { return p.n }

// Global returns the shape of the model's tensor, also if p is cut.
func (p *Param) Global() []int { return p.place.Global() }

// AsWhole calls f while p has the shape of the model's tensor, as on one rank: Value and Local without memory, if this rank has a part.
func (p *Param) AsWhole(f func()) {
	value, local, at := p.Value, p.Local, p.place
	if l := local.hdr(); slices.Equal(l.dims[:l.ndim], at.Global()) {
		f()
		return
	}
	defer func() {
		p.Value, p.Local = value, local
		p.put(at)
	}()
	h := &header{dtype: local.DType(), st: &storage{dev: local.Device(), names: &names{whole: p.name}}}
	h.setDims(at.Global())
	p.Value, p.Local = Tensor{h, 0}, Tensor{h, 0}
	p.put(layout.Whole(at.Global()...))
	f()
}

// GlobalLen returns the number of elements of the model's tensor.
func (p *Param) GlobalLen() int { return product(p.Global()) }

// Runs yields the places of elements lo to hi of what divisions (Place) left this rank in the model's tensor, as runs of adjacent elements:
// the index of the first one, and their number. With package fsdp, this is more than Local has: Local's elements are those of
// Placement().Range().
func (p *Param) Runs(lo, hi int) iter.Seq2[int, int] { return p.place.Runs(lo, hi) }

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

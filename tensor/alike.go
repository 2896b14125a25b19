package tensor

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor/compare"
)

// alike is a number of the host that an operation got with what ranks along some axes have alike, and its gradient, too, such as ranks that
// divide layers: there, another number on one of them is a fault. Factors (factors.go) are for ranks with other rows.
type alike struct {
	compare.Number
	in     *header
	node   int  // the operation has this number, or a later one
	inside bool // a Checkpoint, which has this number
}

// maxAlike is how many of them are remembered. Those that do not reach the loss count, too, so it must be large enough for all.
const maxAlike = 4096

// noteAlike notes number i of an operation on x.
func (t *Tape) noteAlike(x *header, i int, v float64) {
	if axes := x.ty.On(Invariant); x.needs && axes != 0 && t.records() && len(t.alike) < maxAlike {
		t.alike = append(t.alike, alike{compare.Number{Axes: axes, Digest: digestOf(i, v)}, x, t.nn, !t.record})
	}
}

// digestOf returns a digest of number i. It has 16 bits of it: ranks may have computed it with other rounding.
func digestOf(i int, v float64) uint64 {
	return kernel.Key(uint64(i), uint64(math.Float32bits(float32(v))+1<<7)>>8)
}

// compareNumbers gives what ranks compare the numbers that outs depend on, and that of Backward's Scale. A rank may compute others, such as
// for its log.
func (t *Tape) compareNumbers(outs ...Tensor) {
	list := t.agreement.Numbers[:0]
	if t.noting() {
		if t.root != nil {
			list = append(list, compare.Number{Axes: t.root.ty.On(Invariant), Digest: digestOf(-1, t.scale)})
		}
		list = t.numbersOf(list, outs)
	}
	t.agreement.Numbers, t.alike = list, t.alike[:0]
	if r := t.Recording(); r != nil {
		kept := slices.Clone(list)
		r.tape(t)
		r.Host(func() { // other ranks may replay nothing
			if t.noting() {
				t.agreement.Numbers = append(t.agreement.Numbers[:0], kept...)
			}
		})
	}
}

// numbersOf adds those that outs depend on to list.
func (t *Tape) numbersOf(list []compare.Number, outs []Tensor) []compare.Number {
	if len(t.alike) > 0 {
		t.markLoss(outs)
	}
	for _, x := range t.alike {
		i := x.node
		for !x.inside && i < t.nn && !slices.Contains(t.node(i).in, x.in) {
			i++
		}
		if i == t.nn || !t.node(i).inLoss {
			continue
		}
		if !x.inside { // a Function may make of it what differs
			x.Axes &= t.node(i).out.ty.On(Invariant)
		}
		list = append(list, x.Number)
	}
	return list
}

// markLoss marks the nodes and headers that outs depend on.
func (t *Tape) markLoss(outs []Tensor) {
	for _, x := range outs {
		x.h.inLoss = true
	}
	for i := t.nn - 1; i >= 0; i-- {
		n := t.node(i)
		n.inLoss = n.seeds || n.out.inLoss || n.op == OpApply && slices.ContainsFunc(n.call.outs, func(h *header) bool { return h.inLoss })
		for k, h := range n.in {
			if h != nil && (n.inLoss || n.op == OpAux && k == 1) {
				h.inLoss = true
			}
		}
	}
}

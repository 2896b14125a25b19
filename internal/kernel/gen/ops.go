package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Each helper below emits the form of one instruction for the element type and
// the instruction set. Operands are in the order of Go's assembler: sources
// first, destination last.

// pick emits the first form for float32, the second for float64.
func (g *gen) pick(ps, pd func(...operand.Op), ops ...operand.Op) {
	if g.size == 4 {
		ps(ops...)
	} else {
		pd(ops...)
	}
}

func (g *gen) move(from, to operand.Op)          { g.pick(g.VMOVUPS, g.VMOVUPD, from, to) }
func (g *gen) moveMasked(from, k, to operand.Op) { g.pick(g.VMOVUPS, g.VMOVUPD, from, k, to) }

// moveZeroed reads the elements inside the mask, and sets the others to zero.
func (g *gen) moveZeroed(from, k, to operand.Op) {
	if g.size == 4 {
		g.VMOVUPS_Z(from, k, to)
	} else {
		g.VMOVUPD_Z(from, k, to)
	}
}

func (g *gen) broadcast(m, to operand.Op) { g.pick(g.VBROADCASTSS, g.VBROADCASTSD, m, to) }
func (g *gen) mul(a, b, to operand.Op)    { g.pick(g.VMULPS, g.VMULPD, a, b, to) }

// addProduct: acc += a*b, rounded once (twice for pairs).
func (g *gen) addProduct(a, b, acc operand.Op) {
	if g.pairs {
		g.encode(dotBF16(a, b, acc)...)
		return
	}
	g.pick(g.VFMADD231PS, g.VFMADD231PD, a, b, acc)
}

// scaleAdd: acc = alpha*acc + m, rounded once. With a mask (AVX-512), nothing
// outside of it is read.
func (g *gen) scaleAdd(m, alpha operand.Op, mask reg.Register, acc operand.Op) {
	switch {
	case mask == nil:
		g.pick(g.VFMADD213PS, g.VFMADD213PD, m, alpha, acc)
	case g.size == 4:
		g.VFMADD213PS_Z(m, alpha, mask, acc)
	default:
		g.VFMADD213PD_Z(m, alpha, mask, acc)
	}
}

func (g *gen) zero(v operand.Op) {
	if g.bytes == 64 {
		g.VPXORD(v, v, v)
	} else {
		g.VXORPS(v, v, v)
	}
}

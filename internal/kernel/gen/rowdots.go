package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rowDots emits the kernel for products of few rows of A. They take as long as
// reading B once, so nothing is packed, and rows are read one after the other,
// which is fastest. If half is set, B is bfloat16; then of each pair of vectors of
// a, the first has the even elements and the second the odd ones. Each dot product
// has four vectors of sums, so that additions need not wait for each other.
func (g *gen) rowDots(half bool) {
	const doc = "computes the dot products of a with rows of B, bs bytes apart, over so many turns of four vectors: sums has a vector for each row, whose lanes are to be added."
	if half {
		g.function("rowDotsBF16"+g.name, "rows, turns int, a *float32, b *uint16, bs int, sums *float32", doc)
	} else {
		g.begin("rowDots", "rows, turns int, a *T, b *T, bs int, sums *T", doc)
	}
	g.arg("rows", reg.R9)
	g.arg("a", reg.RSI)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.arg("sums", reg.RDI)
	width, odd := 4*g.bytes, g.vec(8)
	if half {
		width /= 2
		g.VPCMPEQD(odd, odd, odd)
		g.VPSLLD(operand.Imm(16), odd, odd)
	}
	g.Label("row")
	g.arg("turns", reg.RCX)
	g.MOVQ(reg.RSI, reg.RAX)
	g.MOVQ(reg.RBX, reg.RDX)
	for i := range 4 {
		g.zero(g.vec(i))
	}
	g.Label("loop")
	for i := range 4 {
		switch b := g.vec(4 + i); {
		case !half:
			g.move(mem(reg.RDX, i*g.bytes), b)
		case i%2 == 0:
			g.move(mem(reg.RDX, i/2*g.bytes), g.vec(5+i))
			g.VPSLLD(operand.Imm(16), g.vec(5+i), b)
		default:
			g.VANDPS(b, odd, b)
		}
		g.addProduct(mem(reg.RAX, i*g.bytes), g.vec(4+i), g.vec(i))
	}
	g.ADDQ(operand.Imm(uint64(4*g.bytes)), reg.RAX)
	g.ADDQ(operand.Imm(uint64(width)), reg.RDX)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	for _, i := range []int{0, 2} {
		g.pick(g.VADDPS, g.VADDPD, g.vec(i), g.vec(i+1), g.vec(i))
	}
	g.pick(g.VADDPS, g.VADDPD, g.vec(0), g.vec(2), g.vec(0))
	g.move(g.vec(0), mem(reg.RDI, 0))
	g.ADDQ(operand.Imm(uint64(g.bytes)), reg.RDI)
	g.ADDQ(reg.R8, reg.RBX)
	g.DECQ(reg.R9)
	g.JNZ(label("row"))
	g.end()
}

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dotRows is the number of rows of B in a call of rowDots.
const dotRows = 4

// rowDots emits the kernel for products of few rows of A, which take as long as it takes to read B once: nothing is packed. With
// half, B is of bfloat16. Each dot product has two vectors of sums, so that additions wait for each other less.
func (g *gen) rowDots(half bool) {
	const doc = "computes the dot products of a with 4 rows of B, bs bytes apart, over so many turns of two vectors: sums has a vector for each row, whose lanes are to be added."
	if half {
		g.function("rowDotsBF16"+g.name, "turns int, a *float32, b *uint16, bs int, sums *float32", doc)
	} else {
		g.begin("rowDots", "turns int, a *T, b *T, bs int, sums *T", doc)
	}
	g.arg("turns", reg.RCX)
	g.arg("a", reg.RSI)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.arg("sums", reg.RDI)
	g.LEAQ(operand.Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R9)
	width := g.bytes // of a vector of B
	if half {
		width /= 2
	}
	sum := func(row, half int) reg.Register { return g.vec(2*row + half) }
	a, b := []reg.Register{g.vec(2 * dotRows), g.vec(2*dotRows + 1)}, g.vec(2*dotRows+2)
	for r := range dotRows {
		g.zero(sum(r, 0))
		g.zero(sum(r, 1))
	}
	g.Label("loop")
	for i := range a {
		g.move(mem(reg.RSI, i*g.bytes), a[i])
	}
	for r := range dotRows {
		for i := range a {
			from := rowOf(reg.RBX, reg.R8, reg.R9, r)
			from.Disp += i * width
			if half {
				g.VPMOVZXWD(from, b)
				g.VPSLLD(operand.Imm(16), b, b)
				g.addProduct(b, a[i], sum(r, i))
			} else {
				g.addProduct(from, a[i], sum(r, i))
			}
		}
	}
	g.ADDQ(operand.Imm(uint64(2*g.bytes)), reg.RSI)
	g.ADDQ(operand.Imm(uint64(2*width)), reg.RBX)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	for r := range dotRows {
		g.pick(g.VADDPS, g.VADDPD, sum(r, 0), sum(r, 1), sum(r, 0))
		g.move(sum(r, 0), mem(reg.RDI, r*g.bytes))
	}
	g.end()
}

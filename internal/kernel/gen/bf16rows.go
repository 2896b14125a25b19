package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	// fewRows is the largest number of rows of A for which B is not packed.
	fewRows = 4
	// pairChains is the number of vectors of sums of a dot product, so that a
	// multiply-add need not wait for the one before.
	pairChains = 4
	// pairTurn is the number of elements in a turn.
	pairTurn = pairChains * 32
	// pairSums is the number of sums in a row.
	pairSums = 64
)

// pairDots emits the kernel for h rows of A and a B that is stored transposed. It
// takes as long as reading B once, so nothing is packed, and rows of B are read one
// after the other, which is fastest. Registers: up to 16 vectors of sums, then
// those of B, and of A.
func (g *gen) pairDots(h int) {
	g.begin(fmt.Sprintf("rowDots%d", h), "rows, k int, a *uint16, as int, b *uint16, bs int, sums *float32",
		fmt.Sprintf("computes the dot products of %d rows of A with rows of B, of k elements: as and bs are the bytes between rows. Of each, pair p is added to sum p modulo %d, also the pairs of zeros that fill a turn, and the sums are added as a tree. Row i of sums is for row i of A; rows have %d elements.", h, pairTurn/2, pairSums))
	g.arg("rows", reg.R13)
	g.arg("a", reg.RSI)
	g.arg("as", reg.RAX)
	g.LEAQ(operand.Mem{Base: reg.RAX, Index: reg.RAX, Scale: 2}, reg.R9)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.arg("sums", reg.RDI)
	g.turnMasks()
	g.Label("row")
	g.MOVQ(reg.RSI, reg.R10)
	g.MOVQ(reg.RBX, reg.RDX)
	for i := range pairChains * h {
		g.zero(g.vec(i))
	}
	g.arg("k", reg.RCX)
	g.SHRQ(operand.Imm(uint64(bits.Len(pairTurn-1))), reg.RCX)
	g.JZ(label("rest"))
	g.Label("loop")
	g.pairTurn(h, func(m operand.Op, _ int, v operand.Op) { g.move(m, v) })
	g.ADDQ(operand.I32(2*pairTurn), reg.R10)
	g.ADDQ(operand.I32(2*pairTurn), reg.RDX)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.Label("rest")
	g.TESTQ(reg.R12, reg.R12)
	g.JZ(label("sum"))
	g.pairTurn(h, func(m operand.Op, c int, v operand.Op) { g.VMOVDQU16_Z(m, maskRegs[c], v) })
	g.Label("sum")
	for i := range h {
		g.VMOVSS(g.treeOf(pairChains*i), mem(reg.RDI, 4*pairSums*i))
	}
	g.ADDQ(operand.Imm(4), reg.RDI)
	g.ADDQ(reg.R8, reg.RBX)
	g.DECQ(reg.R13)
	g.JNZ(label("row"))
	g.end()
}

// turnMasks makes the masks for the elements that do not fill a turn; R12 is their
// number.
func (g *gen) turnMasks() {
	g.arg("k", reg.R12)
	g.ANDQ(operand.Imm(pairTurn-1), reg.R12)
	g.MOVQ(operand.I32(-1), reg.R10)
	g.XORQ(reg.R11, reg.R11)
	g.MOVQ(reg.R12, reg.RCX)
	for c := 0; c < pairChains; c += 2 { // two masks for 64 elements
		g.BZHIQ(reg.RCX, reg.R10, reg.RDX)
		g.KMOVD(reg.EDX, maskRegs[c])
		g.SHRQ(operand.Imm(32), reg.RDX)
		g.KMOVD(reg.EDX, maskRegs[c+1])
		g.SUBQ(operand.Imm(64), reg.RCX)
		g.CMOVQLT(reg.R11, reg.RCX)
	}
}

// pairTurn adds the products of a turn; load reads vector c of it.
func (g *gen) pairTurn(h int, load func(m operand.Op, c int, v operand.Op)) {
	const b, a = 16, 20
	for c := range pairChains {
		load(mem(reg.RDX, g.bytes*c), c, g.vec(b+c))
		for i := range h {
			m := stepsAhead(reg.R10, reg.RAX, reg.R9, i)
			m.Disp = g.bytes * c
			load(m, c, g.vec(a+i))
			g.addProduct(g.vec(b+c), g.vec(a+i), g.vec(pairChains*i+c))
		}
	}
}

// treeOf adds the lanes of four vectors from v on, and returns the register with the sum.
func (g *gen) treeOf(v int) reg.Register {
	sum, t := g.vec(v), g.vec(20)
	g.VADDPS(g.vec(v+2), sum, sum)
	g.VADDPS(g.vec(v+3), g.vec(v+1), t)
	g.VADDPS(t, sum, sum)
	for _, swap := range []uint64{0x4e, 0xb1} {
		g.VSHUFF32X4(operand.Imm(swap), sum, sum, t)
		g.VADDPS(t, sum, sum)
	}
	for _, swap := range []uint64{0x4e, 0xb1} {
		g.VPERMILPS(operand.Imm(swap), sum, t)
		g.VADDPS(t, sum, sum)
	}
	return []reg.Register{reg.X0, reg.X4, reg.X8, reg.X12}[v/pairChains]
}

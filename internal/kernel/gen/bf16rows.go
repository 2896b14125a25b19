package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	// fewRows is the largest number of rows of A for which B is read where it lies.
	fewRows = 4
	// side is the number of columns that are computed at once, a vector, and of pairs of a row that fill one. More columns would not leave
	// the next ones, which are asked for meanwhile, in the first cache: at 768 elements two times 24 KiB.
	side = 16
)

// inPlace emits the kernel for few rows of A and a B that is stored transposed: as it takes as long as reading B once, nothing is packed.
// Squares of 16 rows of B by 16 pairs are transposed in registers, so that every sum is one chain in the order of k, with the bits of the
// other micro-kernels. Registers: 1 to 4 are the sums, 10 to 25 are 16 rows of B, then come four to exchange them, and two for A.
func (g *gen) inPlace(h int) {
	g.begin(fmt.Sprintf("inPlace%dx%d", h, side), "k int, a *float32, b *uint16, bs int, ahead int, c *float32, cs int, from *float32, fs int, alpha float32",
		fmt.Sprintf("computes C[0:%d, 0:%d] = alpha*A*B over k > 0 elements, plus the matrix from unless that is nil. A is packed as pairs. The elements of a column of B lie side by side; bs is the bytes between columns. The memory from ahead bytes behind b on is asked for, as much as is read. cs and fs are the bytes between rows of C and from.", h, side))
	g.arg("k", reg.RCX)
	g.arg("a", reg.RSI)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.arg("ahead", reg.R11)
	g.ADDQ(reg.RBX, reg.R11)
	g.LEAQ(operand.Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R9)
	for i := range h {
		g.zero(g.vec(1 + i))
	}
	g.SUBQ(operand.Imm(2*side), reg.RCX)
	g.JLT(label("tail"))
	g.Label("loop")
	g.turn(h, g.move, func(int) {})
	g.ADDQ(operand.Imm(4*side), reg.RBX)
	g.ADDQ(operand.I32(4*side*h), reg.RSI)
	g.ADDQ(operand.I32(4*side*side), reg.R11)
	g.SUBQ(operand.Imm(2*side), reg.RCX)
	g.JGE(label("loop"))
	g.Label("tail")
	g.ADDQ(operand.Imm(2*side), reg.RCX)
	g.JZ(label("end"))
	g.MOVQ(operand.I32(1), reg.RAX)
	g.SHLQ(reg.CL, reg.RAX)
	g.DECQ(reg.RAX)
	g.KMOVD(reg.EAX, reg.K1)
	g.INCQ(reg.RCX)
	g.SHRQ(operand.Imm(1), reg.RCX)
	g.turn(h, func(m, v operand.Op) { g.VMOVDQU16_Z(m, reg.K1, v) }, func(pairs int) {
		if pairs < side {
			g.CMPQ(reg.RCX, operand.Imm(uint64(pairs)))
			g.JE(label("end"))
		} else {
			g.Label("end")
		}
	})
	g.storeInPlace(h)
}

// turn adds the products of up to 16 pairs of each column: load reads a vector, and after is called between the products.
func (g *gen) turn(h int, load func(m, v operand.Op), after func(pairs int)) {
	rows := func(i int) reg.Register { return g.vec(10 + i) }
	g.MOVQ(reg.RBX, reg.R10)
	for q := 0; q < side; q += 4 {
		for i := range 4 {
			load(stepsAhead(reg.R10, reg.R8, reg.R9, i), rows(q+i))
		}
		if q+4 < side {
			g.LEAQ(operand.Mem{Base: reg.R10, Index: reg.R8, Scale: 4}, reg.R10)
		}
		g.exchange(rows(q), rows(q+1), rows(q+2), rows(q+3))
	}
	for j := range 4 {
		g.exchangeLanes(rows(j), rows(4+j), rows(8+j), rows(12+j))
	}
	for p := range side {
		for i := range h {
			a := g.vec(g.regs - 1 - i%2)
			g.broadcast(mem(reg.RSI, 4*(p*h+i)), a)
			g.addProduct(rows(p), a, g.vec(1+i))
		}
		g.PREFETCHT0(mem(reg.R11, 64*p))
		after(p + 1)
	}
}

// exchange transposes the squares of 4 by 4 words in the lanes of 128 bits of four registers.
func (g *gen) exchange(r0, r1, r2, r3 reg.Register) {
	t := []reg.Register{g.vec(26), g.vec(27), g.vec(28), g.vec(29)}
	g.VUNPCKLPS(r1, r0, t[0])
	g.VUNPCKHPS(r1, r0, t[1])
	g.VUNPCKLPS(r3, r2, t[2])
	g.VUNPCKHPS(r3, r2, t[3])
	g.VUNPCKLPD(t[2], t[0], r0)
	g.VUNPCKHPD(t[2], t[0], r1)
	g.VUNPCKLPD(t[3], t[1], r2)
	g.VUNPCKHPD(t[3], t[1], r3)
}

// exchangeLanes transposes the square of 4 by 4 lanes of four registers.
func (g *gen) exchangeLanes(r0, r1, r2, r3 reg.Register) {
	t := []reg.Register{g.vec(26), g.vec(27), g.vec(28), g.vec(29)}
	even, odd := operand.Imm(0x88), operand.Imm(0xdd)
	g.VSHUFF32X4(even, r1, r0, t[0])
	g.VSHUFF32X4(odd, r1, r0, t[1])
	g.VSHUFF32X4(even, r3, r2, t[2])
	g.VSHUFF32X4(odd, r3, r2, t[3])
	g.VSHUFF32X4(even, t[2], t[0], r0)
	g.VSHUFF32X4(even, t[3], t[1], r1)
	g.VSHUFF32X4(odd, t[2], t[0], r2)
	g.VSHUFF32X4(odd, t[3], t[1], r3)
}

// storeInPlace writes alpha times the sums to C, plus the rows of from.
func (g *gen) storeInPlace(h int) {
	alpha, masks := g.vec(g.regs-1), make([]reg.Register, 1)
	g.broadcast(g.slot("alpha"), alpha)
	g.arg("c", reg.RDI)
	g.arg("cs", reg.RDX)
	g.arg("from", reg.RSI)
	g.arg("fs", reg.R8)
	g.TESTQ(reg.RSI, reg.RSI)
	g.JZ(label("overwrite"))
	g.storeRows(h, 1, masks, func(i, _ int, acc reg.Register) {
		if i > 0 {
			g.ADDQ(reg.R8, reg.RSI)
		}
		g.scaleAdd(mem(reg.RSI, 0), alpha, nil, acc)
	})
	g.end()
	g.Label("overwrite")
	g.storeRows(h, 1, masks, func(_, _ int, acc reg.Register) { g.mul(acc, alpha, acc) })
	g.end()
}

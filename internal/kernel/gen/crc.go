package main

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// crcAccs is the number of vectors in the fold of a checksum, so that as many
// products run at the same time.
const crcAccs = 4

// foldCRC makes the loop of [kernel.CRC32C]. It works on polynomials of 128 bits,
// four in a vector. It multiplies them by the power of x for the distance of
// crcAccs vectors, modulo the polynomial, and adds them to those at that distance
// (Gopal et al. 2009, "Fast CRC computation for generic polynomials using PCLMULQDQ
// instruction").
func (g *gen) foldCRC() {
	g.function("foldCRC", "dst, p *byte, n int, crc uint32, factors *uint64",
		"writes 256 bytes with the checksum, from 0, of the n bytes at p, from crc. n is a multiple of 256, and positive.")
	dst, p, n, first, k := reg.RDI, reg.RSI, reg.RCX, reg.RAX, reg.RBX
	g.arg("dst", dst)
	g.arg("p", p)
	g.arg("n", n)
	g.arg("factors", k)
	factors, crc := reg.Z8, reg.Z9
	g.VBROADCASTI32X4(mem(k, 0), factors)
	g.arg("crc", first.As32())
	g.VMOVD(first.As32(), crc.AsX())
	for i := range crcAccs {
		g.VMOVDQU64(mem(p, 64*i), zmm[i])
	}
	g.VPXORQ(crc, zmm[0], zmm[0])
	g.JMP(label("next"))
	g.Label("loop")
	for i := range crcAccs {
		acc, low := zmm[i], zmm[crcAccs+i]
		g.product(0x00, factors, acc, low)
		g.product(0x11, factors, acc, acc)
		g.VPTERNLOGD(operand.Imm(0x96), mem(p, 64*i), low, acc)
	}
	g.Label("next")
	g.ADDQ(operand.U32(64*crcAccs), p)
	g.SUBQ(operand.U32(64*crcAccs), n)
	g.JNE(label("loop"))
	for i := range crcAccs {
		g.VMOVDQU64(zmm[i], mem(dst, 64*i))
	}
	g.end()
}

// product multiplies halves of each 128 bits without carries. avo does not have the
// instruction for 512 bits.
func (g *gen) product(halves uint8, a, b, to operand.Op) {
	g.Instruction(&ir.Instruction{Opcode: "VPCLMULQDQ", Operands: []operand.Op{operand.Imm(uint64(halves)), a, b, to}})
}

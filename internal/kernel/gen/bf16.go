package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// bf16 is AVX-512 with BF16. Its micro-kernels are those of float32 with another
// product: an element of A and B is a pair of bfloat16 numbers, the one of the even
// k in the lower half.
var bf16 = isa{"AVX512BF16", 64, 32, 14, []int{2, 1}, isas[0].vec}

func (g *gen) bf16File() {
	g.size, g.pairs = 4, true
	for _, w := range g.widths {
		for h := g.height; h > 0; h-- {
			g.microKernel(h, w, false)
			g.microKernel(h, w, true)
		}
		g.interleave(w)
	}
	g.alongKernels(false)
	g.transposePairs()
	g.roundTile()
	g.scaleTile()
	g.copyTiles()
}

// encode emits machine code for instructions that the assembler does not have.
func (g *gen) encode(code ...byte) {
	for len(code) > 0 {
		n, name, value := 1, "BYTE", operand.Op(operand.U8(code[0]))
		if len(code) >= 4 {
			n, name, value = 4, "LONG", operand.U32(binary.LittleEndian.Uint32(code))
		}
		g.Instruction(&ir.Instruction{Opcode: name, Operands: []operand.Op{value}})
		code = code[n:]
	}
}

// The prefixes that select an instruction in an EVEX encoding (Intel SDM, volume 2, 2.7).
const (
	prefixF3 = 2
	prefixF2 = 3
)

// evex encodes a 512-bit instruction of map 0F38 on registers: dst, the first
// source and the second.
func evex(prefix, opcode byte, dst, first, second operand.Op) []byte {
	d, v, s := index(dst), index(first), index(second)
	p0 := ^(d>>3&1<<7|s>>4&1<<6|s>>3&1<<5|d>>4&1<<4)&0xf0 | 2
	p1 := ^v&15<<3 | 4 | prefix
	p2 := byte(0x40) | ^v>>4&1<<3
	return []byte{0x62, p0, p1, p2, opcode, 0xc0 | d&7<<3 | s&7}
}

func index(x operand.Op) byte {
	for i, z := range zmm {
		if z == x {
			return byte(i)
		}
	}
	panic(fmt.Sprintf("%v is not a ZMM register", x))
}

// dotBF16 is VDPBF16PS: acc += a*b for the odd k, then for the even one.
func dotBF16(a, b, acc operand.Op) []byte { return evex(prefixF3, 0x52, acc, a, b) }

// roundBF16Pair is VCVTNE2PS2BF16: dst = bfloat16 of lo and of hi.
func roundBF16Pair(lo, hi, dst operand.Op) []byte { return evex(prefixF2, 0x72, dst, hi, lo) }

// interleave emits the packing of rows: two rows become one row of pairs.
func (g *gen) interleave(w int) {
	g.begin(fmt.Sprintf("interleave%d", w), "dst *float32, ds int, src *uint16, ss int, k int, mask uint64",
		fmt.Sprintf("writes (k+1)/2 rows of %d pairs in ascending order, of which row i holds rows 2*i and 2*i+1 of src; "+
			"a missing last row counts as zeros. Columns outside mask are not read, and become zeros. ds and ss are the bytes between rows.", 16*w))
	g.arg("dst", reg.RDI)
	g.arg("ds", reg.RDX)
	g.arg("src", reg.RSI)
	g.arg("ss", reg.R8)
	g.arg("k", reg.RCX)
	g.columnMasks(w)
	row := func(r reg.Register, first int) {
		for j := range w {
			g.VPMOVZXWD_Z(mem(r, 32*j), maskRegs[j], g.vec(first+j))
		}
	}
	store := func() {
		for j := range w {
			g.VMOVDQU32(g.vec(j), mem(reg.RDI, 64*j))
		}
	}
	g.MOVQ(reg.RCX, reg.R9)
	g.SHRQ(operand.Imm(1), reg.R9)
	g.JZ(label("odd"))
	g.Label("loop")
	row(reg.RSI, 0)
	g.ADDQ(reg.R8, reg.RSI)
	row(reg.RSI, w)
	g.ADDQ(reg.R8, reg.RSI)
	for j := range w {
		g.VPSLLD(operand.Imm(16), g.vec(w+j), g.vec(w+j))
		g.VPORD(g.vec(w+j), g.vec(j), g.vec(j))
	}
	store()
	g.ADDQ(reg.RDX, reg.RDI)
	g.DECQ(reg.R9)
	g.JNZ(label("loop"))
	g.Label("odd")
	g.TESTQ(operand.I32(1), reg.RCX)
	g.JZ(label("done"))
	row(reg.RSI, 0)
	store()
	g.Label("done")
	g.end()
}

// side is the number of rows and pairs that are transposed at a time.
const side = 16

// transposePairs emits the packing of columns. It transposes 16 rows of 16 pairs at
// a time.
func (g *gen) transposePairs() {
	g.begin("transposePairs", "dst *float32, ds int, src *uint16, ss int, w int, k int",
		fmt.Sprintf("writes the transpose of w in [1, %d] rows of k elements, as (k+1)/2 rows of %d pairs, of which the first w count, "+
			"in ascending order; a missing last element counts as zero. ds and ss are the bytes between rows.", side, side))
	g.arg("dst", reg.RDI)
	g.arg("ds", reg.RDX)
	g.arg("src", reg.RSI)
	g.arg("ss", reg.R8)
	g.arg("w", reg.R9)
	g.arg("k", reg.RBX)
	for i := range side {
		g.zero(g.vec(i))
	}
	g.Label("loop")
	// R12 = the elements of this block, K1 = their mask.
	g.MOVQ(operand.I32(2*side), reg.R12)
	g.CMPQ(reg.RBX, reg.R12)
	g.CMOVQLT(reg.RBX, reg.R12)
	g.MOVQ(reg.R12, reg.RCX)
	g.MOVQ(operand.I32(1), reg.RAX)
	g.SHLQ(reg.CL, reg.RAX)
	g.DECQ(reg.RAX)
	g.KMOVD(reg.EAX, reg.K1)
	g.MOVQ(reg.RSI, reg.R10)
	g.MOVQ(reg.R9, reg.R11)
	for i := range side {
		g.VMOVDQU16_Z(mem(reg.R10, 0), reg.K1, g.vec(i))
		g.PREFETCHT0(mem(reg.R10, prefetchAhead))
		if i < side-1 {
			g.DECQ(reg.R11)
			g.JZ(label("loaded"))
			g.ADDQ(reg.R8, reg.R10)
		}
	}
	g.Label("loaded")
	g.INCQ(reg.R12)
	g.SHRQ(operand.Imm(1), reg.R12)
	for _, v := range g.transposed() {
		g.move(v, mem(reg.RDI, 0))
		g.ADDQ(reg.RDX, reg.RDI)
		g.DECQ(reg.R12)
		g.JZ(label("stored"))
	}
	g.Label("stored")
	g.ADDQ(operand.Imm(4*side), reg.RSI)
	g.SUBQ(operand.Imm(2*side), reg.RBX)
	g.JG(label("loop"))
	g.end()
}

// roundTile emits the rounding of a tile of sums to bfloat16.
func (g *gen) roundTile() {
	g.begin("roundTile", "dst *uint16, ds int, src *float32, ss int, h int, bias *float32, mask uint64",
		"rounds h > 0 rows of 32 sums, after adding bias to each, to the nearest bfloat16, ties to even. Denormal numbers become zero. Columns outside mask are not written. ds and ss are the bytes between rows.")
	g.arg("dst", reg.RDI)
	g.arg("ds", reg.RDX)
	g.arg("src", reg.RSI)
	g.arg("ss", reg.R8)
	g.arg("h", reg.RCX)
	g.arg("bias", reg.RBX)
	g.arg("mask", reg.R10)
	g.KMOVD(reg.R10.As32(), reg.K1)
	lo, hi, both := g.vec(0), g.vec(1), g.vec(2)
	biasLo, biasHi := g.vec(3), g.vec(4)
	g.move(mem(reg.RBX, 0), biasLo)
	g.move(mem(reg.RBX, 64), biasHi)
	g.Label("loop")
	g.VADDPS(mem(reg.RSI, 0), biasLo, lo)
	g.VADDPS(mem(reg.RSI, 64), biasHi, hi)
	g.encode(roundBF16Pair(lo, hi, both)...)
	g.VMOVDQU16(both, reg.K1, mem(reg.RDI, 0))
	g.ADDQ(reg.R8, reg.RSI)
	g.ADDQ(reg.RDX, reg.RDI)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.end()
}

// scaleTile emits the end of a micro-kernel, for a tile in memory.
func (g *gen) scaleTile() {
	g.begin("scaleTile", "c *float32, cs int, tile *float32, h int, alpha float32, add bool, mask uint64",
		"computes C = alpha*tile, plus C with add, for h > 0 rows of 32 elements. Columns outside mask are neither read nor written in C. cs is the bytes between rows of C.")
	g.arg("c", reg.RDI)
	g.arg("cs", reg.RDX)
	g.arg("tile", reg.RSI)
	g.arg("h", reg.RCX)
	alpha := g.vec(2)
	g.broadcast(g.param("alpha"), alpha)
	g.columnMasks(2)
	g.arg("add", reg.AL)
	row := func(name string, finish func(j int)) {
		g.Label(name)
		for j := range 2 {
			g.move(mem(reg.RSI, 64*j), g.vec(j))
			finish(j)
			g.moveMasked(g.vec(j), maskRegs[j], mem(reg.RDI, 64*j))
		}
		g.ADDQ(operand.I32(128), reg.RSI)
		g.ADDQ(reg.RDX, reg.RDI)
		g.DECQ(reg.RCX)
		g.JNZ(label(name))
		g.end()
	}
	g.TESTB(reg.AL, reg.AL)
	g.JZ(label("overwrite"))
	row("sum", func(j int) { g.scaleAdd(mem(reg.RDI, 64*j), alpha, maskRegs[j], g.vec(j)) })
	row("overwrite", func(j int) { g.mul(g.vec(j), alpha, g.vec(j)) })
}

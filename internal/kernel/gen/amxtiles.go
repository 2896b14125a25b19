package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amxTiles emits the kernel for sums of n tiles of rows and 2 of columns. Tiles 0 to
// 3 are the sums, 4 and 5 are of A, 6 and 7 of B. The kernel configures and releases
// the tiles itself: while it runs, Go neither preempts nor moves the goroutine. With
// round, the sums of a tile are rounded while the next one is multiplied, a few rows
// in each block.
func (g *gen) amxTiles(n int, round bool) {
	g.tilesFunction(n, round)
	g.tilesArguments(round)
	g.Label("tile")
	g.startTile(n)
	g.Label("loop")
	g.multiplyBlock(n)
	if round {
		g.roundSomeRows()
	}
	g.ADDQ(operand.I32(2048), reg.RBX)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.moveSums(prefixF3, n)
	g.ADDQ(operand.I32(4096), reg.RDI)
	g.ADDQ(reg.R11, reg.R13)
	g.DECQ(g.param("tiles"))
	g.JNZ(label("tile"))
	g.encode(tileRelease()...)
	if !round {
		g.RET()
		return
	}
	g.Label("last")
	g.roundRow()
	g.CMPQ(reg.RAX, reg.RDI)
	g.JNE(label("last"))
	g.end()
}

func (g *gen) tilesFunction(n int, round bool) {
	name, more, also := fmt.Sprintf("tiles%dAMX", n), "", ""
	if round {
		name, more = fmt.Sprintf("tiles%dRoundAMX", n), ", dst *uint16, ds int, bias *float32, mask uint64, rows int"
		also = fmt.Sprintf(" Then it rounds them to dst as roundTileAVX512BF16 does; blocks*rows is at least %d.", 16*n)
	}
	g.function(name, "config *byte, tiles int, blocks int, a *uint16, as int, step int, next int, b *float32, sums *float32, first bool"+more,
		fmt.Sprintf("adds the products of blocks > 0 times %d x 16 pairs of A and 16 x 32 pairs of B to the sums of tiles > 0 times %d x 32, "+
			"or overwrites them if first. as is the bytes between rows of A, step those to its next block and next those to its next tile. Sums "+
			"are 4096 bytes a tile; they and B have rows of 32.", 16*n, 16*n)+also)
}

// tilesArguments configures the tiles and loads what stays in registers: A of the
// tile (R13), its row (R9), block (R10) and tile (R11), the sums (RDI), and the bytes
// of a row of B and of the sums (R8). With round, also the bias, the mask, the row of
// the result (R15), and the sums that are to be rounded (RAX), up to RDI.
func (g *gen) tilesArguments(round bool) {
	g.arg("config", reg.RAX)
	g.encode(tileConfig(reg.RAX)...)
	g.arg("a", reg.R13)
	g.arg("as", reg.R9)
	g.arg("step", reg.R10)
	g.arg("next", reg.R11)
	g.arg("sums", reg.RDI)
	g.MOVQ(operand.I32(128), reg.R8)
	if !round {
		return
	}
	g.arg("bias", reg.RAX)
	g.move(mem(reg.RAX, 0), g.vec(3))
	g.move(mem(reg.RAX, 64), g.vec(4))
	g.arg("mask", reg.RAX)
	g.KMOVD(reg.EAX, reg.K1)
	g.arg("dst", reg.R15)
	g.MOVQ(reg.RDI, reg.RAX)
}

// startTile points to the first block of A (RSI, R12) and B (RBX), and loads the sums
// or clears them.
func (g *gen) startTile(n int) {
	g.MOVQ(reg.R13, reg.RSI)
	if n > 1 { // the second tile of A
		g.MOVQ(reg.R9, reg.R12)
		g.SHLQ(operand.Imm(4), reg.R12)
		g.ADDQ(reg.R13, reg.R12)
	}
	g.arg("b", reg.RBX)
	g.arg("blocks", reg.RCX)
	g.CMPB(g.param("first"), operand.Imm(0))
	g.JNE(label("zero"))
	g.moveSums(prefixF2, n)
	g.JMP(label("loop"))
	g.Label("zero")
	for t := range byte(2 * n) {
		g.encode(tileZero(t)...)
	}
}

// moveSums loads (prefix F2) or stores (F3) the sums.
func (g *gen) moveSums(prefix byte, n int) {
	for i := range byte(n) {
		for j := range byte(2) {
			g.encode(tileMemory(prefix, 2*i+j, reg.RDI, reg.R8, 2048*int32(i)+64*int32(j))...)
		}
	}
}

// multiplyBlock adds the products of a block of A and B.
func (g *gen) multiplyBlock(n int) {
	g.encode(tileMemory(prefixF2, 6, reg.RBX, reg.R8, 0)...)
	for i, row := range []reg.Register{reg.RSI, reg.R12}[:n] {
		g.encode(tileMemory(prefixF2, byte(4+i), row, reg.R9, 0)...)
		for j := range byte(2) {
			if i == 0 && j == 1 {
				g.encode(tileMemory(prefixF2, 7, reg.RBX, reg.R8, 64)...)
			}
			g.encode(tileDot(byte(2*i)+j, byte(4+i), 6+j)...)
		}
		g.ADDQ(reg.R10, row)
	}
}

// roundSomeRows rounds the next rows of the tile before this one, if it has more.
func (g *gen) roundSomeRows() {
	g.arg("rows", reg.RDX)
	g.Label("row")
	g.CMPQ(reg.RAX, reg.RDI)
	g.JEQ(label("rounded"))
	g.roundRow()
	g.DECQ(reg.RDX)
	g.JNZ(label("row"))
	g.Label("rounded")
}

// roundRow rounds the sums of a row, after adding the bias.
func (g *gen) roundRow() {
	lo, hi, both := g.vec(0), g.vec(1), g.vec(2)
	g.VADDPS(mem(reg.RAX, 0), g.vec(3), lo)
	g.VADDPS(mem(reg.RAX, 64), g.vec(4), hi)
	g.encode(roundBF16Pair(lo, hi, both)...)
	g.VMOVDQU16(both, reg.K1, mem(reg.R15, 0))
	g.ADDQ(operand.I32(128), reg.RAX)
	g.ADDQ(g.param("ds"), reg.R15)
}

// param is parameter name where the caller put it.
func (g *gen) param(name string) operand.Mem {
	at, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return at.Addr
}

// copyTiles emits the packing of rows as tiles.
func (g *gen) copyTiles() {
	g.begin("copyTiles", "dst *uint16, src *uint16, ss int, rows int, k int",
		"copies rows > 0 rows of k > 0 elements, ss bytes apart, to blocks of 32 rows of 32 elements, of which the first ones count; zeros fill up the last block.")
	g.arg("dst", reg.RDI)
	g.arg("src", reg.RSI)
	g.arg("ss", reg.R8)
	g.arg("rows", reg.R9)
	g.arg("k", reg.RBX)
	g.MOVQ(reg.RBX, reg.RCX) // R12 = the blocks before the last one, K1 = the mask of that
	g.DECQ(reg.RCX)
	g.MOVQ(reg.RCX, reg.R12)
	g.SHRQ(operand.Imm(5), reg.R12)
	g.NOTQ(reg.RCX)
	g.MOVQ(operand.I32(-1), reg.RAX)
	g.SHRL(reg.CL, reg.EAX)
	g.KMOVD(reg.EAX, reg.K1)
	g.Label("row")
	g.MOVQ(reg.RSI, reg.R10)
	g.MOVQ(reg.RDI, reg.R11)
	g.MOVQ(reg.R12, reg.RCX)
	g.TESTQ(reg.RCX, reg.RCX)
	g.JZ(label("last"))
	g.Label("block")
	g.VMOVDQU32(mem(reg.R10, 0), g.vec(0))
	g.VMOVDQU32(g.vec(0), mem(reg.R11, 0))
	g.ADDQ(operand.Imm(64), reg.R10)
	g.ADDQ(operand.I32(2048), reg.R11)
	g.DECQ(reg.RCX)
	g.JNZ(label("block"))
	g.Label("last")
	g.VMOVDQU16_Z(mem(reg.R10, 0), reg.K1, g.vec(0))
	g.VMOVDQU32(g.vec(0), mem(reg.R11, 0))
	g.ADDQ(reg.R8, reg.RSI)
	g.ADDQ(operand.Imm(64), reg.RDI)
	g.DECQ(reg.R9)
	g.JNZ(label("row"))
	g.end()
}

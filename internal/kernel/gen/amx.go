package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amx is AMX with BF16: tiles of 16 rows of 64 bytes.
var amx = isa{name: "AMX"}

func (g *gen) amxFile() {
	g.pairs = true
	g.xgetbv()
	for n := range 2 {
		g.amxTile(n + 1)
	}
}

// xgetbv emits the read of the register that says which state the operating system
// saves.
func (g *gen) xgetbv() {
	g.function("xgetbv0", "", "returns the lower half of XCR0. The CPU must have OSXSAVE.")
	g.SignatureExpr("func() uint32")
	g.XORL(reg.ECX, reg.ECX)
	g.XGETBV()
	g.Store(reg.EAX, g.ReturnIndex(0))
	g.RET()
}

// gpr are the numbers of the registers for addresses in tile instructions.
var gpr = map[reg.Register]byte{reg.RAX: 0, reg.RDX: 2, reg.RBX: 3, reg.RSI: 6, reg.RDI: 7, reg.R8: 8, reg.R9: 9, reg.R12: 12}

// Tile instructions have VEX encodings of map 0F38 (Intel SDM, volume 2, TILELOADD and following).

// tileMemory encodes the load (prefix F2) or store (F3) of a tile, whose rows
// are stride bytes apart.
func tileMemory(prefix, tile byte, base, stride reg.Register, disp int32) []byte {
	b, x := gpr[base], gpr[stride]
	p1 := 0xe2 &^ (x>>3<<6 | b>>3<<5)
	return []byte{0xc4, p1, 0x78 | prefix, 0x4b, 0x84 | tile<<3, x&7<<3 | b&7,
		byte(disp), byte(disp >> 8), byte(disp >> 16), byte(disp >> 24)}
}

func tileZero(t byte) []byte { return []byte{0xc4, 0xe2, 0x7b, 0x49, 0xc0 | t<<3} }

// tileDot is TDPBF16PS: tile c += a*b.
func tileDot(c, a, b byte) []byte {
	return []byte{0xc4, 0xe2, ^b&15<<3 | prefixF3, 0x5c, 0xc0 | c<<3 | a}
}

func tileConfig(from reg.Register) []byte { return []byte{0xc4, 0xe2, 0x78, 0x49, gpr[from]} }
func tileRelease() []byte                 { return []byte{0xc4, 0xe2, 0x78, 0x49, 0xc0} }

// amxTile emits the kernel for n tiles of rows and 2 of columns. Tiles 0 to 3 are
// sums, 4 and 5 are of A, 6 and 7 of B. The kernel configures and releases the
// tiles itself: while it runs, Go neither preempts nor moves the goroutine.
func (g *gen) amxTile(n int) {
	g.function(fmt.Sprintf("tile%dAMX", n), "config *byte, blocks int, a *float32, as int, b *float32, bs int, c *float32",
		fmt.Sprintf("computes %d x 32 sums of blocks > 0 times 16 pairs, into rows of 32. as and bs are the bytes between rows of A and B.", 16*n))
	g.arg("config", reg.RAX)
	g.encode(tileConfig(reg.RAX)...)
	g.arg("blocks", reg.RCX)
	g.arg("a", reg.RSI)
	g.arg("as", reg.R9)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.arg("c", reg.RDI)
	g.MOVQ(reg.R9, reg.R12) // the second tile of A
	g.SHLQ(operand.Imm(4), reg.R12)
	g.ADDQ(reg.RSI, reg.R12)
	g.MOVQ(reg.R8, reg.R10) // the next tile of B
	g.SHLQ(operand.Imm(4), reg.R10)
	rows := []reg.Register{reg.RSI, reg.R12}[:n]
	for t := range byte(2 * n) {
		g.encode(tileZero(t)...)
	}
	g.Label("loop")
	for j := range byte(2) {
		g.encode(tileMemory(prefixF2, 6+j, reg.RBX, reg.R8, 64*int32(j))...)
	}
	for i, row := range rows {
		g.encode(tileMemory(prefixF2, byte(4+i), row, reg.R9, 0)...)
		for j := range byte(2) {
			g.encode(tileDot(byte(2*i)+j, byte(4+i), 6+j)...)
		}
		g.ADDQ(operand.Imm(64), row)
	}
	g.ADDQ(reg.R10, reg.RBX)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.MOVQ(operand.I32(128), reg.RDX)
	for i := range byte(n) {
		for j := range byte(2) {
			g.encode(tileMemory(prefixF3, 2*i+j, reg.RDI, reg.RDX, 2048*int32(i)+64*int32(j))...)
		}
	}
	g.encode(tileRelease()...)
	g.RET()
}

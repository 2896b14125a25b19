package main

import (
	"github.com/mmcloughlin/avo/reg"
)

// amx is AMX with BF16: tiles of 16 rows of 64 bytes.
var amx = isa{name: "AMX", bytes: 64, vec: isas[0].vec}

func (g *gen) amxFile() {
	g.size, g.pairs = 4, true
	g.xgetbv()
	g.amxTiles(1, false)
	g.amxTiles(2, false)
	g.amxTiles(2, true)
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
var gpr = map[reg.Register]byte{reg.RAX: 0, reg.RBX: 3, reg.RSI: 6, reg.RDI: 7, reg.R8: 8, reg.R9: 9, reg.R12: 12}

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

package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// prefetchAhead is how many bytes ahead of its reads transpose prefetches.
const prefetchAhead = 256

// copyRows emits the copy of n rows of w vectors.
func (g *gen) copyRows(w int) {
	g.begin(fmt.Sprintf("copyRows%d", w), "dst *T, ds int, src *T, ss int, n int",
		fmt.Sprintf("copies n > 0 rows of %d elements in ascending order; ds and ss are the bytes between rows.", w*g.lanes()))
	g.arg("dst", reg.RDI)
	g.arg("ds", reg.RDX)
	g.arg("src", reg.RSI)
	g.arg("ss", reg.R8)
	g.arg("n", reg.RCX)
	g.MOVQ(reg.R8, reg.R9)
	g.SHLQ(operand.Imm(4), reg.R9)
	g.Label("loop")
	for j := 0; j < w*g.bytes; j += 64 {
		g.PREFETCHT0(operand.Mem{Base: reg.RSI, Index: reg.R9, Scale: 1, Disp: j})
	}
	for j := range w {
		g.move(mem(reg.RSI, j*g.bytes), g.vec(j))
	}
	for j := range w {
		g.move(g.vec(j), mem(reg.RDI, j*g.bytes))
	}
	g.ADDQ(reg.R8, reg.RSI)
	g.ADDQ(reg.RDX, reg.RDI)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.end()
}

// transpose emits a transposing copy of square blocks with a side of one vector.
func (g *gen) transpose() {
	n := g.lanes()
	g.begin("transpose", "dst *T, ds int, src *T, ss int, w int, blocks int",
		fmt.Sprintf("writes the transpose of w in [1, %d] rows of blocks*%d > 0 elements: rows of %d elements, of which the first w count, "+
			"in ascending order. ds and ss are the bytes between rows.", n, n, n))
	g.transposeArgs()
	g.arg("w", reg.R9)
	for i := range n {
		g.zero(g.vec(i))
	}
	g.Label("loop")
	g.MOVQ(reg.RSI, reg.R10)
	g.MOVQ(reg.R9, reg.R11)
	for i := range n {
		g.move(mem(reg.R10, 0), g.vec(i))
		g.PREFETCHT0(mem(reg.R10, prefetchAhead))
		if i < n-1 {
			g.DECQ(reg.R11)
			g.JZ(label("loaded"))
			g.ADDQ(reg.R8, reg.R10)
		}
	}
	g.Label("loaded")
	for _, v := range g.transposed() {
		g.move(v, mem(reg.RDI, 0))
		g.ADDQ(reg.RDX, reg.RDI)
	}
	g.ADDQ(operand.Imm(uint64(g.bytes)), reg.RSI)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.end()
}

// transposePast is transpose of whole blocks, for matrices larger than the caches:
// it prefetches the rows that follow, and its stores bypass the caches.
func (g *gen) transposePast() {
	n := g.lanes()
	g.begin("transposePast", "dst *T, ds int, src *T, ss int, blocks int",
		fmt.Sprintf("writes the transpose of %d rows of blocks*%d > 0 elements past the caches, "+
			"and asks for the %d rows that follow. ds and ss are the bytes between rows; dst and ds are multiples of %d.", n, n, n, g.bytes))
	g.transposeArgs()
	g.MOVQ(reg.R8, reg.R9)
	g.SHLQ(operand.Imm(uint64(bits.Len(uint(n))-1)), reg.R9)
	g.Label("loop")
	g.MOVQ(reg.RSI, reg.R10)
	for i := range n {
		g.move(mem(reg.R10, 0), g.vec(i))
		g.PREFETCHT0(operand.Mem{Base: reg.R10, Index: reg.R9, Scale: 1})
		g.ADDQ(reg.R8, reg.R10)
	}
	for _, v := range g.transposed() {
		g.VMOVNTPS(v, mem(reg.RDI, 0))
		g.ADDQ(reg.RDX, reg.RDI)
	}
	g.ADDQ(operand.Imm(uint64(g.bytes)), reg.RSI)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.end()
}

func (g *gen) transposeArgs() {
	g.arg("dst", reg.RDI)
	g.arg("ds", reg.RDX)
	g.arg("src", reg.RSI)
	g.arg("ss", reg.R8)
	g.arg("blocks", reg.RCX)
}

// transposed emits the exchanges between the first lanes registers (one row each),
// and returns the registers that then hold the columns.
func (g *gen) transposed() []reg.Register {
	n := g.lanes()
	v := make([]reg.Register, 2*n)
	for i := range v {
		v[i] = g.vec(i)
	}
	rows, tmp := v[:n], v[n:]
	// Inside each 128-bit lane, first exchange between pairs of rows and then, for
	// float32, between pairs of pairs: column j of group q (16/size rows) ends in
	// from[q*m+j].
	for i := 0; i < n; i += 2 {
		g.pick(g.VUNPCKLPS, g.VUNPCKLPD, rows[i+1], rows[i], tmp[i])
		g.pick(g.VUNPCKHPS, g.VUNPCKHPD, rows[i+1], rows[i], tmp[i+1])
	}
	from, to := tmp, rows
	if g.size == 4 {
		for q := 0; q < n; q += 4 {
			for p := range 2 {
				g.VUNPCKLPD(tmp[q+2+p], tmp[q+p], rows[q+2*p])
				g.VUNPCKHPD(tmp[q+2+p], tmp[q+p], rows[q+2*p+1])
			}
		}
		from, to = rows, tmp
	}
	m := 16 / g.size
	if g.bytes == 32 {
		for j := range m {
			g.VPERM2F128(operand.Imm(0x20), from[m+j], from[j], to[j])
			g.VPERM2F128(operand.Imm(0x31), from[m+j], from[j], to[m+j])
		}
		return to
	}
	g.gatherLanes(from, to, m)
	g.gatherLanes(to, from, m)
	return from
}

// gatherLanes emits one of the two steps that exchange 128-bit lanes between the
// four groups of m registers. After it, groups 0 and 2 hold the even and the odd
// lanes of the first two groups, and groups 1 and 3 those of the last two.
func (g *gen) gatherLanes(from, to []reg.Register, m int) {
	for j := range m {
		for half := range 2 {
			lo, hi := from[2*half*m+j], from[(2*half+1)*m+j]
			g.VSHUFF32X4(operand.Imm(0x88), hi, lo, to[half*m+j])
			g.VSHUFF32X4(operand.Imm(0xdd), hi, lo, to[(half+2)*m+j])
		}
	}
}

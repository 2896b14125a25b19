package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unroll is the number of k steps in one turn of a micro-kernel's loop.
const unroll = 4

// peakChains is a number of independent multiply-adds that fills the pipelines of
// every CPU.
const peakChains = 12

var maskRegs = []reg.Register{reg.K1, reg.K2, reg.K3, reg.K4}

// microKernel emits the kernel for tiles of h rows and w vectors, one below the
// other: a call for each tile would cost as much as a tile with a short k.
// Registers: w vectors of B, then the h*w accumulators, then broadcast elements of
// A. Every accumulator is one chain of fused multiply-adds in the order of k, so an
// element of C has the same bits whichever kernel computes it.
//
// There are two forms: for an A whose columns are contiguous (packed A, or A stored
// transposed), and for an A whose rows are.
func (g *gen) microKernel(h, w int, byRows bool) {
	params := "tiles int, k int, a *T, as int, next int, b *T, bs int, c *T, cs int, from *T, fs int, alpha T"
	name, form := "gemm", "The elements of a column of A lie side by side; as is the bytes between columns."
	if byRows {
		name, form = "gemmRows", "The elements of a row of A lie side by side; as is the bytes between rows."
	}
	doc := fmt.Sprintf("computes tiles > 0 tiles C[0:%d, 0:%d] = alpha*A*B, one below the other, plus the matrix from unless that is nil. %s "+
		"next is the bytes from the A of a tile to that of the next. bs, cs and fs are the bytes between rows of B, C and from.",
		h, w*g.lanes(), form)
	if g.masked() {
		params += ", mask uint64"
		doc += " Columns outside mask are neither read nor written in B, C and from."
	}
	g.begin(fmt.Sprintf("%s%dx%d", name, h, w*g.lanes()), params, doc)
	g.arg("as", reg.RAX)
	g.arg("cs", reg.RDX)
	g.columnMasks(w)
	g.Label("tile")
	g.arg("k", reg.RCX)
	g.arg("a", reg.RSI)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.arg("c", reg.RDI)
	g.LEAQ(operand.Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R9)
	g.prefetchTile(h, w)
	for i := range h * w {
		g.zero(g.vec(w + i))
	}
	a := g.columns()
	if byRows {
		a = g.rows(h)
	}
	g.productLoop(h, w, a)
	g.storeTile(h, w)
}

// columnMasks loads the masks of w vectors of columns into maskRegs.
func (g *gen) columnMasks(w int) {
	if !g.masked() {
		return
	}
	g.arg("mask", reg.R10)
	for j := range w {
		g.KMOVW(reg.R10.As32(), maskRegs[j])
		if j < w-1 {
			g.SHRQ(operand.Imm(uint64(g.lanes())), reg.R10)
		}
	}
}

// operandA says where a micro-kernel finds A.
type operandA struct {
	at      func(i, u int) operand.Mem // row i, u steps ahead
	advance func(steps int)
}

func (g *gen) columns() operandA {
	g.LEAQ(operand.Mem{Base: reg.RAX, Index: reg.RAX, Scale: 2}, reg.R11)
	return operandA{
		at: func(i, u int) operand.Mem {
			m := stepsAhead(reg.RSI, reg.RAX, reg.R11, u)
			m.Disp = g.size * i
			return m
		},
		advance: func(steps int) { g.skip(reg.RAX, reg.RSI, steps) },
	}
}

// rows sets a register for every third row.
func (g *gen) rows(h int) operandA {
	bases := []reg.Register{reg.RSI, reg.R11, reg.R12, reg.R13, reg.R14}[:(h+2)/3]
	if len(bases) > 1 {
		g.LEAQ(operand.Mem{Base: reg.RAX, Index: reg.RAX, Scale: 2}, reg.R10)
	}
	for i, b := range bases[1:] {
		g.LEAQ(operand.Mem{Base: bases[i], Index: reg.R10, Scale: 1}, b)
	}
	return operandA{
		at: func(i, u int) operand.Mem {
			m := stepsAhead(bases[i/3], reg.RAX, nil, i%3)
			m.Disp = g.size * u
			return m
		},
		advance: func(steps int) {
			for _, b := range bases {
				g.ADDQ(operand.Imm(uint64(g.size*steps)), b)
			}
		},
	}
}

// stepsAhead is the address base + u*stride, for u < 4; three is 3*stride.
func stepsAhead(base, stride, three reg.Register, u int) operand.Mem {
	switch u {
	case 0:
		return operand.Mem{Base: base}
	case 3:
		return operand.Mem{Base: base, Index: three, Scale: 1}
	}
	return operand.Mem{Base: base, Index: stride, Scale: uint8(u)}
}

// skip advances p by one stride, or by unroll strides.
func (g *gen) skip(stride, p reg.Register, steps int) {
	if steps == 1 {
		g.ADDQ(stride, p)
	} else {
		g.LEAQ(operand.Mem{Base: p, Index: stride, Scale: uint8(steps)}, p)
	}
}

// peak emits a loop of multiply-adds on registers only: enough chains to hide their
// latency.
func (g *gen) peak(chains int) {
	g.begin("peak", "n int", fmt.Sprintf("does n > 0 turns of %d multiply-adds of %d elements.", chains, g.lanes()))
	g.arg("n", reg.RCX)
	for i := range chains + 2 {
		g.zero(g.vec(i))
	}
	g.Label("loop")
	for i := range chains {
		g.addProduct(g.vec(0), g.vec(1), g.vec(2+i))
	}
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.end()
}

func (g *gen) masked() bool { return g.bytes == 64 }

// prefetchTile prefetches C, which is needed only at the end. It does not prefetch
// into L1, where rows at distances of a power of two would evict each other, and B.
func (g *gen) prefetchTile(h, w int) {
	g.MOVQ(reg.RDI, reg.R10)
	for i := range h {
		for j := 0; j < w*g.bytes; j += 64 {
			g.PREFETCHT1(mem(reg.R10, j))
		}
		if i < h-1 {
			g.ADDQ(reg.RDX, reg.R10)
		}
	}
}

// productLoop adds the k rank-1 updates, unroll at a time and then one by one. The
// last columns of an unpacked B have their own loop, which reads no other columns:
// masks take time.
func (g *gen) productLoop(h, w int, a operandA) {
	edge := g.masked() && !g.pairs
	if edge {
		g.MOVQ(operand.U64(1<<(w*g.lanes())-1), reg.R10)
		g.CMPQ(reg.R10, g.slot("mask"))
		g.JNE(label("edge"))
	}
	g.MOVQ(reg.RCX, reg.R10)
	g.ANDQ(operand.Imm(unroll-1), reg.R10)
	g.SHRQ(operand.Imm(uint64(bits.TrailingZeros(unroll))), reg.RCX)
	g.JZ(label("tail"))
	g.Label("loop")
	for u := range unroll {
		g.rankOne(h, w, u, a, g.move)
	}
	a.advance(unroll)
	g.skip(reg.R8, reg.RBX, unroll)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.Label("tail")
	g.TESTQ(reg.R10, reg.R10)
	g.JZ(label("done"))
	g.Label("single")
	g.rankOne(h, w, 0, a, g.move)
	a.advance(1)
	g.skip(reg.R8, reg.RBX, 1)
	g.DECQ(reg.R10)
	g.JNZ(label("single"))
	if edge {
		g.JMP(label("done"))
		g.Label("edge")
		g.rankOne(h, w, 0, a, func(row, b operand.Op) { g.moveZeroed(row, maskRegs[index(b)], b) })
		a.advance(1)
		g.skip(reg.R8, reg.RBX, 1)
		g.DECQ(reg.RCX)
		g.JNZ(label("edge"))
	}
	g.Label("done")
}

// rankOne adds one column of A times one row of B, u steps ahead.
func (g *gen) rankOne(h, w, u int, a operandA, load func(row, b operand.Op)) {
	row := stepsAhead(reg.RBX, reg.R8, reg.R9, u)
	for j := range w {
		row.Disp = j * g.bytes
		load(row, g.vec(j))
	}
	first := w + h*w
	spare := min(2, g.regs-first)
	for i := range h {
		t := g.vec(first + i%spare)
		g.broadcast(a.at(i, u), t)
		for j := range w {
			g.addProduct(g.vec(j), t, g.vec(w+i*w+j))
		}
	}
}

// storeTile writes alpha times the accumulators to C, plus the rows of from, and
// goes on to the next tile. It keeps the next tile's addresses in the arguments.
func (g *gen) storeTile(h, w int) {
	alpha := g.vec(w + h*w)
	g.broadcast(g.slot("alpha"), alpha)
	masks := make([]reg.Register, w) // all nil if there are no masks
	if g.masked() {
		copy(masks, maskRegs)
	}
	g.arg("from", reg.RSI)
	g.arg("fs", reg.R8)
	g.TESTQ(reg.RSI, reg.RSI)
	g.JZ(label("overwrite"))
	g.storeRows(h, w, masks, func(i, j int, acc reg.Register) {
		if i > 0 && j == 0 {
			g.ADDQ(reg.R8, reg.RSI)
		}
		g.scaleAdd(mem(reg.RSI, j*g.bytes), alpha, masks[j], acc)
	})
	g.ADDQ(reg.R8, reg.RSI)
	g.MOVQ(reg.RSI, g.slot("from"))
	g.JMP(label("next"))
	g.Label("overwrite")
	g.storeRows(h, w, masks, func(_, _ int, acc reg.Register) {
		g.mul(acc, alpha, acc)
	})
	g.Label("next")
	g.arg("next", reg.R10)
	g.ADDQ(reg.R10, g.slot("a"))
	g.ADDQ(reg.RDX, reg.RDI)
	g.MOVQ(reg.RDI, g.slot("c"))
	g.DECQ(g.slot("tiles"))
	g.JNZ(label("tile"))
	g.end()
}

// slot is the memory of parameter name.
func (g *gen) slot(name string) operand.Mem {
	at, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return at.Addr
}

func (g *gen) storeRows(h, w int, masks []reg.Register, finish func(i, j int, acc reg.Register)) {
	for i := range h {
		for j := range w {
			c, acc := mem(reg.RDI, j*g.bytes), g.vec(w+i*w+j)
			finish(i, j, acc)
			if masks[j] != nil {
				g.moveMasked(acc, masks[j], c)
			} else {
				g.move(acc, c)
			}
		}
		if i < h-1 {
			g.ADDQ(reg.RDX, reg.RDI)
		}
	}
}

package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unroll is the number of k steps in one turn of a micro-kernel's loop.
const unroll = 4

// peakChains independent multiply-adds fill the pipelines of every CPU.
const peakChains = 12

var maskRegs = []reg.Register{reg.K1, reg.K2}

// microKernel emits the kernel for a tile of h rows and w vectors. Registers:
// w vectors of B, then the h*w accumulators, then broadcast elements of A.
// Every accumulator is one chain of fused multiply-adds in the order of k, so
// that an element of C has the same bits whichever kernel computes it.
func (g *gen) microKernel(h, w int) {
	params := "k int, a, b *T, bs int, c *T, cs int, alpha T, add bool"
	doc := fmt.Sprintf("computes the tile C[0:%d, 0:%d] = alpha*A*B, plus C with add. A is packed [k][%d]; bs and cs are the bytes between rows of B and C.", h, w*g.lanes(), h)
	if g.masked() {
		params += ", mask uint64"
		doc += " Columns outside mask are neither read nor written in C."
	}
	g.begin(fmt.Sprintf("gemm%dx%d", h, w*g.lanes()), params, doc)
	g.arg("k", reg.RCX)
	g.arg("a", reg.RSI)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.arg("c", reg.RDI)
	g.arg("cs", reg.RDX)
	g.LEAQ(operand.Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R9)
	g.prefetchTile(h, w)
	for i := range h * w {
		g.zero(g.vec(w + i))
	}
	g.productLoop(h, w)
	g.storeTile(h, w)
}

// peak emits a loop of multiply-adds on registers alone: enough chains to hide
// the latency of each.
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

// prefetchTile asks for C early: it is needed only at the end.
func (g *gen) prefetchTile(h, w int) {
	g.MOVQ(reg.RDI, reg.R10)
	for i := range h {
		for j := 0; j < w*g.bytes; j += 64 {
			g.PREFETCHT0(mem(reg.R10, j))
		}
		if i < h-1 {
			g.ADDQ(reg.RDX, reg.R10)
		}
	}
}

// productLoop adds the k rank-1 updates, unroll at a time and then singly.
func (g *gen) productLoop(h, w int) {
	g.MOVQ(reg.RCX, reg.R10)
	g.ANDQ(operand.Imm(unroll-1), reg.R10)
	g.SHRQ(operand.Imm(uint64(bits.TrailingZeros(unroll))), reg.RCX)
	g.JZ(label("tail"))
	g.Label("loop")
	for u := range unroll {
		g.rankOne(h, w, u)
	}
	g.ADDQ(operand.I32(g.size*h*unroll), reg.RSI)
	g.LEAQ(operand.Mem{Base: reg.RBX, Index: reg.R8, Scale: unroll}, reg.RBX)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.Label("tail")
	g.TESTQ(reg.R10, reg.R10)
	g.JZ(label("done"))
	g.Label("single")
	g.rankOne(h, w, 0)
	g.ADDQ(operand.I32(g.size*h), reg.RSI)
	g.ADDQ(reg.R8, reg.RBX)
	g.DECQ(reg.R10)
	g.JNZ(label("single"))
	g.Label("done")
}

// rankOne adds one column of A times one row of B, u steps ahead.
func (g *gen) rankOne(h, w, u int) {
	row := [unroll]operand.Mem{
		{Base: reg.RBX},
		{Base: reg.RBX, Index: reg.R8, Scale: 1},
		{Base: reg.RBX, Index: reg.R8, Scale: 2},
		{Base: reg.RBX, Index: reg.R9, Scale: 1},
	}[u]
	for j := range w {
		row.Disp = j * g.bytes
		g.move(row, g.vec(j))
	}
	first := w + h*w
	spare := min(2, g.regs-first)
	for i := range h {
		t := g.vec(first + i%spare)
		g.broadcast(mem(reg.RSI, g.size*(u*h+i)), t)
		for j := range w {
			g.addProduct(g.vec(j), t, g.vec(w+i*w+j))
		}
	}
}

// storeTile writes alpha times the accumulators to C, or adds them to it.
func (g *gen) storeTile(h, w int) {
	alpha := g.vec(w + h*w)
	addr, err := g.Param("alpha").Resolve()
	if err != nil {
		panic(err)
	}
	g.broadcast(addr.Addr, alpha)
	masks := make([]reg.Register, w) // all nil without masks
	if g.masked() {
		copy(masks, maskRegs)
		g.arg("mask", reg.R10)
		for j := range w {
			g.KMOVW(reg.R10.As32(), masks[j])
			if j < w-1 {
				g.SHRQ(operand.Imm(uint64(g.lanes())), reg.R10)
			}
		}
	}
	g.arg("add", reg.AL)
	g.TESTB(reg.AL, reg.AL)
	g.JZ(label("overwrite"))
	g.storeRows(h, w, masks, func(c operand.Mem, j int, acc reg.Register) {
		g.scaleAdd(c, alpha, masks[j], acc)
	})
	g.Label("overwrite")
	g.storeRows(h, w, masks, func(_ operand.Mem, _ int, acc reg.Register) {
		g.mul(acc, alpha, acc)
	})
}

func (g *gen) storeRows(h, w int, masks []reg.Register, finish func(c operand.Mem, j int, acc reg.Register)) {
	for i := range h {
		for j := range w {
			c, acc := mem(reg.RDI, j*g.bytes), g.vec(w+i*w+j)
			finish(c, j, acc)
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
	g.end()
}

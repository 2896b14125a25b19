package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dotSide is the largest number of rows and columns of a tile of dot products.
const dotSide = 5

// dotKernel emits the kernel for h x n dot products of float32 rows of A and of B.
// It is for products with few columns, where a vector of columns would have empty
// lanes. Every dot product has 16 sums, one for each lane, that are added as a
// tree. Registers: n vectors of B, one of A, a temporary one, then the
// accumulators. AVX-512 only.
func (g *gen) dotKernel(h, n int) {
	g.begin(fmt.Sprintf("gemmDot%dx%d", h, n), "k int, a *T, as int, b *T, bs int, c *T, cs int, from *T, fs int, alpha T, tail uint64",
		fmt.Sprintf("computes the tile C[0:%d, 0:%d] = alpha*A*B, plus the matrix from unless that is nil, over k vectors of 16 elements and "+
			"those in tail. as and bs are the bytes between rows of A and of B transposed, cs and fs those between rows of C and from.", h, n))
	g.arg("k", reg.RCX)
	g.arg("a", reg.RSI)
	g.arg("as", reg.RAX)
	g.arg("b", reg.RBX)
	g.arg("bs", reg.R8)
	g.LEAQ(operand.Mem{Base: reg.RAX, Index: reg.RAX, Scale: 2}, reg.R9)
	g.LEAQ(operand.Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R10)
	for i := range h * n {
		g.zero(g.vec(dotSide + 2 + i))
	}
	step := func(load func(m operand.Mem, v reg.Register)) {
		for j := range n {
			load(rowOf(reg.RBX, reg.R8, reg.R10, j), g.vec(j))
		}
		for i := range h {
			load(rowOf(reg.RSI, reg.RAX, reg.R9, i), g.vec(dotSide))
			for j := range n {
				g.addProduct(g.vec(j), g.vec(dotSide), g.vec(dotSide+2+i*n+j))
			}
		}
	}
	g.TESTQ(reg.RCX, reg.RCX)
	g.JZ(label("tail"))
	g.Label("loop")
	step(func(m operand.Mem, v reg.Register) { g.move(m, v) })
	g.ADDQ(operand.Imm(64), reg.RSI)
	g.ADDQ(operand.Imm(64), reg.RBX)
	g.DECQ(reg.RCX)
	g.JNZ(label("loop"))
	g.Label("tail")
	g.arg("tail", reg.RCX)
	g.TESTQ(reg.RCX, reg.RCX)
	g.JZ(label("sum"))
	g.KMOVW(reg.ECX, reg.K2)
	step(func(m operand.Mem, v reg.Register) { g.VMOVUPS_Z(m, reg.K2, v) })
	g.Label("sum")
	g.storeDots(h, n)
}

// rowOf is the address of row i < 5.
func rowOf(base, stride, three reg.Register, i int) operand.Mem {
	if i == 4 {
		return operand.Mem{Base: base, Index: stride, Scale: 4}
	}
	return stepsAhead(base, stride, three, i)
}

// storeDots adds the lanes of each accumulator and writes the rows of C.
func (g *gen) storeDots(h, n int) {
	g.arg("c", reg.RDI)
	g.arg("cs", reg.RDX)
	g.arg("from", reg.RSI)
	g.arg("fs", reg.R8)
	g.MOVQ(operand.I32(1<<n-1), reg.R9)
	g.KMOVW(reg.R9.As32(), reg.K1)
	addr, err := g.Param("alpha").Resolve()
	if err != nil {
		panic(err)
	}
	alpha, tmp := g.vec(dotSide), g.vec(dotSide+1)
	g.broadcast(addr.Addr, alpha)
	for i := range h {
		for j := range n {
			acc := g.vec(dotSide + 2 + i*n + j)
			g.VSHUFF32X4(operand.Imm(0x4e), acc, acc, tmp)
			g.VADDPS(acc, tmp, acc)
			g.VSHUFF32X4(operand.Imm(0xb1), acc, acc, tmp)
			g.VADDPS(acc, tmp, g.vec(j))
		}
		x := []reg.Register{reg.X0, reg.X1, reg.X2, reg.X3, reg.X4}
		if n == 1 {
			g.VHADDPS(x[0], x[0], x[0])
			g.VHADDPS(x[0], x[0], x[0])
		} else {
			g.VHADDPS(x[1], x[0], x[0])
			g.VHADDPS(x[3], x[2], x[2])
			g.VHADDPS(x[2], x[0], x[0])
			g.VHADDPS(x[4], x[4], x[4])
			g.VHADDPS(x[4], x[4], x[4])
			g.VINSERTF128(operand.Imm(1), x[4], reg.Y0, reg.Y0)
		}
		plain, next := fmt.Sprintf("plain%d", i), fmt.Sprintf("next%d", i)
		g.TESTQ(reg.RSI, reg.RSI)
		g.JZ(label(plain))
		g.scaleAdd(mem(reg.RSI, 0), alpha, reg.K1, g.vec(0))
		g.ADDQ(reg.R8, reg.RSI)
		g.JMP(label(next))
		g.Label(plain)
		g.mul(g.vec(0), alpha, g.vec(0))
		g.Label(next)
		g.moveMasked(g.vec(0), reg.K1, mem(reg.RDI, 0))
		g.ADDQ(reg.RDX, reg.RDI)
	}
	g.end()
}

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// along emits a kernel for few rows of A and a B whose columns lie along K: it takes
// as long as reading B once, so nothing is packed. Squares of B, one vector a side,
// are transposed in registers. So a sum is one chain in the order of k, with the bits
// of the other micro-kernels.
type along struct {
	*gen
	h      int            // rows of A
	half   bool           // B is bfloat16, and is widened
	square []reg.Register // rows of a square
	spare  reg.Register
	a      [2]reg.Register // elements of A
}

// alongAhead is the bytes of a column that are asked for ahead: measured.
const alongAhead = 8 * 64

// alongGroups is the number of vectors of columns. A sum waits for the product
// before, so that one chain alone would take longer than to read memory.
const alongGroups = 2

// alongHeight is the largest number of rows of A. AVX2 has registers for two beside
// a square.
func (g *gen) alongHeight() int {
	if g.masked() {
		return 4
	}
	return 2
}

func (g *gen) alongKernels(half bool) {
	for h := g.alongHeight(); h > 0; h-- {
		k := &along{gen: g, h: h, half: half}
		first := alongGroups * (1 + g.alongHeight())
		for i := range g.lanes() {
			k.square = append(k.square, g.vec(first+i))
		}
		k.spare = g.vec(first + g.lanes())
		k.a = [2]reg.Register{g.vec(0), g.vec(1)}
		k.emit()
	}
}

// side is the elements of K in a square.
func (k *along) side() int {
	if k.pairs {
		return 2 * k.lanes()
	}
	return k.lanes()
}

// width is the bytes of an element of B.
func (k *along) width() int {
	if k.pairs || k.half {
		return 2
	}
	return k.size
}

func (k *along) emit() {
	const w = alongGroups
	name, b := "gemmAlong", "*T"
	if k.pairs {
		b = "*uint16"
	} else if k.half {
		name, b = "gemmAlongHalf", "*uint16"
	}
	k.begin(fmt.Sprintf("%s%dx%d", name, k.h, w*k.lanes()),
		fmt.Sprintf("k int, a *T, as int, b %s, bs int, c *T, cs int, from *T, fs int, alpha T, next int", b), fmt.Sprintf(
			"computes C[0:%d, 0:%d] = alpha*A*B over k > 0 elements, plus the matrix from unless that is nil. The elements of a row of A, and of "+
				"a column of B, lie side by side; as is the bytes between rows of A and bs those between columns of B. cs and fs are the bytes between "+
				"rows of C and from. Memory is asked for before it is read: behind a column, what lies next bytes further.", k.h,
			w*k.lanes())+k.reach())
	k.arg("k", reg.RCX)
	k.arg("a", reg.RSI)
	k.arg("as", reg.RAX)
	k.arg("b", reg.RBX)
	k.arg("bs", reg.R8)
	k.LEAQ(operand.Mem{Base: reg.RAX, Index: reg.RAX, Scale: 2}, reg.R9)
	k.LEAQ(operand.Mem{Base: reg.R8, Index: reg.R8, Scale: 2}, reg.R11)
	for i := range k.h * w {
		k.zero(k.vec(w + i))
	}
	side := uint64(k.side())
	k.SUBQ(operand.Imm(side), reg.RCX)
	k.JLT(label("tail"))
	k.arg("next", reg.R13)
	k.ADDQ(operand.I32(alongAhead), reg.R13)
	k.MOVQ(operand.I32(alongAhead), reg.R12)
	k.Label("loop")
	k.CMPQ(reg.RCX, operand.I32(alongAhead/int32(k.width())))
	k.CMOVQLT(reg.R13, reg.R12)
	k.LEAQ(operand.Mem{Base: reg.RBX, Index: reg.R12, Scale: 1}, reg.RDI)
	k.turn(k.load, func(j, p int, product func()) {
		product()
		k.prefetch(j, p)
	})
	k.ADDQ(operand.Imm(side*uint64(k.width())), reg.RBX)
	k.ADDQ(operand.Imm(uint64(k.bytes)), reg.RSI)
	k.SUBQ(operand.Imm(side), reg.RCX)
	k.JGE(label("loop"))
	k.Label("tail")
	k.ADDQ(operand.Imm(side), reg.RCX)
	k.JZ(label("end"))
	if k.masked() {
		k.maskedTail()
	} else {
		k.tailBackwards()
	}
	k.Label("end")
	k.store()
}

// prefetch asks for what a column has ahead, after step p of group j. The processor
// foresees few streams, and here are as many as columns.
func (k *along) prefetch(j, p int) {
	k.PREFETCHT0(stepsAhead(reg.RDI, reg.R8, reg.R11, p%4))
	if (p%4 == 3 || p+1 == k.lanes()) && (p+1 < k.lanes() || j+1 < alongGroups) {
		k.LEAQ(operand.Mem{Base: reg.RDI, Index: reg.R8, Scale: 4}, reg.RDI)
	}
}

// reach says what a kernel reads besides its operands.
func (k *along) reach() string {
	if k.masked() {
		return ""
	}
	return fmt.Sprintf(" If k is no multiple of %d, up to %d elements before a column of B are read, too.", k.lanes(), k.lanes()-1)
}

// load reads part of a column of B.
func (k *along) load(m, v operand.Op) {
	if !k.half {
		k.move(m, v)
		return
	}
	k.VPMOVZXWD(m, v)
	k.VPSLLD(operand.Imm(16), v, v)
}

// maskedTail adds the products of the last RCX elements, fewer than a square's.
func (k *along) maskedTail() {
	k.MOVQ(operand.I32(1), reg.RDX)
	k.SHLQ(reg.CL, reg.RDX)
	k.DECQ(reg.RDX)
	k.KMOVD(reg.EDX, reg.K1)
	if k.pairs {
		k.INCQ(reg.RCX)
		k.SHRQ(operand.Imm(1), reg.RCX)
	}
	load := func(m, v operand.Op) {
		switch {
		case k.pairs:
			k.VMOVDQU16_Z(m, reg.K1, v)
		case k.half:
			k.VPMOVZXWD_Z(m, reg.K1, v)
			k.VPSLLD(operand.Imm(16), v, v)
		default:
			k.moveZeroed(m, reg.K1, v)
		}
	}
	k.turn(load, func(j, p int, product func()) {
		product()
		done := fmt.Sprintf("done%d", j)
		if p+1 < k.lanes() {
			k.CMPQ(reg.RCX, operand.Imm(uint64(p+1)))
			k.JE(label(done))
		} else {
			k.Label(done)
		}
	})
}

// tailBackwards is maskedTail without masks: it reads the last square that there is,
// and skips the products that are added already.
func (k *along) tailBackwards() {
	k.MOVQ(reg.RCX, reg.RDX)
	k.SUBQ(operand.Imm(uint64(k.side())), reg.RDX)
	k.LEAQ(operand.Mem{Base: reg.RBX, Index: reg.RDX, Scale: uint8(k.width())}, reg.RBX)
	k.LEAQ(operand.Mem{Base: reg.RSI, Index: reg.RDX, Scale: uint8(k.size)}, reg.RSI)
	k.turn(k.load, func(j, p int, product func()) {
		skip := fmt.Sprintf("skip%d_%d", j, p)
		k.CMPQ(reg.RCX, operand.Imm(uint64(k.lanes()-p)))
		k.JLT(label(skip))
		product()
		k.Label(skip)
	})
}

// turn adds the products of a square of each vector of columns. each is called for
// group j and step p of K, with what adds its products.
func (k *along) turn(load func(m, v operand.Op), each func(j, p int, product func())) {
	k.MOVQ(reg.RBX, reg.R10)
	const w = alongGroups
	for j := range w {
		for i, v := range k.square {
			load(stepsAhead(reg.R10, reg.R8, reg.R11, i%4), v)
			if i%4 == 3 && (i+1 < len(k.square) || j+1 < w) {
				k.LEAQ(operand.Mem{Base: reg.R10, Index: reg.R8, Scale: 4}, reg.R10)
			}
		}
		for p, column := range k.transposedInPlace(k.square, k.spare) {
			each(j, p, func() {
				for i := range k.h {
					at, a := stepsAhead(reg.RSI, reg.RAX, reg.R9, i), k.a[i%2]
					at.Disp = k.size * p
					k.broadcast(at, a)
					k.addProduct(column, a, k.vec(w+i*w+j))
				}
			})
		}
	}
}

// transposedInPlace emits the transposition of a square with one register to spare,
// and returns the registers that then hold the columns.
func (g *gen) transposedInPlace(square []reg.Register, spare reg.Register) []reg.Register {
	v := append([]reg.Register(nil), square...)
	// exchange makes two registers from two others; one of those is free then.
	exchange := func(i, j int, lo, hi func(b, a, to operand.Op)) {
		a, b := v[i], v[j]
		lo(b, a, spare)
		hi(b, a, b)
		v[i], v[j], spare = spare, b, a
	}
	m, n := 16/g.size, len(v)
	for i := 0; i < n; i += 2 {
		exchange(i, i+1, func(b, a, to operand.Op) { g.pick(g.VUNPCKLPS, g.VUNPCKLPD, b, a, to) },
			func(b, a, to operand.Op) { g.pick(g.VUNPCKHPS, g.VUNPCKHPD, b, a, to) })
	}
	for i := 0; m == 4 && i < n; i++ {
		if i&2 == 0 {
			exchange(i, i+2, func(b, a, to operand.Op) { g.VUNPCKLPD(b, a, to) }, func(b, a, to operand.Op) { g.VUNPCKHPD(b, a, to) })
		}
	}
	if m == 4 { // the columns of each group of four are in the order 0, 2, 1, 3
		for i := 0; i < n; i += 4 {
			v[i+1], v[i+2] = v[i+2], v[i+1]
		}
	}
	permute := func(imm uint64) func(b, a, to operand.Op) {
		return func(b, a, to operand.Op) {
			if g.bytes == 32 {
				g.VPERM2F128(operand.Imm(imm), b, a, to)
			} else {
				g.VSHUFF32X4(operand.Imm(imm), b, a, to)
			}
		}
	}
	lo, hi := permute(0x88), permute(0xdd) // the even and the odd lanes
	if g.bytes == 32 {
		lo, hi = permute(0x20), permute(0x31)
	}
	for i := range n { // lanes of neighbouring groups
		if i&m == 0 {
			exchange(i, i+m, lo, hi)
		}
	}
	for i := range n { // of 2 groups and 2 more
		if g.bytes == 64 && i&(2*m) == 0 {
			exchange(i, i+2*m, lo, hi)
		}
	}
	return v
}

// store writes alpha times the sums to C, plus the rows of from.
func (k *along) store() {
	const w = alongGroups
	alpha, masks := k.vec(0), make([]reg.Register, w)
	k.broadcast(k.slot("alpha"), alpha)
	k.arg("c", reg.RDI)
	k.arg("cs", reg.RDX)
	k.arg("from", reg.RSI)
	k.arg("fs", reg.R8)
	k.TESTQ(reg.RSI, reg.RSI)
	k.JZ(label("overwrite"))
	k.storeRows(k.h, w, masks, func(i, j int, acc reg.Register) {
		if i > 0 && j == 0 {
			k.ADDQ(reg.R8, reg.RSI)
		}
		k.scaleAdd(mem(reg.RSI, j*k.bytes), alpha, nil, acc)
	})
	k.end()
	k.Label("overwrite")
	k.storeRows(k.h, w, masks, func(_, _ int, acc reg.Register) { k.mul(acc, alpha, acc) })
	k.end()
}

package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// conversions are those between float32 and the 16-bit floats.
func conversions() []*spec {
	return []*spec{
		{name: "widenBF16", params: parse("dst []float32, src []BF16"), stream: true, doc: "converts src to float32.",
			body: words(func(g *gen, i int) {
				x := g.tmp()
				g.VPMOVZXWD(g.at("src", i), x)
				g.fp(4).store(g.fp(4).shiftLeft(x, 16), "dst", i)
			})},
		{name: "widenF16", params: parse("dst []float32, src []F16"), stream: true, doc: "converts src to float32.",
			body: words(func(g *gen, i int) {
				x := g.tmp()
				g.VCVTPH2PS(g.at("src", i), x)
				g.fp(4).store(x, "dst", i)
			})},
		{name: "roundF16", params: parse("dst []F16, src []float32"), stream: true, doc: "rounds src to the nearest, ties to even.",
			body: words(func(g *gen, i int) {
				h := g.half()
				g.VCVTPS2PH(operand.Imm(0), g.fp(4).load("src", i), h)
				g.fp(4).store(h, "dst", i)
			})},
		{name: "roundBF16", params: parse("dst []BF16, src []float32"), stream: true, doc: "rounds src to the nearest, ties to even.",
			body: words(roundBF16)},
	}
}

func words(convert func(g *gen, i int)) func(g *gen) {
	return func(g *gen) {
		g.loop(func() { g.vectors(4, func(i int) { convert(g, i) }) })
	}
}

func roundBF16(g *gen, i int) {
	f := g.fp(4)
	x := f.load("src", i)
	upper := f.shiftRight(x, 16)
	rounded := f.addInt(f.addInt(x, f.bits(0x7fff)), f.and(upper, f.bits(1)))
	nan := f.compare(unordered, x, x)
	y := f.choose(nan, f.or(upper, f.bits(0x40)), f.shiftRight(rounded, 16)).(reg.VecVirtual)
	h := g.half()
	if g.bytes == 64 {
		g.VPMOVDW(y, h)
	} else { // both 128-bit halves of y, each packed to 64 bits
		g.VEXTRACTI128(operand.Imm(1), y, h)
		g.VPACKUSDW(h, y.AsX(), h)
	}
	g.fp(4).store(h, "dst", i)
}

// philoxStep is the number of elements of a step of dropout.
const philoxStep = 32

// dropout makes the kernel that draws the random bits of dropout as well.
func dropout() []*spec {
	return []*spec{{
		name: "dropout", params: parse("dst, x []float32, scale float32, limit uint32, key, block uint64"), once: true, unit: philoxStep,
		doc: "computes dst = x*scale, or 0 where a word of the Philox blocks from number block on is below limit.",
		body: func(g *gen) {
			f, words := g.fp(4), g.fp(8)
			k0 := words.reg(words.arg("key")) // the lower halves count
			k1 := words.shiftRight(k0, 32)
			counter := words.addInt(words.reg(words.arg("block")), g.lanesOf())
			g.Label("loop")
			for i := 0; i < philoxStep; i += 2 * g.lanes32() {
				lo, hi := g.philox(counter, k0, k1)
				for j, w := range []value{lo, hi} {
					at := i + j*g.lanes32()
					f.store(f.keep(g.atLeast(w, "limit"), f.mul(f.load("x", at), f.arg("scale"))), "dst", at)
				}
				g.VPADDQ(g.reg64(uint64(g.bytes/8)), counter, counter)
			}
			g.ADDQ(operand.Imm(philoxStep), indexReg)
			g.CMPQ(indexReg, countReg)
			g.JLT(label("loop"))
		},
	}}
}

func (g *gen) lanes32() int { return g.bytes / 4 }

func (g *gen) reg64(u uint64) value { return g.fp(8).reg(g.fp(8).bits(u)) }

// lanesOf are the numbers of the blocks that the 64-bit elements of a vector
// compute, so that philox returns its words in order: the even elements are the
// first half.
func (g *gen) lanesOf() value {
	n := g.bytes / 8
	m := g.StaticGlobal("blockOrder")
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range n / 2 {
		g.AppendDatum(operand.U64(uint64(i)))
		g.AppendDatum(operand.U64(uint64(i + n/2)))
	}
	return g.fp(8).reg(m)
}

// philox computes one block of Philox4x32-10 for each 64-bit element of
// counter. The four words of a block are in the lower halves of c; the upper
// halves are ignored until the end.
func (g *gen) philox(counter, k0, k1 value) (lo, hi value) {
	f, key := g.fp(8), g.fp(4)
	m0, m1 := g.reg64(0xD2511F53), g.reg64(0xCD9E8D57)
	zero := f.xor(counter, counter)
	c := [4]value{counter, f.shiftRight(counter, 32), zero, zero}
	for round := range 10 {
		if round > 0 {
			k0 = key.addInt(k0, key.bits(0x9E3779B9))
			k1 = key.addInt(k1, key.bits(0xBB67AE85))
		}
		p0, p1 := f.product32(c[0], m0), f.product32(c[2], m1)
		c = [4]value{
			f.xor(f.xor(f.shiftRight(p1, 32), c[1]), k0), p1,
			f.xor(f.xor(f.shiftRight(p0, 32), c[3]), k1), p0,
		}
	}
	low := f.bits(0xffffffff)
	a := f.or(f.and(c[0], low), f.shiftLeft(c[1], 32))
	b := f.or(f.and(c[2], low), f.shiftLeft(c[3], 32))
	l, h := g.tmp(), g.tmp()
	g.VPUNPCKLQDQ(b, a, l)
	g.VPUNPCKHQDQ(b, a, h)
	return l, h
}

// product32 multiplies the lower halves of 64-bit elements.
func (f fp) product32(a, b value) value {
	to := f.tmp()
	f.VPMULUDQ(b, a, to)
	return to
}

// atLeast is the mask of the unsigned words of w that are not below an argument.
func (g *gen) atLeast(w value, arg string) value {
	f := g.fp(4)
	if g.bytes == 64 {
		k := g.K()
		g.VPCMPUD(operand.Imm(5), f.reg(f.arg(arg)), w, k)
		return k
	}
	top, to := g.tmp(), g.tmp()
	g.VPMAXUD(f.reg(f.arg(arg)), w, top)
	g.VPCMPEQD(top, w, to)
	return to
}

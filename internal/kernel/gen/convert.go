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
			body: words(func(g *gen, i int) { g.fp(4).store(g.fp(4).loadBF16("src", i), "dst", i) })},
		{name: "widenF16", params: parse("dst []float32, src []F16"), stream: true, doc: "converts src to float32.",
			body: words(func(g *gen, i int) { g.fp(4).store(g.fp(4).loadF16("src", i), "dst", i) })},
		{name: "roundF16", params: parse("dst []F16, src []float32"), stream: true, doc: "rounds src to the nearest, ties to even.",
			body: words(func(g *gen, i int) { g.fp(4).storeF16(g.fp(4).load("src", i), "dst", i) })},
		{name: "roundBF16", params: parse("dst []BF16, src []float32"), stream: true, doc: "rounds src to the nearest, ties to even.",
			body: words(roundBF16)},
		{name: "gateBF16", params: parse("dst, a, b []BF16"), stream: true, doc: "computes dst = a, or 0 where b <= 0.",
			body: words(func(g *gen, i int) {
				f := g.fp(4)
				f.storeBF16(f.keep(f.compare(notAtMost, f.loadBF16("b", i), f.c(0)), f.loadBF16("a", i)), "dst", i)
			})},
		{name: "addRowsBF16", params: parse("y []float32, a, b, c, d []BF16"), doc: "computes y = (((y + a) + b) + c) + d.",
			body: words(func(g *gen, i int) {
				f := g.fp(4)
				sum := f.load("y", i)
				for _, row := range []string{"a", "b", "c", "d"} {
					sum = f.add(sum, f.loadBF16(row, i))
				}
				f.store(sum, "y", i)
			})},
	}
}

func words(convert func(g *gen, i int)) func(g *gen) {
	return func(g *gen) {
		g.loop(func() { g.vectors(4, func(i int) { convert(g, i) }) })
	}
}

func roundBF16(g *gen, i int) {
	f := g.fp(4)
	f.storeBF16(f.load("src", i), "dst", i)
}

// storeBF16 rounds the float32 vector x to bfloat16 and writes it to slice name.
func (f fp) storeBF16(x value, name string, i int) {
	upper := f.shiftRight(x, 16)
	rounded := f.addInt(f.addInt(x, f.bits(0x7fff)), f.and(upper, f.bits(1)))
	nan := f.compare(unordered, x, x)
	chosen := f.choose(nan, f.or(upper, f.bits(0x40)), f.shiftRight(rounded, 16))
	f.storeWords(chosen, name, i)
}

// storeWords writes the lower halves of 32-bit elements to slice name.
func (f fp) storeWords(x value, name string, i int) {
	if f.neon != nil {
		f.store(f.neon.op("xtn", 4, 8, x), name, i)
		return
	}
	g := f.gen
	f.store(f.each(func(xs ...value) value {
		y, h := xs[0].(reg.VecVirtual), g.half()
		if g.bytes == 64 {
			g.VPMOVDW(y, h)
		} else { // pack both 128-bit halves of y to 64 bits each
			g.VEXTRACTI128(operand.Imm(1), y, h)
			g.VPACKUSDW(h, y.AsX(), h)
		}
		return h
	}, x), name, i)
}

// loadBF16 reads a vector of bfloat16 numbers from element i of slice name as
// float32.
func (f fp) loadBF16(name string, i int) value {
	if f.neon != nil {
		return f.neon.op("shll", 4, 16, f.at(name, i))
	}
	return f.shiftLeft(f.each(func(xs ...value) value {
		x := f.tmp()
		f.VPMOVZXWD(xs[0], x)
		return x
	}, f.at(name, i)), 16)
}

// loadF16 reads a vector of numbers of 16 bits from element i of slice name as float32.
func (f fp) loadF16(name string, i int) value {
	if f.neon != nil {
		return f.neon.op("halfl", 4, 16, f.at(name, i))
	}
	x := f.tmp()
	f.VCVTPH2PS(f.gen.at(name, i), x)
	return x
}

// storeF16 rounds the float32 vector x to 16 bits and writes it to slice name.
func (f fp) storeF16(x value, name string, i int) {
	if f.neon != nil {
		f.store(f.neon.op("halfn", 4, 8, x), name, i)
		return
	}
	h := f.half()
	f.VCVTPS2PH(operand.Imm(0), x, h)
	f.store(h, name, i)
}

// philoxStep is the number of elements of a step of dropout.
const philoxStep = 32

// dropout makes the kernel of dropout, which also draws the random bits.
func dropout() []*spec {
	return []*spec{{
		name: "dropout", params: parse("dst, x []float32, keys *[20]uint64, scale float32, limit uint32, block uint64"), once: true,
		unit: philoxStep, amd64: true,
		doc: "computes dst = x*scale, or 0 where a word of the Philox blocks from number block on is below limit. keys are the two keys " +
			"of each round.",
		body: func(g *gen) {
			words := g.fp(8)
			counter := words.addInt(words.reg(words.arg("block")), g.lanesOf())
			if most := g.ways() * 2 * g.lanes32(); most > philoxStep { // the sixteen registers of AVX2 hold only one step
				g.LEAQ(mem(countReg, -most), scratchReg)
				g.JMP(label("enough"))
				g.Label("bundles")
				g.drop(counter, most)
				g.Label("enough")
				g.CMPQ(indexReg, scratchReg)
				g.JLE(label("bundles"))
				g.CMPQ(indexReg, countReg)
				g.JGE(label("done"))
			}
			g.Label("loop")
			g.drop(counter, philoxStep)
			g.CMPQ(indexReg, countReg)
			g.JLT(label("loop"))
			g.Label("done")
		},
	}}
}

func (g *gen) lanes32() int { return g.bytes / 4 }

// drop does n elements.
func (g *gen) drop(counter value, n int) {
	f, words := g.fp(4), g.fp(8)
	var counters bundle
	for i := 0; i < n; i += 2 * g.lanes32() { // each block has 4 words
		c := g.tmp()
		g.VMOVUPS(counter, c)
		counters = append(counters, c)
		g.VPADDQ(words.reg(words.bits(uint64(g.bytes/8))), counter, counter)
	}
	f.ways, words.ways = len(counters), len(counters)
	lo, hi := words.philox(counters)
	limit, scale := f.reg(f.arg("limit")), f.reg(f.arg("scale"))
	g.ahead("x", 0, n/g.lanes32())
	for i := range counters {
		for j, w := range []value{lo.(bundle)[i], hi.(bundle)[i]} {
			one := g.fp(4)
			at := (2*i + j) * g.lanes32()
			one.store(one.keep(g.atLeast(w, limit), one.mul(one.load("x", at), scale)), "dst", at)
		}
	}
	g.ADDQ(operand.I32(n), indexReg)
}

// lanesOf are the numbers of the blocks for the 64-bit elements of a vector. They
// are such that philox returns its words in order: the even elements are the first
// half.
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

// philox computes one block of Philox4x32-10 for each 64-bit element of counter.
// The four words of a block are in the lower halves of c. The upper halves are
// ignored until the end.
func (f fp) philox(counter value) (lo, hi value) {
	m0, m1 := f.reg(f.bits(0xD2511F53)), f.reg(f.bits(0xCD9E8D57))
	zero := f.xor(counter, counter)
	c := [4]value{counter, f.shiftRight(counter, 32), zero, zero}
	for round := range 10 {
		key := func(i int) scalar { return scalar{Mem: mem(f.pointers["keys"].reg, 8*(2*round+i))} }
		p0, p1 := f.product32(c[0], m0), f.product32(c[2], m1)
		c = [4]value{
			f.xor3(f.upper32(p1), c[1], key(0)), p1,
			f.xor3(f.upper32(p0), c[3], key(1)), p0,
		}
	}
	a, b := f.merge32(c[0], c[1]), f.merge32(c[2], c[3])
	unpack := func(form emitter) value {
		return f.each(func(xs ...value) value {
			to := f.tmp()
			form(xs[1], xs[0], to)
			return to
		}, a, b)
	}
	return unpack(func(ops ...operand.Op) { f.VPUNPCKLQDQ(ops[0], ops[1], ops[2]) }),
		unpack(func(ops ...operand.Op) { f.VPUNPCKHQDQ(ops[0], ops[1], ops[2]) })
}

// product32 multiplies the lower halves of 64-bit elements.
func (f fp) product32(a, b value) value {
	return f.each(func(xs ...value) value {
		to := f.tmp()
		f.VPMULUDQ(xs[1], xs[0], to)
		return to
	}, a, b)
}

// upper32 moves the upper halves of 64-bit elements to the lower ones. Unlike a
// shift, it does not use a unit that multiplies.
func (f fp) upper32(a value) value {
	return f.one(a, func(a, to operand.Op) { f.VPSHUFD(operand.Imm(0xf5), a, to) })
}

// xor3 is a ^ b ^ c. If that takes one instruction, it overwrites a.
func (f fp) xor3(a, b, c value) value {
	if f.gen.bytes != 64 {
		return f.xor(f.xor(a, b), c)
	}
	return f.logic(0x96, a, b, c)
}

// merge32 has the lower half of a in its lower half, and the lower half of b in its
// upper half.
func (f fp) merge32(a, b value) value {
	upper, low := f.shiftLeft(b, 32), f.bits(0xffffffff)
	if f.gen.bytes != 64 {
		return f.or(f.and(a, low), upper)
	}
	return f.logic(0xf8, upper, a, low)
}

// logic is the function of a, b and c with the given table. It overwrites a
// (AVX-512).
func (f fp) logic(table uint64, a, b, c value) value {
	return f.each(func(xs ...value) value {
		if m, ok := xs[2].(scalar); ok {
			f.VPTERNLOGQ_BCST(operand.Imm(table), m.Mem, xs[1], xs[0])
		} else {
			f.VPTERNLOGQ(operand.Imm(table), xs[2], xs[1], xs[0])
		}
		return xs[0]
	}, a, b, f.shared(c))
}

// atLeast is the mask of the unsigned words of w that are at least limit.
func (g *gen) atLeast(w, limit value) value {
	if g.bytes == 64 {
		k := g.K()
		g.VPCMPUD(operand.Imm(5), limit, w, k)
		return k
	}
	top, to := g.tmp(), g.tmp()
	g.VPMAXUD(limit, w, top)
	g.VPCMPEQD(top, w, to)
	return to
}

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// reductions are the sums and maxima of rows, and the kernels of the
// normalizations. Sums are float64, in 16 interleaved accumulators.
func reductions() []*spec {
	all := []*spec{
		{name: "maximum", params: parse("x []T, top []T by row"), sizes: bothSizes,
			doc:  "raises top of each row to the largest x, which is no NaN.",
			body: maximum},
		{name: "sum", params: parse("x []T, acc [][16]T by row"), sizes: bothSizes,
			doc:  "adds x to the 16 interleaved sums acc of each row.",
			body: narrowSum},
		{name: "sumWide", params: parse("x []T, acc [][16]float64 by row"), sizes: bothSizes,
			doc:  "adds x to the 16 interleaved sums acc of each row.",
			body: wideSum(func(f fp, i int) value { return f.wide("x", i) })},
		{name: "squares", params: parse("x []T, acc *[16]float64"), sizes: bothSizes,
			doc: "adds x**2 to the 16 interleaved sums acc.",
			body: wideSum(func(f fp, i int) value {
				if i%(64/f.gen.size) == 0 {
					f.ahead("x", i, 64/f.gen.bytes)
				}
				x := f.wide("x", i)
				return f.mul(x, x)
			})},
		moments(),
		{name: "squaresAround", params: parse("x []T, m []float64 by row, acc [][16]float64 by row"), sizes: bothSizes,
			doc: "adds (x-m)**2 to the 16 interleaved sums acc of each row.",
			body: wideSum(func(f fp, i int) value {
				d := f.sub(f.wide("x", i), f.arg("m"))
				return f.mul(d, d)
			})},
		{name: "dot", params: parse("a, b []T, acc [][16]float64 by row"), sizes: bothSizes,
			doc:  "adds a*b to the 16 interleaved sums acc of each row.",
			body: wideSum(func(f fp, i int) value { return f.mul(f.wide("a", i), f.wide("b", i)) })},
		gradW("weightBiasGrad", "w, b []float64, grad, x, nextGrad, nextX []T, m, s T",
			"adds g*(x-m)*s to w and g to b, and asks for nextGrad and nextX."),
		gradW("weightGrad", "w []float64, grad, x, nextGrad, nextX []T, m, s T", "adds g*(x-m)*s to w, and asks for nextGrad and nextX."),
	}
	for _, weight := range []bool{true, false} {
		all = append(all, normSums(weight), normGrad(weight))
	}
	return all
}

// wideSum is a body that adds term(i), a vector of float64, to acc.
func wideSum(term func(f fp, i int) value) func(g *gen) {
	return func(g *gen) {
		f := g.fp(8)
		acc := g.sums("acc")
		g.loop(func() {
			g.vectors(8, func(i int) { acc.add(f, i, 0, term(f, i)) })
		})
		acc.store(g)
	}
}

// maximum does not change the accumulator for NaN.
func maximum(g *gen) {
	if g.neon != nil {
		g.neon.maximum(g)
		return
	}
	f := g.fp(g.size)
	larger := func(x value, acc operand.Op) { g.pick(g.VMAXPS, g.VMAXPD, acc, x, acc) }
	tops := bundle{f.reg(f.arg("top"))}
	for len(tops) < step/f.lanes() || len(tops) < g.ways() {
		top := g.tmp()
		g.VMOVAPS(tops[0], top)
		tops = append(tops, top)
	}
	i := 0
	g.bundles(g.size, func(f fp, at int) {
		x := f.load("x", at)
		xs, ok := x.(bundle)
		if !ok {
			xs = bundle{x}
		}
		for _, x := range xs {
			larger(x, tops[i%len(tops)])
			i++
		}
	})
	for len(tops) > 1 {
		larger(tops[len(tops)-1], tops[0])
		tops = tops[:len(tops)-1]
	}
	g.foldMaximum(tops[0].(reg.VecVirtual))
}

// foldMaximum stores the largest element of v.
func (g *gen) foldMaximum(v reg.VecVirtual) {
	x, half := v.AsX(), g.XMM()
	if g.bytes == 64 {
		upper := g.YMM()
		g.VEXTRACTF64X4(operand.Imm(1), v, upper)
		g.pick(g.VMAXPS, g.VMAXPD, upper, v.AsY(), v.AsY())
	}
	g.VEXTRACTF128(operand.Imm(1), v.AsY(), half)
	g.pick(g.VMAXPS, g.VMAXPD, half, x, x)
	for n := 8; n >= g.size; n /= 2 {
		g.VPSRLDQ(operand.Imm(uint64(n)), x, half)
		g.pick(g.VMAXPS, g.VMAXPD, half, x, x)
	}
	g.pick(g.VMOVSS, g.VMOVSD, x, g.fixed("top", 0))
}

func narrowSum(g *gen) {
	f := g.fp(g.size)
	acc := g.accumulators("acc", step*g.size)
	g.loop(func() {
		g.vectors(g.size, func(i int) {
			g.ahead("x", i, 1)
			f.accumulate(acc.regs[i/g.lanes()], f.load("x", i))
		})
	})
	acc.store(g)
}

// product is g*w, or g without a weight.
func (f fp) product(weight bool, i int) value {
	u := f.load("grad", i)
	if weight {
		u = f.mul(u, f.at("w", i))
	}
	return u
}

// eachWide calls use for each part of two vectors of T, with its first element and
// its float64 values.
func (g *gen) eachWide(i int, a, b value, use func(i int, a, b value)) {
	if g.size == 8 {
		use(i, a, b)
		return
	}
	a0, a1 := g.widen(a)
	b0, b1 := g.widen(b)
	use(i, a0, b0)
	use(i+g.lanes()/2, a1, b1)
}

// moments reads each row once.
func moments() *spec {
	return &spec{name: "moments", params: parse("x []T, sum, sq [][16]float64 by row"), sizes: singleOnly,
		doc: "adds x and x**2 to the 16 interleaved sums sum and sq of each row.",
		body: func(g *gen) {
			f := g.fp(8)
			sum, sq := g.sums("sum"), g.sums("sq")
			g.loop(func() {
				g.vectors(8, func(i int) {
					x := f.wide("x", i)
					sum.add(f, i, 0, x)
					sq.add(f, i, 0, f.mul(x, x))
				})
			})
			sum.store(g)
			sq.store(g)
		}}
}

func normSums(weight bool) *spec {
	s := &spec{name: "normSums", params: parse("grad, x []T, m, s []T by row, su, suh [][16]float64 by row"), sizes: bothSizes,
		doc: "adds u = g and u*(x-m)*s to the 16 interleaved sums su and suh of each row."}
	if weight {
		s.name += "W"
		s.params = parse("grad, x []T, w []T by column, m, s []T by row, su, suh [][16]float64 by row")
		s.doc = "adds u = g*w and u*(x-m)*s to the 16 interleaved sums su and suh of each row."
	}
	s.body = func(g *gen) {
		f, d := g.fp(g.size), g.fp(8)
		su, suh := g.sums("su"), g.sums("suh")
		g.loop(func() {
			g.vectors(g.size, func(i int) {
				g.eachWide(i, f.product(weight, i), f.centered(i), func(i int, u, h value) {
					su.add(d, i, 0, u)
					suh.add(d, i, 0, d.mul(u, h))
				})
			})
		})
		su.store(g)
		suh.store(g)
	}
	return s
}

func normGrad(weight bool) *spec {
	s := &spec{name: "normGrad", params: parse("dst, grad, x []T, m, s, a, b []T by row"), sizes: bothSizes, far: true,
		doc: "computes dst = s * (u - a - (x-m)*s*b) with u = g."}
	if weight {
		s.name += "W"
		s.params = parse("dst, grad, x []T, w []T by column, m, s, a, b []T by row")
		s.doc += "*w."
	}
	s.body = early("dst", func(f fp, i int) value {
		u := f.sub(f.product(weight, i), f.arg("a"))
		return f.mul(f.sub(u, f.mul(f.centered(i), f.arg("b"))), f.arg("s"))
	})
	return s
}

// gradW makes the kernel that adds one row to the gradient of the weight and, if it
// has a parameter b, to that of the bias.
func gradW(name, params, doc string) *spec {
	s := &spec{name: name, params: parse(params), sizes: bothSizes, doc: doc}
	s.body = func(g *gen) {
		f, d := g.fp(g.size), g.fp(8)
		_, bias := g.pointers["b"]
		g.loop(func() {
			for i := 0; i < step; i += 64 / g.size {
				g.prefetch("nextGrad", i)
				g.prefetch("nextX", i)
			}
			g.vectors(g.size, func(i int) {
				g.eachWide(i, f.load("grad", i), f.centered(i), func(i int, u, h value) {
					d.store(d.add(d.mul(u, h), d.at("w", i)), "w", i)
					if bias {
						d.store(d.add(u, d.at("b", i)), "b", i)
					}
				})
			})
		})
	}
	return s
}

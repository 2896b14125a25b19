package main

import "math"

// exponentials are the float32 kernels built on exp, evaluated in float64 as in
// scalar.go, operation by operation.
func exponentials() []*spec {
	const unary, grad = "dst, x []T", "dst, grad, x []T"
	return []*spec{
		{name: "exp", params: parse(unary), sizes: singleOnly, doc: "computes dst = exp(x).",
			body: wideUnary(fp.exp)},
		{name: "sigmoid", params: parse(unary), sizes: singleOnly, doc: "computes dst = sigmoid(x).",
			body: wideUnary(fp.sigmoid)},
		{name: "tanh", params: parse(unary), sizes: singleOnly, doc: "computes dst = tanh(x).",
			body: wideUnary(fp.tanh)},
		{name: "silu", params: parse(unary), sizes: singleOnly, doc: "computes dst = x*sigmoid(x).",
			body: wideUnary(func(f fp, x value) value { return f.mul(x, f.sigmoid(x)) })},
		{name: "siluGrad", params: parse(grad), sizes: singleOnly, doc: "computes g times the derivative of silu at x.",
			body: wideSlope(fp.siluSlope)},
		{name: "gelu", params: parse(unary), sizes: singleOnly, doc: "computes dst = x*Phi(x).",
			body: wideUnary(func(f fp, x value) value {
				cdf, _ := f.phi(x)
				return f.mul(x, cdf)
			})},
		{name: "geluGrad", params: parse(grad), sizes: singleOnly, doc: "computes g times the derivative of gelu at x.",
			body: wideSlope(func(f fp, x value) value {
				cdf, pdf := f.phi(x)
				return f.add(cdf, f.mul(x, pdf))
			})},
		{name: "geluTanh", params: parse(unary), sizes: singleOnly, doc: "computes the tanh form of gelu.",
			body: wideUnary(func(f fp, x value) value {
				_, s := f.geluSigmoid(x)
				return f.mul(x, s)
			})},
		{name: "geluTanhGrad", params: parse(grad), sizes: singleOnly, doc: "computes g times the derivative of geluTanh at x.",
			body: wideSlope(fp.geluTanhSlope)},
	}
}

// wideUnary is a body that stores op(x), evaluated in float64, in dst.
func wideUnary(op func(f fp, x value) value) func(g *gen) {
	return func(g *gen) {
		f := g.fp(8)
		g.loop(func() {
			g.vectors(8, func(i int) { f.storeNarrow(op(f, f.wide("x", i)), "dst", i) })
		})
	}
}

// wideSlope is a body that stores g*op(x), with op(x) evaluated in float64 and
// rounded to float32, in dst.
func wideSlope(op func(f fp, x value) value) func(g *gen) {
	return func(g *gen) {
		f := g.fp(8)
		g.loop(func() {
			g.vectors(8, func(i int) {
				x := f.narrow(op(f, f.wide("x", i)))
				g.VMULPS(g.at("grad", i), x, x)
				g.VMOVUPS(x, g.at("dst", i))
			})
		})
	}
}

// series is c[0] + q*(c[1] + q*(...)).
func (f fp) series(q value, c ...float64) value {
	sum := f.mul(q, f.c(c[len(c)-1]))
	for i := len(c) - 2; i > 0; i-- {
		sum = f.mul(q, f.add(sum, f.c(c[i])))
	}
	return f.add(sum, f.c(c[0]))
}

// expParts returns p and s with exp(x) = s + s*p.
func (f fp) expParts(x value) (p, s value) {
	const shift = 0x1.8p52
	n := f.add(f.mul(x, f.c(math.Log2E)), f.c(shift))
	r := f.sub(x, f.mul(f.sub(n, f.c(shift)), f.c(math.Ln2)))
	q := f.mul(r, r)
	even := f.series(q, 1, 1.0/6, 1.0/120, 1.0/5040)
	odd := f.series(q, 1.0/2, 1.0/24, 1.0/720, 1.0/40320)
	p = f.mul(r, f.add(even, f.mul(r, odd)))
	return p, f.shiftLeft(f.addInt(n, f.bits(1023)), 52)
}

func (f fp) exp(x value) value {
	p, s := f.expParts(x)
	e := f.add(s, f.mul(s, p))
	e = f.choose(f.compare(greater, x, f.c(708)), f.c(math.Inf(1)), e)
	return f.keep(f.compare(notLess, x, f.c(-708)), e)
}

func (f fp) sigmoid(x value) value {
	return f.div(f.c(1), f.add(f.exp(f.neg(x)), f.c(1)))
}

func (f fp) tanh(x value) value {
	p, s := f.expParts(f.add(x, x))
	e := f.add(f.mul(s, p), f.sub(s, f.c(1)))
	y := f.div(e, f.add(e, f.c(2)))
	one := f.or(f.and(x, f.signBit()), f.c(1))
	y = f.choose(f.compare(greater, f.abs(x), f.c(10)), one, y)
	return f.choose(f.compare(eq, x, f.c(0)), x, y)
}

func (f fp) siluSlope(x value) value {
	s := f.sigmoid(x)
	return f.mul(s, f.add(f.mul(x, f.sub(f.c(1), s)), f.c(1)))
}

// phi returns the normal distribution function and density.
func (f fp) phi(x value) (cdf, pdf value) {
	z := f.mul(f.abs(x), f.c(math.Sqrt2/2))
	e := f.exp(f.neg(f.mul(z, z)))
	tail := f.mul(f.mul(e, f.erfcx(z)), f.c(0.5))
	tail = f.or(f.and(tail, f.magnitude()), f.and(f.neg(x), f.signBit()))
	// 1 - the sign bit: all ones for a positive x, and 0 for a negative one.
	upper := f.and(f.addInt(f.shiftRight(x, 63), f.bits(math.MaxUint64)), f.c(1))
	return f.add(upper, tail), f.mul(e, f.c(1/(math.Sqrt2*math.SqrtPi)))
}

func (f fp) erfcx(z value) value {
	t := f.div(f.c(1), f.add(f.mul(z, f.c(0.35)), f.c(1)))
	q := f.mul(t, t)
	even := f.series(q, 0.19746305174823775, 0.18452166903312034, 0.10880677958508976,
		0.007037914850400276, 0.1288106917549816, 0.10231660425997344)
	odd := f.series(q, 0.1975469178318557, 0.16623347353751447, 0.1274861817565086,
		-0.004795261530029037, -0.19669387362568128, -0.018734149323068286)
	return f.mul(t, f.add(even, f.mul(t, odd)))
}

const (
	geluScale = 2 * 0.7978845608028653558798921198687637369517
	geluCubic = 0.044715
)

// geluSigmoid returns q = geluCubic*x*x and the sigmoid of the tanh form.
func (f fp) geluSigmoid(x value) (q, s value) {
	q = f.mul(f.mul(x, f.c(geluCubic)), x)
	return q, f.sigmoid(f.mul(f.add(x, f.mul(q, x)), f.c(geluScale)))
}

func (f fp) geluTanhSlope(x value) value {
	q, s := f.geluSigmoid(x)
	c := f.mul(s, f.sub(f.c(1), s))
	d := f.mul(f.mul(f.mul(x, c), f.c(geluScale)), f.add(f.mul(q, f.c(3)), f.c(1)))
	return f.add(s, f.keep(f.compare(greater, c, f.c(0)), d))
}

// losses are the exponentials of whole rows. acc are 16 interleaved sums.
func losses() []*spec {
	return []*spec{
		{name: "expSum", params: parse("x []T, acc *[16]float64, m T"), sizes: singleOnly,
			doc:  "adds exp(x-m) to acc.",
			body: expSum(false)},
		{name: "expSumStore", params: parse("dst, x []T, acc *[16]float64, m T"), sizes: singleOnly,
			doc:  "computes dst = exp(x-m) and adds it to acc.",
			body: expSum(true)},
		{name: "logSoftmax", params: parse("dst, x []T, lse float64"), sizes: bothSizes, doc: "computes dst = x - lse.",
			body: wideUnary(func(f fp, x value) value { return f.sub(x, f.arg("lse")) })},
		{name: "softmaxLossGrad", params: parse("dst, x []T, lse, off, scale T"), sizes: singleOnly,
			doc: "computes dst = scale * (exp(x-lse) - off).",
			body: elementwise("dst", func(f fp, i int) value {
				e := f.exp32(f.sub(f.load("x", i), f.arg("lse")))
				return f.mul(f.sub(e, f.arg("off")), f.arg("scale"))
			})},
		{name: "logSoftmaxGrad", params: parse("dst, grad, y []T, s T"), sizes: singleOnly,
			doc: "computes dst = g - exp(y)*s.",
			body: elementwise("dst", func(f fp, i int) value {
				return f.sub(f.load("grad", i), f.mul(f.exp32(f.load("y", i)), f.arg("s")))
			})},
	}
}

func expSum(store bool) func(g *gen) {
	return func(g *gen) {
		f, d := g.fp(4), g.fp(8)
		acc := g.sums("acc")
		g.loop(func() {
			g.vectors(4, func(i int) {
				e := f.exp32(f.sub(f.load("x", i), f.arg("m")))
				if store {
					f.store(e, "dst", i)
				}
				lo, hi := g.widen(e)
				acc.add(d, i, lo)
				acc.add(d, i+g.lanes()/2, hi)
			})
		})
		acc.store(g)
	}
}

// exp32 is the exponential function in float32 arithmetic.
func (f fp) exp32(x value) value {
	const shift = 0x1.8p23
	n := f.add(f.mul(x, f.c(math.Log2E)), f.c(shift))
	k := f.sub(n, f.c(shift))
	r := f.sub(f.sub(x, f.mul(k, f.c(0.693359375))), f.mul(k, f.c(-2.12194440e-4)))
	p := f.mul(r, f.c(1.9875691500e-4))
	for _, c := range []float64{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1} {
		p = f.mul(f.add(p, f.c(c)), r)
	}
	p = f.add(p, f.c(5.0000001201e-1))
	y := f.add(f.add(f.mul(f.mul(r, r), p), r), f.c(1))
	e := f.mul(y, f.shiftLeft(f.addInt(n, f.bits(127)), 23))
	e = f.choose(f.compare(greater, x, f.c(88)), f.c(math.Inf(1)), e)
	return f.keep(f.compare(notLess, x, f.c(-87)), e)
}

// sums are the registers of 16 interleaved float64 accumulators.
type sums struct {
	name string
	regs []value
}

// sums loads the accumulators that argument name points to.
func (g *gen) sums(name string) sums { return g.accumulators(name, 16*8) }

// accumulators loads n bytes from argument name.
func (g *gen) accumulators(name string, n int) sums {
	s := sums{name: name}
	for at := 0; at < n; at += g.bytes {
		s.regs = append(s.regs, g.fp(8).reg(g.fixed(name, at)))
	}
	return s
}

// add adds x, float64 elements from number i of a step.
func (s sums) add(f fp, i int, x value) {
	r := s.regs[i/(f.gen.bytes/8)%len(s.regs)]
	f.VADDPD(x, r, r)
}

func (s sums) store(g *gen) {
	for i, r := range s.regs {
		g.VMOVUPS(r, g.fixed(s.name, i*g.bytes))
	}
}

package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// exponentials are the float32 kernels built on exp, operation by operation as
// in scalar.go.
func exponentials() []*spec {
	var all []*spec
	for _, k := range []struct {
		name, doc string
		op        func(f fp, x value) value
	}{
		{"exp", "exp(x)", fp.expAll32},
		{"sigmoid", "sigmoid(x)", func(f fp, x value) value { return f.div(f.c(1), f.onePlusExp(f.neg(x))) }},
		{"tanh", "tanh(x)", fp.tanh},
		{"silu", "x*sigmoid(x)", func(f fp, x value) value { return f.div(x, f.onePlusExp(f.neg(x))) }},
		{"gelu", "x*Phi(x)", func(f fp, x value) value {
			cdf, _ := f.normal(x)
			return f.mul(x, cdf)
		}},
		{"geluTanh", "the tanh form of gelu", func(f fp, x value) value {
			return f.div(x, f.onePlusExp(f.mul(x, f.geluTanhWeight(f.mul(x, x)))))
		}},
	} {
		all = append(all, &spec{name: k.name, params: parse("dst, x []T"), sizes: singleOnly, stream: true,
			doc:  "computes dst = " + k.doc + ".",
			body: interleaved("dst", func(f fp, i int) value { return k.op(f, f.load("x", i)) })})
	}
	for _, k := range []struct {
		name  string
		slope func(f fp, x value) value
	}{{"silu", fp.siluSlope}, {"gelu", fp.geluSlope}, {"geluTanh", fp.geluTanhSlope}} {
		all = append(all, &spec{name: k.name + "Grad", params: parse("dst, grad, x []T"), sizes: singleOnly, stream: true,
			doc: "computes g times the derivative of " + k.name + " at x.",
			body: interleaved("dst", func(f fp, i int) value {
				return f.mul(k.slope(f, f.load("x", i)), f.at("grad", i))
			})})
	}
	return all
}

// series is c[0] + q*(c[1] + q*(...)).
func (f fp) series(q value, c ...float64) value {
	sum := f.mul(q, f.c(c[len(c)-1]))
	for i := len(c) - 2; i > 0; i-- {
		sum = f.mul(q, f.add(sum, f.c(c[i])))
	}
	return f.add(sum, f.c(c[0]))
}

// onePlusExp is 1 + exp(x).
func (f fp) onePlusExp(x value) value { return f.add(f.exp32(x), f.c(1)) }

func (f fp) tanh(x value) value {
	a := f.least(f.c(10), f.abs(x))
	p, n := f.expParts32(f.add(a, a))
	s := f.pow2(n)
	e := f.add(f.mul(s, p), f.sub(s, f.c(1)))
	return f.or(f.div(e, f.add(e, f.c(2))), f.and(x, f.signBit()))
}

func (f fp) siluSlope(x value) value {
	x = f.clamp(x, -80, 80)
	e := f.expBelow88(f.neg(x))
	s := f.div(f.c(1), f.add(e, f.c(1)))
	return f.add(s, f.mul(f.mul(x, s), f.mul(e, s)))
}

// normal returns the normal distribution function and exp(-x*x/2).
func (f fp) normal(x value) (cdf, e value) {
	e = f.expBelow88(f.mul(f.mul(x, x), f.c(-0.5)))
	tail := f.mul(f.mul(e, f.erfcx(f.abs(x))), f.c(0.5))
	return f.choose(f.compare(greater, x, f.c(0)), f.sub(f.c(1), tail), tail), e
}

func (f fp) geluSlope(x value) value {
	cdf, e := f.normal(x)
	return f.add(cdf, f.mul(x, f.mul(e, f.c(1/(math.Sqrt2*math.SqrtPi)))))
}

func (f fp) erfcx(x value) value {
	t := f.div(f.c(1), f.add(f.mul(x, f.c(0.45/math.Sqrt2)), f.c(1)))
	return f.mul(f.series(t, 0.25386663951, 0.25428433653, 0.22463680719, 0.19350162931, 0.063872716317,
		0.087353537216, 0.0052612187794, -0.19458848507, 0.14456699416, -0.032755406018), t)
}

const (
	geluScale = 2 * 0.7978845608028653558798921198687637369517
	geluCubic = 0.044715
)

// geluTanhWeight is -u/x of the tanh form, from q = x*x.
func (f fp) geluTanhWeight(q value) value {
	return f.sub(f.mul(q, f.c(-geluScale*geluCubic)), f.c(geluScale))
}

func (f fp) geluTanhSlope(x value) value {
	x = f.clamp(x, -10, 10)
	q := f.mul(x, x)
	e := f.expBelow88(f.mul(x, f.geluTanhWeight(q)))
	s := f.div(f.c(1), f.add(e, f.c(1)))
	du := f.add(f.mul(q, f.c(3*geluScale*geluCubic)), f.c(geluScale))
	return f.add(s, f.mul(f.mul(f.mul(x, s), f.mul(e, s)), du))
}

// losses are the exponentials of whole rows. acc has 16 interleaved sums.
func losses() []*spec {
	return []*spec{
		{name: "expSum", params: parse("x []T, m []T by row, acc [][16]float64 by row"), sizes: singleOnly,
			doc:  "adds exp(x-m), where no x is larger than m, to acc of each row.",
			body: expSum(false)},
		{name: "expSumStore", params: parse("dst, x []T, m []T by row, acc [][16]float64 by row"), sizes: singleOnly,
			doc:  "computes dst = exp(x-m), where no x is larger than m, and adds it to acc of each row.",
			body: expSum(true)},
		{name: "logSoftmax", params: parse("dst, x []T, lse []float64 by row"), sizes: bothSizes, far: true, doc: "computes dst = x - lse.",
			body: logSoftmax},
		{name: "softmaxLossGrad", params: parse("dst, x []T, lse, scale []T by row, off T"), sizes: singleOnly, far: true,
			doc: "computes dst = scale * (exp(x-lse) - off).",
			body: interleaved("dst", func(f fp, i int) value {
				e := f.exp32(f.sub(f.load("x", i), f.arg("lse")))
				return f.mul(f.sub(e, f.arg("off")), f.arg("scale"))
			})},
		{name: "logSoftmaxGrad", params: parse("dst, grad, y []T, s []T by row"), sizes: singleOnly, far: true,
			doc: "computes dst = g - exp(y)*s.",
			body: interleaved("dst", func(f fp, i int) value {
				return f.sub(f.load("grad", i), f.mul(f.exp32(f.load("y", i)), f.arg("s")))
			})},
	}
}

// logSoftmax subtracts in float64.
func logSoftmax(g *gen) {
	f := g.fp(8)
	g.loop(func() {
		g.vectors(8, func(i int) { f.storeNarrow(f.sub(f.wide("x", i), f.arg("lse")), "dst", i) })
	})
}

// expSum sums exp(x-m), where m is the row's largest element.
func expSum(store bool) func(g *gen) {
	return func(g *gen) {
		d := g.fp(8)
		acc := g.sums("acc")
		g.bundles(4, func(f fp, i int) {
			g.ahead("x", i, f.ways)
			e := f.expBelow88(f.sub(f.load("x", i), f.arg("m")))
			if store {
				f.store(e, "dst", i)
			}
			lo, hi := g.widen(e)
			acc.add(d, i, f.lanes(), lo)
			acc.add(d, i+d.lanes(), f.lanes(), hi)
		})
		acc.store(g)
	}
}

const shift32 = 0x1.8p23

// exp32 is the exponential function; results that would be subnormal are 0.
func (f fp) exp32(x value) value {
	e := f.expBelow88(x) // before the comparison, because there are few mask registers
	return f.choose(f.compare(greater, x, f.c(88)), f.c(math.Inf(1)), e)
}

// expBelow88 is exp32 for x that are at most 88, or NaN.
func (f fp) expBelow88(x value) value {
	enough := f.compare(notLess, x, f.c(-87))
	if f.gen.bytes == 64 {
		p, k := f.expScale32(x)
		return f.scaled(enough, f.add(p, f.c(1)), k)
	}
	p, n := f.expParts32(x)
	return f.keep(enough, f.mul(f.add(p, f.c(1)), f.pow2(n)))
}

// expParts32 returns p and n with exp(x) = (1+p) * pow2(n).
func (f fp) expParts32(x value) (p, n value) {
	n = f.add(f.mul(x, f.c(math.Log2E)), f.c(shift32))
	return f.expRest32(x, f.sub(n, f.c(shift32))), n
}

// expScale32 returns p and k with exp(x) = (1+p) * 2**k: the p of expParts32, in
// fewer AVX-512 instructions.
func (f fp) expScale32(x value) (p, k value) {
	k = f.one(f.mul(x, f.c(math.Log2E)), func(a, to operand.Op) { f.VRNDSCALEPS(operand.Imm(0), a, to) })
	return f.expRest32(x, k), k
}

// expRest32 is exp(x - k*ln(2)) - 1.
func (f fp) expRest32(x, k value) value {
	r := f.copied(x)
	f.subtract(r, k, f.c(0.693145751953125))
	f.subtract(r, k, f.c(1.4286197256296873e-6))
	p := f.mul(r, f.c(0.0013818939))
	for _, c := range []float64{0.008368704, 0.04166829, 0.16666521} {
		p = f.mul(f.add(p, f.c(c)), r)
	}
	p = f.add(p, f.c(0.49999994))
	return f.add(f.mul(f.mul(r, r), p), r)
}

// scaled is x * 2**k. If there is a mask, elements outside of it are 0 (AVX-512).
func (f fp) scaled(mask, x, k value) value {
	return f.each(func(xs ...value) value {
		to := f.tmp()
		if mask == nil {
			f.VSCALEFPS(xs[1], xs[0], to)
		} else {
			f.VSCALEFPS_Z(xs[1], xs[0], xs[2], to)
		}
		return to
	}, x, k, mask)
}

// pow2 is 2**n for the low bits of n.
func (f fp) pow2(n value) value { return f.shiftLeft(f.addInt(n, f.bits(127)), 23) }

// expAll32 is exp32 with subnormal results.
func (f fp) expAll32(x value) value {
	x = f.clamp(x, -104, 89)
	if f.gen.bytes == 64 {
		p, k := f.expScale32(x)
		return f.scaled(nil, f.add(p, f.c(1)), k)
	}
	p, n := f.expParts32(x)
	h := f.add(f.mul(f.sub(n, f.c(shift32)), f.c(0.5)), f.c(shift32))
	return f.mul(f.mul(f.add(p, f.c(1)), f.pow2(h)), f.pow2(f.subInt(n, h)))
}

// sums holds the registers of 16 interleaved float64 accumulators.
type sums struct {
	name string
	regs []value
}

// sums loads the accumulators from the address in argument name.
func (g *gen) sums(name string) sums { return g.accumulators(name, 16*8) }

// accumulators loads n bytes from the address in argument name.
func (g *gen) accumulators(name string, n int) sums {
	s := sums{name: name}
	for at := 0; at < n; at += g.bytes {
		s.regs = append(s.regs, g.fp(8).reg(g.fixed(name, at)))
	}
	return s
}

// add adds the vectors of x: the float64 elements i, i+stride, ... of a step.
func (s sums) add(f fp, i, stride int, x value) {
	xs, ok := x.(bundle)
	if !ok {
		xs = bundle{x}
	}
	for j, v := range xs {
		r := s.regs[(i+j*stride)/(f.gen.bytes/8)%len(s.regs)]
		f.accumulate(r, v)
	}
}

// accumulate adds x to acc.
func (f fp) accumulate(acc, x value) {
	if f.neon != nil {
		f.neon.accumulate(f.size, acc, x)
		return
	}
	f.pickSize(f.VADDPS, f.VADDPD)(x, acc, acc)
}

func (s sums) store(g *gen) {
	for i, r := range s.regs {
		if to := g.fixed(s.name, i*g.bytes); g.neon != nil {
			g.neon.store(r.(*vreg), to.(place))
		} else {
			g.VMOVUPS(r, to)
		}
	}
}

package main

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// streams are the elementwise kernels of plain arithmetic. The code here must do
// the operations of the Go reference in the same order, each one rounded.
func streams() []*spec {
	return []*spec{
		{name: "add", params: parse("dst, a, b []T"), sizes: bothSizes, stream: true, doc: "computes dst = a + b.",
			body: pairwise(fp.add)},
		{name: "sub", params: parse("dst, a, b []T"), sizes: bothSizes, stream: true, doc: "computes dst = a - b.",
			body: pairwise(fp.sub)},
		{name: "mul", params: parse("dst, a, b []T"), sizes: bothSizes, stream: true, doc: "computes dst = a * b.",
			body: pairwise(fp.mul)},
		{name: "gate", params: parse("dst, a, b []T"), sizes: bothSizes, stream: true, doc: "computes dst = a, or 0 where b <= 0.",
			body: pairwise(func(f fp, a, b value) value {
				return f.keep(f.compare(notAtMost, f.reg(b), f.c(0)), a)
			})},
		{name: "affine", params: parse("dst, x []T, a, b T"), sizes: bothSizes, stream: true, doc: "computes dst = a*x + b.",
			body: elementwise("dst", func(f fp, i int) value {
				return f.add(f.mul(f.load("x", i), f.arg("a")), f.arg("b"))
			})},
		{name: "addTwice", params: parse("dst, too, a, b []T"), sizes: singleOnly, doc: "computes dst = too = a + b.",
			body: elementwise("dst", func(f fp, i int) value {
				sum := f.add(f.load("a", i), f.at("b", i))
				f.store(sum, "too", i)
				return sum
			})},
		{name: "addRow", params: parse("y, x, nextY, nextX []T"), sizes: bothSizes, doc: "computes y += x and asks for nextY and nextX.",
			body: func(g *gen) {
				f := g.fp(g.size)
				g.loop(func() {
					for i := 0; i < step; i += 64 / g.size {
						g.prefetch("nextY", i)
						g.prefetch("nextX", i)
					}
					g.vectors(g.size, func(i int) { f.store(f.add(f.load("x", i), f.at("y", i)), "y", i) })
				})
			}},
		{name: "center", params: parse("dst, x []T, m, s []T by row"), sizes: bothSizes, far: true, doc: "computes dst = (x-m) * s.",
			body: early("dst", func(f fp, i int) value { return f.centered(i) })},
		{name: "centerW", params: parse("dst, x []T, w []T by column, m, s []T by row"), sizes: bothSizes, far: true,
			doc: "computes dst = (x-m) * s * w.", body: early("dst", func(f fp, i int) value { return f.mul(f.centered(i), f.at("w", i)) })},
		{name: "centerWB", params: parse("dst, x []T, w, b []T by column, m, s []T by row"), sizes: bothSizes, far: true,
			doc: "computes dst = (x-m) * s * w + b.",
			body: early("dst", func(f fp, i int) value {
				return f.add(f.mul(f.centered(i), f.at("w", i)), f.at("b", i))
			})},
		{name: "softmaxGrad", params: parse("dst, grad, y []T, s []T by row"), sizes: bothSizes, far: true, doc: "computes dst = y * (g-s).",
			body: early("dst", func(f fp, i int) value {
				return f.mul(f.sub(f.load("grad", i), f.arg("s")), f.at("y", i))
			})},
	}
}

// elementwise is a body that stores f(i), a vector of T, in dst.
func elementwise(dst string, result func(f fp, i int) value) func(g *gen) {
	return func(g *gen) {
		f := g.fp(g.size)
		g.loop(func() {
			g.vectors(g.size, func(i int) { f.store(result(f, i), dst, i) })
		})
	}
}

// early is elementwise for kernels that prefetch their operands a block ahead:
// those with many operands, with much to compute, or after another pass.
func early(dst string, result func(f fp, i int) value) func(g *gen) {
	return elementwise(dst, func(f fp, i int) value {
		f.operandsAhead(i)
		return result(f, i)
	})
}

// interleaved is early for long chains of operations.
func interleaved(dst string, result func(f fp, i int) value) func(g *gen) {
	return func(g *gen) {
		g.bundles(g.size, func(f fp, i int) {
			f.operandsAhead(i)
			f.store(result(f, i), dst, i)
		})
	}
}

// operandsAhead prefetches all operands that are read, so not dst.
func (f fp) operandsAhead(i int) {
	for _, name := range slices.Sorted(maps.Keys(f.pointers)) {
		if name != "dst" && f.pointers[name].by == "" {
			f.ahead(name, i, f.ways)
		}
	}
}

func pairwise(op func(f fp, a, b value) value) func(g *gen) {
	return elementwise("dst", func(f fp, i int) value { return op(f, f.load("a", i), f.at("b", i)) })
}

// centered is (x-m)*s.
func (f fp) centered(i int) value {
	return f.mul(f.sub(f.load("x", i), f.arg("m")), f.arg("s"))
}

// optimizers are the steps of SGD and Adam.
func optimizers() []*spec {
	all := []*spec{
		{name: "sgd", params: parse("p, grad []T, lr, wd, scale, tiny T"), sizes: bothSizes,
			doc: "is one step of SGD without momentum.",
			body: early("p", func(f fp, i int) value {
				return f.rounded(f.sub(f.load("p", i), f.mul(f.gradient(i), f.arg("lr"))), i)
			})},
	}
	for _, first := range []bool{false, true} {
		for _, nesterov := range []bool{false, true} {
			all = append(all, momentum(first, nesterov))
		}
	}
	all = append(all, adam("adam", true), adam("adamHigh", false))
	for _, s := range all {
		all = append(all, s.ofBF16())
	}
	return all
}

// ofBF16 is the step s for parameters in bfloat16: p are their masters in float32, the gradients are bfloat16, and the
// new parameters are rounded to out.
func (s *spec) ofBF16() *spec {
	b := *s
	b.name, b.sizes, b.params = s.name+"BF16", nil, nil
	b.doc += " It rounds the parameters to out."
	out := 0
	for i, p := range s.params {
		p.typ = strings.ReplaceAll(p.typ, "T", "float32")
		if p.name == "grad" {
			p.typ = "[]BF16"
		}
		if p.slice() {
			out = i + 1
		}
		b.params = append(b.params, p)
	}
	b.params = slices.Insert(b.params, out, param{name: "out", typ: "[]BF16"})
	return &b
}

// rounded stores vector i of the parameters in out as well, if there is one.
func (f fp) rounded(p value, i int) value {
	if _, ok := f.pointers["out"]; ok {
		f.storeBF16(p, "out", i)
	}
	return p
}

// gradient is scale*g + wd*p.
func (f fp) gradient(i int) value {
	var g value
	if f.pointers["grad"].size == 2 {
		g = f.loadBF16("grad", i)
	} else {
		g = f.load("grad", i)
	}
	g = f.mul(f.flush(g, f.arg("tiny")), f.arg("scale"))
	return f.add(g, f.mul(f.load("p", i), f.arg("wd")))
}

func momentum(first, nesterov bool) *spec {
	s := &spec{name: "momentum", params: parse("p, grad, mom []T, lr, wd, scale, tiny, mu, in T"), sizes: bothSizes,
		doc: "is one step of SGD with momentum."}
	if first {
		s.name += "First"
		s.doc += " It starts the momentum."
	}
	if nesterov {
		s.name += "Nesterov"
	}
	s.body = early("p", func(f fp, i int) value {
		d := f.gradient(i)
		m := d
		if !first {
			m = f.add(f.mul(f.flush(f.load("mom", i), f.arg("tiny")), f.arg("mu")), f.mul(d, f.arg("in")))
		}
		m = f.flush(m, f.arg("tiny"))
		f.store(m, "mom", i)
		if nesterov {
			m = f.add(d, f.mul(m, f.arg("mu")))
		}
		return f.rounded(f.sub(f.load("p", i), f.mul(m, f.arg("lr"))), i)
	})
	return s
}

// adam interpolates the first moment from its old value (weight below 1/2), or from
// the gradient.
func adam(name string, low bool) *spec {
	s := &spec{name: name, sizes: bothSizes,
		params: parse("p, grad, m, v []T, step, root, inverse, eps, weight, b2, in2, scale, tiny, least, normal, wd, keep T"),
		doc:    "is one step of Adam. The first moment is m + weight*(g-m)."}
	if !low {
		s.doc = "is one step of Adam. The first moment is g - weight*(g-m)."
	}
	s.body = interleaved("p", func(f fp, i int) value { return f.adam(i, low) })
	return s
}

func (f fp) adam(i int, low bool) value {
	d := f.gradient(i)
	m := f.flush(f.load("m", i), f.arg("tiny"))
	diff := f.mul(f.sub(d, m), f.arg("weight"))
	if low {
		m = f.add(m, diff)
	} else {
		m = f.sub(d, diff)
	}
	m = f.flush(m, f.arg("tiny"))
	f.store(m, "m", i)
	d = f.flush(d, f.arg("least"))
	v := f.add(f.mul(f.flush(f.load("v", i), f.arg("normal")), f.arg("b2")), f.mul(f.mul(d, f.arg("in2")), d))
	v = f.flush(v, f.arg("normal"))
	f.store(v, "v", i)
	denom := f.add(f.overRoot(f.sqrt(v)), f.arg("eps"))
	p := f.mul(f.load("p", i), f.arg("keep"))
	return f.rounded(f.add(p, f.div(f.mul(m, f.arg("step")), denom)), i)
}

// overRoot returns a/root, rounded as a division rounds it. With AVX-512, where Intel's
// divisions are slowest, it is in float32 a product with the inverse and its
// correction (Markstein 1990). That this rounds correctly was checked for all roots:
// only quotients beside the middle of two numbers could fail, and they are few
// enough. In float64 they are too many. a changes; neither a nor the result may be
// subnormal.
func (f fp) overRoot(a value) value {
	if f.size == 8 || f.neon != nil || f.gen.bytes != 64 {
		return f.div(a, f.arg("root"))
	}
	inverse := f.reg(f.arg("inverse"))
	q := f.least(f.c(math.MaxFloat32), f.mul(a, inverse)) // the correction of infinity is NaN
	f.subtract(a, q, f.reg(f.arg("root")))
	f.each(func(xs ...value) value {
		f.VFMADD231PS(xs[2], xs[1], xs[0])
		return nil
	}, q, a, inverse)
	return q
}

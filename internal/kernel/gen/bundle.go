package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// bundle is the same value for several vectors.
type bundle []value

// Asm makes a bundle a value; no instruction takes one.
func (bundle) Asm() string { panic("a bundle is not an operand") }

// each calls one for each vector of the bundles in xs. Values in xs that are not
// bundles are passed unchanged.
func (f fp) each(one func(xs ...value) value, xs ...value) value {
	n := 0
	for _, x := range xs {
		if b, ok := x.(bundle); ok {
			n = len(b)
		}
	}
	if n == 0 {
		return one(xs...)
	}
	results := make(bundle, n)
	for j := range results {
		part := make([]value, len(xs))
		for i, x := range xs {
			part[i] = x
			if b, ok := x.(bundle); ok {
				part[i] = b[j]
			}
		}
		results[j] = one(part...)
	}
	return results
}

// shared is the scalar x for all vectors of a bundle: one load for all or, if
// registers are few, an operand in memory.
func (f fp) shared(x value) value {
	if m, ok := x.(scalar); ok && f.ways > 1 && !m.whole {
		return f.reg(m)
	}
	return x
}

// widen converts the float32 vector x to float64: its lower and its upper half.
func (g *gen) widen(x value) (lo, hi value) {
	if g.neon != nil {
		return g.neon.op("fcvtl", 8, 16, x), g.neon.op("fcvtl2", 8, 16, x)
	}
	f := g.fp(8)
	lo = f.each(func(xs ...value) value {
		v, to := xs[0].(reg.VecVirtual), g.tmp()
		if g.bytes == 64 {
			g.VCVTPS2PD(v.AsY(), to)
		} else {
			g.VCVTPS2PD(v.AsX(), to)
		}
		return to
	}, x)
	hi = f.each(func(xs ...value) value {
		upper, to := g.half(), g.tmp()
		if g.bytes == 64 {
			g.VEXTRACTF64X4(operand.Imm(1), xs[0], upper)
		} else {
			g.VEXTRACTF128(operand.Imm(1), xs[0], upper)
		}
		g.VCVTPS2PD(upper, to)
		return to
	}, x)
	return lo, hi
}

// storeNarrow rounds the float64 vector x to T and writes it.
func (f fp) storeNarrow(x value, name string, i int) {
	if f.pointers[name].size == 4 {
		x = f.narrow(x)
	}
	f.store(x, name, i)
}

// narrow rounds a vector of float64 to float32.
func (f fp) narrow(x value) value {
	if f.neon != nil {
		return f.neon.op("fcvtn", 8, 8, x)
	}
	return f.each(func(xs ...value) value {
		h := f.half()
		if f.gen.bytes == 64 {
			f.VCVTPD2PS(xs[0], h)
		} else {
			f.VCVTPD2PSY(xs[0], h)
		}
		return h
	}, x)
}

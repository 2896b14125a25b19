package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fp emits arithmetic on vectors of floats of one size. Every result is a new
// virtual register; avo assigns the real ones.
//
// With ways > 1 an operand read from a slice is a bundle of that many vectors,
// one after the other, and each operation emits an instruction for each: the
// processor has something to do while it waits for a result. Long chains of
// dependent operations fill its window otherwise.
type fp struct {
	*gen
	size, ways int
}

func (g *gen) fp(size int) fp { return fp{g, size, 1} }

// bundle is the same value for several vectors.
type bundle []value

// Asm makes a bundle a value; no instruction takes one.
func (bundle) Asm() string { panic("a bundle is not an operand") }

// each calls one for the vectors of bundles among xs, with those of xs that
// are none as they are.
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

// shared is the scalar x in the form in which all vectors of a bundle use it
// best: one load for all, or an operand in memory where registers are few.
func (f fp) shared(x value) value {
	if m, ok := x.(scalar); ok && f.ways > 1 && !m.whole {
		return f.reg(m)
	}
	return x
}

// scalar is one number in memory, a constant or an argument, that stands for a
// vector of copies. A constant of AVX2 is stored as a whole vector, because
// AVX2 has no operands that are broadcast.
type scalar struct {
	operand.Mem
	whole bool
}

// value is an operand: a register, a scalar, or a vector in memory.
type value = operand.Op

// tmp is a new vector register.
func (g *gen) tmp() reg.VecVirtual {
	if g.bytes == 64 {
		return g.ZMM()
	}
	return g.YMM()
}

// half is a new register of half the length.
func (g *gen) half() reg.VecVirtual {
	if g.bytes == 64 {
		return g.YMM()
	}
	return g.XMM()
}

// bits is the constant with the given bits in every element.
func (f fp) bits(u uint64) scalar {
	key := constant{u, f.size}
	if m, ok := f.constants[key]; ok {
		return m
	}
	copies := 1
	if f.gen.bytes == 32 {
		copies = f.gen.bytes / f.size
	}
	s := scalar{f.StaticGlobal(key.name()), f.gen.bytes == 32}
	f.DataAttributes(attr.RODATA | attr.NOPTR)
	for range copies {
		if f.size == 4 {
			f.AppendDatum(operand.U32(uint32(u)))
		} else {
			f.AppendDatum(operand.U64(u))
		}
	}
	f.constants[key] = s
	return s
}

// c is the constant x.
func (f fp) c(x float64) scalar {
	if f.size == 4 {
		return f.bits(uint64(math.Float32bits(float32(x))))
	}
	return f.bits(math.Float64bits(x))
}

// arg is the scalar argument with that name, or the current row's element of a
// slice by row.
func (f fp) arg(name string) scalar {
	if f.pointers[name].by == byRow {
		return scalar{f.fixed(name, 0), false}
	}
	a, err := f.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return scalar{a.Addr, false}
}

// reg brings x into a register.
func (f fp) reg(x value) value {
	switch m := x.(type) {
	case bundle:
		return f.each(func(xs ...value) value { return f.reg(xs[0]) }, m)
	case scalar:
		to := f.tmp()
		if m.whole {
			f.VMOVUPS(m.Mem, to)
		} else if f.size == 4 {
			f.VBROADCASTSS(m.Mem, to)
		} else {
			f.VBROADCASTSD(m.Mem, to)
		}
		return to
	case operand.Mem:
		to := f.tmp()
		f.VMOVUPS(m, to)
		return to
	}
	return x
}

type emitter = func(...operand.Op)

// four are the forms of an instruction: float32 and float64, and the same with
// a broadcast operand.
type four [4]emitter

// two emits a two-operand instruction, the second operand in any form.
func (f fp) two(a, b value, forms four) value {
	return f.each(func(xs ...value) value {
		to := f.tmp()
		f.emit(forms, xs[0], xs[1], to)
		return to
	}, f.reg(a), f.shared(b))
}

// one emits a one-operand instruction.
func (f fp) one(a value, form func(a, to operand.Op)) value {
	return f.each(func(xs ...value) value {
		to := f.tmp()
		form(xs[0], to)
		return to
	}, f.reg(a))
}

// emit emits forms with the sources b and a, and then the rest.
func (f fp) emit(forms four, a, b value, rest ...operand.Op) {
	form := forms[:2]
	if m, ok := b.(scalar); ok {
		switch {
		case m.whole:
			b = m.Mem
		case f.gen.bytes == 64:
			form, b = forms[2:], m.Mem
		default:
			b = f.reg(m)
		}
	}
	form[f.size/8](append([]operand.Op{b, a}, rest...)...)
}

func (f fp) add(a, b value) value {
	return f.two(a, b, four{f.VADDPS, f.VADDPD, f.VADDPS_BCST, f.VADDPD_BCST})
}

func (f fp) sub(a, b value) value {
	return f.two(a, b, four{f.VSUBPS, f.VSUBPD, f.VSUBPS_BCST, f.VSUBPD_BCST})
}

func (f fp) mul(a, b value) value {
	return f.two(a, b, four{f.VMULPS, f.VMULPD, f.VMULPS_BCST, f.VMULPD_BCST})
}

// copied is x in registers of its own.
func (f fp) copied(x value) value {
	return f.one(x, func(a, to operand.Op) { f.VMOVAPS(a, to) })
}

// subtract changes a to a - b*c. The product needs no rounding, so that the
// fused operation gives the same bits as two.
func (f fp) subtract(a, b, c value) {
	f.each(func(xs ...value) value {
		f.emit(four{f.VFNMADD231PS, f.VFNMADD231PD, f.VFNMADD231PS_BCST, f.VFNMADD231PD_BCST}, xs[1], xs[2], xs[0])
		return nil
	}, a, f.reg(b), f.shared(c))
}

func (f fp) div(a, b value) value {
	return f.two(a, b, four{f.VDIVPS, f.VDIVPD, f.VDIVPS_BCST, f.VDIVPD_BCST})
}

func (f fp) sqrt(a value) value {
	return f.one(a, func(a, to operand.Op) { f.pickSize(f.VSQRTPS, f.VSQRTPD)(a, to) })
}

func (f fp) pickSize(ps, pd emitter) emitter {
	if f.size == 4 {
		return ps
	}
	return pd
}

// Bitwise operations.

func (f fp) and(a, b value) value {
	if f.gen.bytes == 64 {
		return f.two(a, b, four{f.VPANDD, f.VPANDQ, f.VPANDD_BCST, f.VPANDQ_BCST})
	}
	return f.two(a, b, four{f.VANDPS, f.VANDPD})
}

func (f fp) or(a, b value) value {
	if f.gen.bytes == 64 {
		return f.two(a, b, four{f.VPORD, f.VPORQ, f.VPORD_BCST, f.VPORQ_BCST})
	}
	return f.two(a, b, four{f.VORPS, f.VORPD})
}

func (f fp) xor(a, b value) value {
	if f.gen.bytes == 64 {
		return f.two(a, b, four{f.VPXORD, f.VPXORQ, f.VPXORD_BCST, f.VPXORQ_BCST})
	}
	return f.two(a, b, four{f.VXORPS, f.VXORPD})
}

// addInt adds integers of the elements' size.
func (f fp) addInt(a, b value) value {
	return f.two(a, b, four{f.VPADDD, f.VPADDQ, f.VPADDD_BCST, f.VPADDQ_BCST})
}

// subInt subtracts integers of the elements' size.
func (f fp) subInt(a, b value) value {
	return f.two(a, b, four{f.VPSUBD, f.VPSUBQ, f.VPSUBD_BCST, f.VPSUBQ_BCST})
}

// least is the smaller of a and b, most the larger; b where one is NaN.
func (f fp) least(a, b value) value {
	return f.two(a, b, four{f.VMINPS, f.VMINPD, f.VMINPS_BCST, f.VMINPD_BCST})
}

func (f fp) most(a, b value) value {
	return f.two(a, b, four{f.VMAXPS, f.VMAXPD, f.VMAXPS_BCST, f.VMAXPD_BCST})
}

// clamp is x within lo and hi; NaN stays NaN.
func (f fp) clamp(x value, lo, hi float64) value {
	return f.most(f.c(lo), f.least(f.c(hi), x))
}

func (f fp) shiftLeft(a value, n uint64) value {
	return f.one(a, func(a, to operand.Op) { f.pickSize(f.VPSLLD, f.VPSLLQ)(operand.Imm(n), a, to) })
}

func (f fp) shiftRight(a value, n uint64) value {
	return f.one(a, func(a, to operand.Op) { f.pickSize(f.VPSRLD, f.VPSRLQ)(operand.Imm(n), a, to) })
}

// signBit is the mask of the sign, magnitude that of all other bits.
func (f fp) signBit() scalar   { return f.bits(1 << (8*f.size - 1)) }
func (f fp) magnitude() scalar { return f.bits(1<<(8*f.size-1) - 1) }

func (f fp) abs(a value) value { return f.and(a, f.magnitude()) }
func (f fp) neg(a value) value { return f.xor(a, f.signBit()) }

// Predicates of comparisons, all quiet. "Not" ones hold for NaN.
const (
	eq        = 0
	unordered = 3
	less      = 0x11
	notLess   = 0x15
	notAtMost = 0x16
	greater   = 0x1e
)

// compare is the mask of the elements with a OP b: a mask register of AVX-512,
// a vector of AVX2.
func (f fp) compare(op uint64, a, b value) value {
	imm := func(form emitter) emitter {
		return func(ops ...operand.Op) { form(append([]operand.Op{operand.Imm(op)}, ops...)...) }
	}
	return f.each(func(xs ...value) value {
		var to operand.Op = f.tmp()
		if f.gen.bytes == 64 {
			to = f.K()
		}
		f.emit(four{imm(f.VCMPPS), imm(f.VCMPPD), imm(f.VCMPPS_BCST), imm(f.VCMPPD_BCST)}, xs[0], xs[1], to)
		return to
	}, f.reg(a), f.shared(b))
}

// keep is x where the mask is set and 0 elsewhere.
func (f fp) keep(mask, x value) value {
	if f.gen.bytes != 64 {
		return f.and(mask, x)
	}
	return f.each(func(xs ...value) value {
		to := f.tmp()
		if f.size == 4 {
			f.VMOVAPS_Z(xs[1], xs[0], to)
		} else {
			f.VMOVAPD_Z(xs[1], xs[0], to)
		}
		return to
	}, mask, f.reg(x))
}

// choose is yes where the mask is set and no elsewhere.
func (f fp) choose(mask, yes, no value) value {
	return f.each(func(xs ...value) value {
		to := f.tmp()
		switch {
		case f.gen.bytes == 64:
			f.pickSize(f.VBLENDMPS, f.VBLENDMPD)(xs[1], xs[2], xs[0], to)
		case f.size == 4:
			f.VBLENDVPS(xs[0], xs[1], xs[2], to)
		default:
			f.VBLENDVPD(xs[0], xs[1], xs[2], to)
		}
		return to
	}, mask, f.reg(yes), f.reg(no))
}

// flush is x, or 0 where |x| < limit.
func (f fp) flush(x, limit value) value {
	return f.keep(f.compare(notLess, f.abs(x), limit), x)
}

// at is a vector of slice name from element i, in memory.
func (f fp) at(name string, i int) value {
	if f.ways == 1 {
		return f.gen.at(name, i)
	}
	all := make(bundle, f.ways)
	for j := range all {
		all[j] = f.gen.at(name, i+j*f.lanes())
	}
	return all
}

func (f fp) lanes() int { return f.gen.bytes / f.size }

// load reads a vector from element i of slice name.
func (f fp) load(name string, i int) value { return f.reg(f.at(name, i)) }

// store writes x to slice name from element i.
func (f fp) store(x value, name string, i int) {
	f.each(func(xs ...value) value {
		if f.pastCaches && name == "dst" {
			f.VMOVNTPS(xs[0], xs[1])
		} else {
			f.VMOVUPS(xs[0], xs[1])
		}
		return nil
	}, f.reg(x), f.at(name, i))
}

// wide reads T elements from element i of slice name as float64.
func (f fp) wide(name string, i int) value {
	if f.pointers[name].size == 8 {
		return f.load(name, i)
	}
	return f.each(func(xs ...value) value {
		to := f.tmp()
		f.VCVTPS2PD(xs[0], to)
		return to
	}, f.at(name, i))
}

// widen makes float64 of the float32 vector x: its lower and its upper half.
func (g *gen) widen(x value) (lo, hi value) {
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

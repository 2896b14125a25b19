package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fp emits arithmetic on vectors of floats of one size. Every result is a new
// virtual register; avo assigns the real ones.
type fp struct {
	*gen
	size int
}

func (g *gen) fp(size int) fp { return fp{g, size} }

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

// arg is the scalar argument with that name.
func (f fp) arg(name string) scalar {
	a, err := f.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return scalar{a.Addr, false}
}

// reg brings x into a register.
func (f fp) reg(x value) value {
	switch m := x.(type) {
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
func (f fp) two(a, b value, forms four, ops ...operand.Op) reg.VecVirtual {
	to := f.tmp()
	f.emit(forms, f.reg(a), b, append(ops, to)...)
	return to
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

func (f fp) div(a, b value) value {
	return f.two(a, b, four{f.VDIVPS, f.VDIVPD, f.VDIVPS_BCST, f.VDIVPD_BCST})
}

func (f fp) sqrt(a value) value {
	to := f.tmp()
	f.pickSize(f.VSQRTPS, f.VSQRTPD)(f.reg(a), to)
	return to
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
	to := f.tmp()
	f.pickSize(f.VPSLLD, f.VPSLLQ)(operand.Imm(n), f.reg(a), to)
	return to
}

func (f fp) shiftRight(a value, n uint64) value {
	to := f.tmp()
	f.pickSize(f.VPSRLD, f.VPSRLQ)(operand.Imm(n), f.reg(a), to)
	return to
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
	var to operand.Op = f.tmp()
	if f.gen.bytes == 64 {
		to = f.K()
	}
	imm := func(form emitter) emitter {
		return func(ops ...operand.Op) { form(append([]operand.Op{operand.Imm(op)}, ops...)...) }
	}
	f.emit(four{imm(f.VCMPPS), imm(f.VCMPPD), imm(f.VCMPPS_BCST), imm(f.VCMPPD_BCST)}, f.reg(a), b, to)
	return to
}

// keep is x where the mask is set and 0 elsewhere.
func (f fp) keep(mask, x value) value {
	to := f.tmp()
	if f.gen.bytes == 64 {
		if f.size == 4 {
			f.VMOVAPS_Z(f.reg(x), mask, to)
		} else {
			f.VMOVAPD_Z(f.reg(x), mask, to)
		}
		return to
	}
	return f.and(mask, x)
}

// choose is yes where the mask is set and no elsewhere.
func (f fp) choose(mask, yes, no value) value {
	yes, no = f.reg(yes), f.reg(no)
	to := f.tmp()
	if f.gen.bytes == 64 {
		f.pickSize(f.VBLENDMPS, f.VBLENDMPD)(yes, no, mask, to)
	} else if f.size == 4 {
		f.VBLENDVPS(mask, yes, no, to)
	} else {
		f.VBLENDVPD(mask, yes, no, to)
	}
	return to
}

// flush is x, or 0 where |x| < limit.
func (f fp) flush(x, limit value) value {
	return f.keep(f.compare(notLess, f.abs(x), limit), x)
}

// load reads a vector from element i of slice name.
func (f fp) load(name string, i int) value { return f.reg(f.at(name, i)) }

// store writes x to slice name from element i.
func (f fp) store(x value, name string, i int) {
	if f.pastCaches && name == "dst" {
		f.VMOVNTPS(f.reg(x), f.at(name, i))
		return
	}
	f.VMOVUPS(f.reg(x), f.at(name, i))
}

// wide reads T elements from element i of slice name as float64.
func (f fp) wide(name string, i int) value {
	if f.pointers[name].size == 8 {
		return f.load(name, i)
	}
	to := f.tmp()
	f.VCVTPS2PD(f.at(name, i), to)
	return to
}

// widen makes float64 of the float32 vector x: its lower and its upper half.
func (g *gen) widen(x value) (lo, hi value) {
	v := x.(reg.VecVirtual)
	a, b, upper := g.tmp(), g.tmp(), g.half()
	if g.bytes == 64 {
		g.VCVTPS2PD(v.AsY(), a)
		g.VEXTRACTF64X4(operand.Imm(1), v, upper)
	} else {
		g.VCVTPS2PD(v.AsX(), a)
		g.VEXTRACTF128(operand.Imm(1), v, upper)
	}
	g.VCVTPS2PD(upper, b)
	return a, b
}

// storeNarrow rounds the float64 vector x to T and writes it.
func (f fp) storeNarrow(x value, name string, i int) {
	if f.pointers[name].size == 8 {
		f.store(x, name, i)
		return
	}
	f.VMOVUPS(f.narrow(x), f.at(name, i))
}

// narrow rounds a vector of float64 to float32.
func (f fp) narrow(x value) reg.VecVirtual {
	h := f.half()
	if f.gen.bytes == 64 {
		f.VCVTPD2PS(x, h)
	} else {
		f.VCVTPD2PSY(x, h)
	}
	return h
}

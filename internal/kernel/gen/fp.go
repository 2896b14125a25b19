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
// If ways > 1, an operand read from a slice is a bundle of that many adjacent
// vectors, and each operation emits an instruction for each vector. So the
// processor has other instructions to run while it waits for a result. Without
// this, long chains of dependent operations fill its window.
type fp struct {
	*gen
	size, ways int
}

func (g *gen) fp(size int) fp { return fp{g, size, 1} }

// scalar is one number in memory, a constant or an argument, used as a vector of
// copies. AVX2 cannot broadcast an operand, so its constants are stored as whole
// vectors.
type scalar struct {
	operand.Mem
	whole bool
	neon  *vreg // for NEON, which has no operands in memory
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
	if f.neon != nil {
		return f.neon.constant(key)
	}
	if m, ok := f.constants[key]; ok {
		return m
	}
	copies := 1
	if f.gen.bytes == 32 {
		copies = f.gen.bytes / f.size
	}
	s := scalar{Mem: f.StaticGlobal(key.name()), whole: f.gen.bytes == 32}
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

// arg is the scalar argument with that name or, for a slice by row, its element for
// the current row.
func (f fp) arg(name string) scalar {
	if f.neon != nil {
		return f.argument(name)
	}
	if f.pointers[name].by == byRow {
		return scalar{Mem: mem(f.pointers[name].reg, 0)}
	}
	a, err := f.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return scalar{Mem: a.Addr}
}

// reg moves x into a register.
func (f fp) reg(x value) value {
	if f.neon != nil {
		return f.neon.vreg(x)
	}
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

// four holds the forms of an instruction: float32 and float64, and the same with a
// broadcast operand.
type four [4]emitter

// two emits a two-operand instruction. The second operand may have any form; name
// is the instruction's name in NEON.
func (f fp) two(name string, a, b value, forms four) value {
	if f.neon != nil {
		return f.neon.two(name, f.size, a, b)
	}
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

// emit emits the form that fits sources b and a, with the rest as further operands.
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
	return f.two("fadd", a, b, four{f.VADDPS, f.VADDPD, f.VADDPS_BCST, f.VADDPD_BCST})
}

func (f fp) sub(a, b value) value {
	return f.two("fsub", a, b, four{f.VSUBPS, f.VSUBPD, f.VSUBPS_BCST, f.VSUBPD_BCST})
}

func (f fp) mul(a, b value) value {
	return f.two("fmul", a, b, four{f.VMULPS, f.VMULPD, f.VMULPS_BCST, f.VMULPD_BCST})
}

// copied is a copy of x in new registers.
func (f fp) copied(x value) value {
	if f.neon != nil {
		return f.neon.copied(x)
	}
	return f.one(x, func(a, to operand.Op) { f.VMOVAPS(a, to) })
}

// subtract changes a to a - b*c. The product is exact, so the fused operation gives
// the same bits as two.
func (f fp) subtract(a, b, c value) {
	if f.neon != nil {
		f.neon.change("fmls", f.size, a, b, c)
		return
	}
	f.each(func(xs ...value) value {
		f.emit(four{f.VFNMADD231PS, f.VFNMADD231PD, f.VFNMADD231PS_BCST, f.VFNMADD231PD_BCST}, xs[1], xs[2], xs[0])
		return nil
	}, a, f.reg(b), f.shared(c))
}

func (f fp) div(a, b value) value {
	return f.two("fdiv", a, b, four{f.VDIVPS, f.VDIVPD, f.VDIVPS_BCST, f.VDIVPD_BCST})
}

func (f fp) sqrt(a value) value {
	if f.neon != nil {
		return f.neon.op("fsqrt", f.size, 16, a)
	}
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
		return f.two("", a, b, four{f.VPANDD, f.VPANDQ, f.VPANDD_BCST, f.VPANDQ_BCST})
	}
	return f.two("VAND", a, b, four{f.VANDPS, f.VANDPD})
}

func (f fp) or(a, b value) value {
	if f.gen.bytes == 64 {
		return f.two("", a, b, four{f.VPORD, f.VPORQ, f.VPORD_BCST, f.VPORQ_BCST})
	}
	return f.two("VORR", a, b, four{f.VORPS, f.VORPD})
}

func (f fp) xor(a, b value) value {
	if f.gen.bytes == 64 {
		return f.two("", a, b, four{f.VPXORD, f.VPXORQ, f.VPXORD_BCST, f.VPXORQ_BCST})
	}
	return f.two("VEOR", a, b, four{f.VXORPS, f.VXORPD})
}

// addInt adds integers of the elements' size.
func (f fp) addInt(a, b value) value {
	return f.two("VADD", a, b, four{f.VPADDD, f.VPADDQ, f.VPADDD_BCST, f.VPADDQ_BCST})
}

// subInt subtracts integers of the elements' size.
func (f fp) subInt(a, b value) value {
	return f.two("VSUB", a, b, four{f.VPSUBD, f.VPSUBQ, f.VPSUBD_BCST, f.VPSUBQ_BCST})
}

// least is the smaller of a and b, most the larger one. If one is NaN, the result
// is b; in NEON it is NaN.
func (f fp) least(a, b value) value {
	return f.two("fmin", a, b, four{f.VMINPS, f.VMINPD, f.VMINPS_BCST, f.VMINPD_BCST})
}

func (f fp) most(a, b value) value {
	return f.two("fmax", a, b, four{f.VMAXPS, f.VMAXPD, f.VMAXPS_BCST, f.VMAXPD_BCST})
}

// clamp limits x to [lo, hi]; NaN stays NaN.
func (f fp) clamp(x value, lo, hi float64) value {
	return f.most(f.c(lo), f.least(f.c(hi), x))
}

func (f fp) shiftLeft(a value, n uint64) value {
	if f.neon != nil {
		return f.neon.shift("VSHL", f.size, a, n)
	}
	return f.one(a, func(a, to operand.Op) { f.pickSize(f.VPSLLD, f.VPSLLQ)(operand.Imm(n), a, to) })
}

func (f fp) shiftRight(a value, n uint64) value {
	if f.neon != nil {
		return f.neon.shift("VUSHR", f.size, a, n)
	}
	return f.one(a, func(a, to operand.Op) { f.pickSize(f.VPSRLD, f.VPSRLQ)(operand.Imm(n), a, to) })
}

// signBit is the mask of the sign, magnitude that of all other bits.
func (f fp) signBit() scalar   { return f.bits(1 << (8*f.size - 1)) }
func (f fp) magnitude() scalar { return f.bits(1<<(8*f.size-1) - 1) }

func (f fp) abs(a value) value { return f.and(a, f.magnitude()) }
func (f fp) neg(a value) value { return f.xor(a, f.signBit()) }

// Predicates of comparisons, all quiet. The negated ones hold for NaN.
const (
	eq        = 0
	unordered = 3
	less      = 0x11
	notLess   = 0x15
	notAtMost = 0x16
	greater   = 0x1e
)

// compare is the mask of the elements with a OP b: a mask register in AVX-512, a
// vector in AVX2.
func (f fp) compare(op uint64, a, b value) value {
	if f.neon != nil {
		return f.neon.compare(op, f.size, a, b)
	}
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
	if f.neon != nil {
		return f.neon.keep(mask, x)
	}
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
	if f.neon != nil {
		return f.neon.choose(mask, yes, no)
	}
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

// flush is x, or 0 if |x| < limit.
func (f fp) flush(x, limit value) value {
	return f.keep(f.compare(notLess, f.abs(x), limit), x)
}

// at is the vector from element i of slice name on, in memory.
func (f fp) at(name string, i int) value {
	if f.neon != nil {
		return f.place(name, i, f.size)
	}
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
	if f.neon != nil {
		f.neon.store(f.neon.vreg(x), f.place(name, i, f.size))
		return
	}
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
	if f.neon != nil {
		return f.neon.op("fcvtl", 8, 16, f.at(name, i))
	}
	return f.each(func(xs ...value) value {
		to := f.tmp()
		f.VCVTPS2PD(xs[0], to)
		return to
	}, f.at(name, i))
}

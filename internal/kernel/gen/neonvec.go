package main

import (
	"fmt"
	"strings"
)

// The general registers of a vector kernel, after those of its pointers, which
// advance with the loop.
const (
	neonCountReg = 8 + iota // elements of the row that are left
	neonRowsReg
	neonPoolReg
	neonSkipReg // elements from the end of a row's part to its beginning in the next row
	neonLengthReg
)

// place is the address of a vector in memory.
type place struct {
	reg, disp int
	bytes     int
}

// Asm makes a place a value; no instruction of avo takes one.
func (place) Asm() string { panic("a place of NEON") }

func (p place) text() string { return fmt.Sprintf("%d(R%d)", p.disp, p.reg) }

// move is the instruction for vectors of so many bytes.
func move(bytes int) string { return map[int]string{4: "FMOVS", 8: "FMOVD", 16: "FMOVQ"}[bytes] }

// neonMask is the result of a comparison: all bits of an element are set where it
// holds or, with not, where it does not.
type neonMask struct {
	v   *vreg
	not bool
}

// Asm makes a neonMask a value; no instruction of avo takes one.
func (neonMask) Asm() string { panic("a mask of NEON") }

// neonVector emits the kernel s for the element size of g.
func (g *gen) neonVector(s *spec) {
	n := g.neon
	n.begin(s.asmName(g.size, g.name), s.asmParams(g.size), fmt.Sprintf("%s n is a positive multiple of %d.", s.doc, step))
	n.fn = &recording{known: map[any]*vreg{}}
	n.fn.at = &n.fn.before
	g.pointers = map[string]pointer{}
	for _, p := range s.params {
		if p.slice() || strings.HasPrefix(p.typ, "*") {
			at := len(g.pointers)
			g.pointers[p.name] = pointer{size: elemSize(p.elem(g.size)), by: p.by, at: at, moves: p.slice() && p.by != byRow}
			n.loadArgs(p.name, at)
		}
	}
	n.loadArgs("n", neonLengthReg)
	s.body(g)
	rows := s.rows() != ""
	regs := n.assign(n.fn)
	n.linef("MOVD $neonConstants<>(SB), R%d", neonPoolReg)
	n.write(n.fn.head, regs)
	if rows {
		n.loadArgs("rows", neonRowsReg)
		n.loadArgs("cols", neonSkipReg)
		n.linef("SUB R%d, R%d, R%d", neonLengthReg, neonSkipReg, neonSkipReg)
		n.lines("row:")
		n.write(n.fn.rowHead, regs)
	}
	n.linef("MOVD R%d, R%d", neonLengthReg, neonCountReg)
	n.write(n.fn.before, regs)
	n.lines("loop:")
	n.write(n.fn.loop, regs)
	for _, p := range s.params {
		if at := g.pointers[p.name]; at.moves {
			n.linef("ADD $%d, R%d, R%d", step*at.size, at.at, at.at)
		}
	}
	n.linef("SUBS $%d, R%d, R%d", step, neonCountReg, neonCountReg)
	n.lines("BGT loop")
	n.write(n.fn.after, regs)
	if rows {
		g.neonNextRow(s)
	}
	n.lines("RET")
}

// neonNextRow goes on with the next row.
func (g *gen) neonNextRow(s *spec) {
	n := g.neon
	for _, p := range s.params {
		at, ok := g.pointers[p.name]
		shift := map[int]int{2: 1, 4: 2, 8: 3}[at.size]
		switch {
		case !ok:
		case p.by == byRow:
			n.linef("ADD $%d, R%d, R%d", p.rowBytes(g.size), at.at, at.at)
		case p.by == byColumn:
			n.linef("SUB R%d<<%d, R%d, R%d", neonLengthReg, shift, at.at, at.at)
		default:
			n.linef("ADD R%d<<%d, R%d, R%d", neonSkipReg, shift, at.at, at.at)
		}
	}
	n.linef("SUBS $1, R%d, R%d", neonRowsReg, neonRowsReg)
	n.lines("BNE row")
}

// looped records body as the loop.
func (n *neon) looped(body func()) {
	n.fn.at = &n.fn.loop
	body()
	n.fn.at = &n.fn.after
}

// place is element i of slice name, relative to the pointer, for a vector of
// elements of size bytes.
func (g *gen) place(name string, i, size int) place {
	p := g.pointers[name]
	return place{p.at, i * p.size, 16 / size * p.size}
}

// vreg moves x into a register.
func (n *neon) vreg(x value) *vreg {
	switch x := x.(type) {
	case *vreg:
		return x
	case scalar:
		return x.neon
	case place:
		to := &vreg{bytes: x.bytes}
		n.fn.add(inst{dst: to, lines: func(d int, _ []int) []string {
			return []string{fmt.Sprintf("%s %s, F%d", move(x.bytes), x.text(), d)}
		}})
		return to
	}
	panic(fmt.Sprintf("%T in a register", x))
}

// store writes a register.
func (n *neon) store(v *vreg, to place) {
	n.fn.add(inst{srcs: []*vreg{v}, lines: func(_ int, s []int) []string {
		return []string{fmt.Sprintf("%s F%d, %s", move(v.bytes), s[0], to.text())}
	}})
}

// once returns a value that load records into part; it does so only the first time
// for a key.
func (n *neon) once(key any, part *[]inst, load func(to *vreg) inst) *vreg {
	if v, ok := n.fn.known[key]; ok {
		return v
	}
	v := &vreg{bytes: 16}
	n.fn.known[key] = v
	*part = append(*part, load(v))
	return v
}

// constant is a vector of copies of a number.
func (n *neon) constant(c constant) scalar {
	return scalar{neon: n.once(c, &n.fn.head, func(to *vreg) inst {
		to.con = &c
		return n.loadConstant(to, c)
	})}
}

// argument is a vector of copies of the scalar argument with that name or, for a
// slice by row, of its element for the current row.
func (g *gen) argument(name string) scalar {
	n := g.neon
	if p := g.pointers[name]; p.by == byRow {
		return scalar{neon: n.once(name, &n.fn.rowHead, func(to *vreg) inst {
			return inst{dst: to, lines: func(d int, _ []int) []string {
				return []string{fmt.Sprintf("VLD1R (R%d), [V%d.%s]", p.at, d, arrangement(p.size))}
			}}
		})}
	}
	size := elemSize(n.params[name].typ)
	return scalar{neon: n.once(name, &n.fn.head, func(to *vreg) inst {
		return inst{dst: to, lines: func(d int, _ []int) []string {
			return []string{
				fmt.Sprintf("%s %s, F%d", move(size), n.slot(name), d),
				fmt.Sprintf("VDUP V%d.%c[0], V%d.%s", d, arrangement(size)[0], d, arrangement(size)),
			}
		}}
	})}
}

// arrangement is Go's name for a vector of elements of size bytes.
func arrangement(size int) string { return map[int]string{4: "S4", 8: "D2"}[size] }

// op is the result of an instruction that Go's assembler does not have.
func (n *neon) op(name string, size, bytes int, srcs ...value) value {
	to, from := &vreg{bytes: bytes}, make([]*vreg, len(srcs))
	for i, x := range srcs {
		from[i] = n.vreg(x)
	}
	n.fn.add(inst{dst: to, srcs: from, lines: func(d int, s []int) []string {
		m := 0
		if len(s) > 1 {
			m = s[1]
		}
		return []string{word(name, size, d, s[0], m)}
	}})
	return to
}

// native is the result of an instruction that Go's assembler has.
func (n *neon) native(name, arrangement string, a, b value) value {
	to := &vreg{bytes: 16}
	n.fn.add(inst{dst: to, srcs: []*vreg{n.vreg(a), n.vreg(b)}, lines: func(d int, s []int) []string {
		return []string{fmt.Sprintf("%s V%d.%s, V%d.%s, V%d.%s", name, s[1], arrangement, s[0], arrangement, d, arrangement)}
	}})
	return to
}

// two is the result of an instruction with two operands.
func (n *neon) two(name string, size int, a, b value) value {
	switch name {
	case "VADD", "VSUB":
		return n.native(name, arrangement(size), a, b)
	case "VAND", "VORR", "VEOR":
		return n.native(name, "B16", a, b)
	}
	return n.op(name, size, 16, a, b)
}

// accumulate adds x to acc.
func (n *neon) accumulate(size int, acc, x value) {
	v := n.vreg(acc)
	n.fn.add(inst{dst: v, srcs: []*vreg{v, n.vreg(x)}, lines: func(d int, s []int) []string {
		return []string{word("fadd", size, d, d, s[1])}
	}})
}

// shift is a, shifted by a constant number of bits.
func (n *neon) shift(name string, size int, a value, bits uint64) value {
	to, t := &vreg{bytes: 16}, arrangement(size)
	n.fn.add(inst{dst: to, srcs: []*vreg{n.vreg(a)}, lines: func(d int, s []int) []string {
		return []string{fmt.Sprintf("%s $%d, V%d.%s, V%d.%s", name, bits, s[0], t, d, t)}
	}})
	return to
}

// copied is x in a register of its own.
func (n *neon) copied(x value) value {
	to := &vreg{bytes: 16}
	n.fn.add(inst{dst: to, srcs: []*vreg{n.vreg(x)}, tied: true, lines: func(int, []int) []string { return nil }})
	return to
}

// change sets a to the result of instruction name for a, b and c.
func (n *neon) change(name string, size int, a, b, c value) {
	v := n.vreg(a)
	n.fn.add(inst{dst: v, srcs: []*vreg{n.vreg(b), n.vreg(c), v}, lines: func(d int, s []int) []string {
		return []string{word(name, size, d, s[0], s[1])}
	}})
}

func (n *neon) compare(op uint64, size int, a, b value) value {
	test := func(name string, not bool, a, b value) value {
		return neonMask{n.op(name, size, 16, a, b).(*vreg), not}
	}
	switch op {
	case unordered:
		return test("fcmeq", true, a, b)
	case notLess:
		return test("fcmgt", true, b, a)
	case notAtMost:
		return test("fcmge", true, b, a)
	case greater:
		return test("fcmgt", false, a, b)
	}
	panic("no such comparison")
}

// keep is x where the mask is set and 0 elsewhere.
func (n *neon) keep(mask, x value) value {
	m := mask.(neonMask)
	if m.not {
		return n.op("bic", 16, 16, x, m.v)
	}
	return n.native("VAND", "B16", x, m.v)
}

// choose is yes where the mask is set and no elsewhere.
func (n *neon) choose(mask, yes, no value) value {
	m := mask.(neonMask)
	if m.not {
		yes, no = no, yes
	}
	to := &vreg{bytes: 16}
	n.fn.add(inst{dst: to, srcs: []*vreg{m.v, n.vreg(yes), n.vreg(no)}, tied: true, lines: func(d int, s []int) []string {
		return []string{fmt.Sprintf("VBSL V%d.B16, V%d.B16, V%d.B16", s[2], s[1], d)}
	}})
	return to
}

// raise sets acc to the larger one of x and acc. If x is NaN, acc stays.
func (n *neon) raise(size int, acc, x value) {
	v, larger := n.vreg(acc), n.compare(greater, size, x, acc).(neonMask).v
	n.fn.add(inst{dst: v, srcs: []*vreg{larger, n.vreg(x), v}, lines: func(d int, s []int) []string {
		return []string{fmt.Sprintf("VBIT V%d.B16, V%d.B16, V%d.B16", s[0], s[1], d)}
	}})
}

// rotated is x rotated by so many bytes towards lower elements.
func (n *neon) rotated(x value, bytes int) value {
	to := &vreg{bytes: 16}
	n.fn.add(inst{dst: to, srcs: []*vreg{n.vreg(x)}, lines: func(d int, s []int) []string {
		return []string{fmt.Sprintf("VEXT $%d, V%d.B16, V%d.B16, V%d.B16", bytes, s[0], s[0], d)}
	}})
	return to
}

// maximum raises top of each row to the largest x.
func (n *neon) maximum(g *gen) {
	f := g.fp(g.size)
	tops := bundle{n.copied(f.arg("top"))}
	for len(tops) < step/f.lanes() {
		tops = append(tops, n.copied(tops[0]))
	}
	n.looped(func() {
		for i, top := range tops {
			n.raise(g.size, top, f.load("x", i*f.lanes()))
		}
	})
	for len(tops) > 1 {
		last := len(tops) - 1
		n.raise(g.size, tops[last-1], tops[last])
		tops = tops[:last]
	}
	for bytes := 8; bytes >= g.size; bytes /= 2 {
		n.raise(g.size, tops[0], n.rotated(tops[0], bytes))
	}
	n.fn.add(inst{srcs: []*vreg{n.vreg(tops[0])}, lines: func(_ int, s []int) []string {
		return []string{fmt.Sprintf("%s F%d, %s", move(g.size), s[0], g.place("top", 0, 16).text())}
	}})
}

// prefetch prefetches the cache line of an address.
func (g *gen) prefetch(name string, i int) {
	if g.neon == nil {
		g.PREFETCHT0(g.at(name, i))
		return
	}
	p := g.place(name, i, 16)
	g.neon.fn.add(inst{lines: func(int, []int) []string { return []string{fmt.Sprintf("PRFM %s, PLDL1KEEP", p.text())} }})
}

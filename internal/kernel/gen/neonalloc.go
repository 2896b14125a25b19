package main

import (
	"fmt"
	"slices"
)

// vreg is a vector register that is not chosen yet.
type vreg struct {
	bytes int       // bytes that are used: 16, or 8
	con   *constant // the constant that it holds copies of
}

// Asm makes a vreg a value; no instruction of avo takes one.
func (*vreg) Asm() string { panic("a register of NEON") }

// inst is a recorded instruction.
type inst struct {
	dst   *vreg   // nil: none
	srcs  []*vreg // if one is dst, it is changed
	tied  bool    // the first source must be in the register of dst
	lines func(d int, s []int) []string
}

// recording is a kernel before its registers are chosen. Its parts follow each
// other.
type recording struct {
	head    []inst // constants and arguments
	rowHead []inst // at the start of each row
	before  []inst
	loop    []inst
	after   []inst
	at      *[]inst // the part that instructions are added to
	known   map[any]*vreg
}

func (r *recording) add(i inst) { *r.at = append(*r.at, i) }

// all returns the instructions in order, and the index of the first one in the
// loop.
func (r *recording) all() (list []inst, loop int) {
	list = slices.Concat(r.head, r.rowHead, r.before)
	return append(list, slices.Concat(r.loop, r.after)...), len(list)
}

// assign chooses registers. If there are too few, constants are loaded where they
// are used, those with the fewest uses first.
func (n *neon) assign(r *recording) map[*vreg]int {
	for {
		if regs := r.tryAssign(); regs != nil {
			return regs
		}
		n.demote(r)
	}
}

// demote frees the register of the constant with the fewest uses in the loop.
func (n *neon) demote(r *recording) {
	uses := map[*vreg]int{}
	for _, i := range r.loop {
		for _, s := range i.srcs {
			uses[s]++
		}
	}
	var rare *vreg
	for _, i := range r.head {
		if i.dst.con != nil && (rare == nil || uses[i.dst] < uses[rare]) {
			rare = i.dst
		}
	}
	if rare == nil {
		panic("too few registers")
	}
	r.head = slices.DeleteFunc(r.head, func(i inst) bool { return i.dst == rare })
	for _, part := range []*[]inst{&r.before, &r.loop, &r.after} {
		var with []inst
		for _, i := range *part {
			if slices.Contains(i.srcs, rare) {
				once := &vreg{bytes: 16}
				with = append(with, n.loadConstant(once, *rare.con))
				i.srcs = slices.Clone(i.srcs)
				for k, s := range i.srcs {
					if s == rare {
						i.srcs[k] = once
					}
				}
			}
			with = append(with, i)
		}
		*part = with
	}
}

// tryAssign returns nil if there are too few registers. A value from before the
// loop that is used in it or after it keeps its register.
func (r *recording) tryAssign() map[*vreg]int {
	list, loop := r.all()
	last := map[*vreg]int{}
	for at, i := range list {
		for _, s := range i.srcs {
			last[s] = at
		}
	}
	regs, free := map[*vreg]int{}, []int{}
	for v := 31; v >= 0; v-- {
		free = append(free, v)
	}
	for at, i := range list {
		for _, s := range i.srcs {
			if _, ok := regs[s]; !ok {
				panic("a register is read before it is written")
			}
		}
		_, known := regs[i.dst]
		fresh := i.dst != nil && !known
		reused := fresh && i.tied && last[i.srcs[0]] == at
		if reused {
			regs[i.dst] = regs[i.srcs[0]]
			i.srcs = i.srcs[1:]
		}
		release := func() {
			for k, s := range i.srcs {
				if last[s] == at && s != i.dst && !slices.Contains(i.srcs[:k], s) {
					free = append(free, regs[s])
				}
			}
		}
		if !i.tied { // a tied one is copied first
			release()
		}
		if fresh {
			if _, used := last[i.dst]; !used {
				panic("a result is not used")
			}
			if at < len(r.head) || at < loop && last[i.dst] >= loop {
				last[i.dst] = len(list)
			}
			if !reused {
				if len(free) == 0 {
					return nil
				}
				regs[i.dst], free = free[len(free)-1], free[:len(free)-1]
			}
		}
		if i.tied {
			release()
		}
	}
	return regs
}

// write emits the instructions of a part.
func (n *neon) write(part []inst, regs map[*vreg]int) {
	for _, i := range part {
		d, s := -1, make([]int, len(i.srcs))
		if i.dst != nil {
			d = regs[i.dst]
		}
		for k := range s {
			s[k] = regs[i.srcs[k]]
		}
		if i.tied && s[0] != d {
			n.linef("VORR V%d.B16, V%d.B16, V%d.B16", s[0], s[0], d)
		}
		n.lines(i.lines(d, s)...)
	}
}

// loadConstant reads a vector of copies of a number.
func (n *neon) loadConstant(to *vreg, c constant) inst {
	at := n.constantAt(c)
	return inst{dst: to, lines: func(d int, _ []int) []string {
		if c.bits == 0 {
			return []string{fmt.Sprintf("VEOR V%d.B16, V%d.B16, V%d.B16", d, d, d)}
		}
		return []string{fmt.Sprintf("FMOVQ %d(R%d), F%d", at, neonPoolReg, d)}
	}}
}

package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

// neonISA is the vector unit of every arm64. avo does not have it, so its functions
// are written as text. A vector kernel is recorded first (neonvec.go); then it gets
// its registers (neonalloc.go).
var neonISA = isa{name: "NEON", bytes: 16, regs: 32, height: 12, widths: []int{2}, vec: func(int) reg.Register { panic("NEON") }}

// neon writes the functions of NEON.
type neon struct {
	text, stubs strings.Builder
	params      map[string]neonParam
	pool        []string // data lines
	poolAt      map[constant]int
	fn          *recording
}

// neonParam is a parameter of the current function: its offset in the arguments and
// its Go type.
type neonParam struct {
	at  int
	typ string
}

// begin starts a function.
func (n *neon) begin(name, params, doc string) {
	n.params = map[string]neonParam{}
	at := 0
	for _, p := range strings.Split(params, ", ") {
		param, typ, _ := strings.Cut(p, " ")
		size := 8
		if !strings.HasPrefix(typ, "*") {
			size = elemSize(typ)
		}
		at = (at + size - 1) / size * size
		n.params[param] = neonParam{at, typ}
		at += size
	}
	fmt.Fprintf(&n.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s(%s)\n", name, doc, name, params)
	fmt.Fprintf(&n.text, "\n// func %s(%s)\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, params, name, at)
}

// lines writes instructions.
func (n *neon) lines(all ...string) {
	for _, l := range all {
		if !strings.HasSuffix(l, ":") {
			l = "\t" + l
		}
		n.text.WriteString(l + "\n")
	}
}

// linef writes one instruction.
func (n *neon) linef(format string, args ...any) { n.lines(fmt.Sprintf(format, args...)) }

// slot is the memory of parameter name.
func (n *neon) slot(name string) string {
	p, ok := n.params[name]
	if !ok {
		panic("no parameter " + name)
	}
	return fmt.Sprintf("%s+%d(FP)", name, p.at)
}

// loadArgs loads parameters of 8 bytes into registers.
func (n *neon) loadArgs(names string, first int) {
	for i, name := range strings.Fields(names) {
		n.linef("MOVD %s, R%d", n.slot(name), first+i)
	}
}

// constantAt is the offset, in the read-only data, of a vector of copies of a
// number.
func (n *neon) constantAt(c constant) int {
	if at, ok := n.poolAt[c]; ok {
		return at
	}
	at := 8 * len(n.pool)
	n.poolAt[c] = at
	twice := c.bits
	if c.size == 4 {
		twice |= c.bits << 32
	}
	for i := range 2 {
		n.pool = append(n.pool, fmt.Sprintf("DATA neonConstants<>+%d(SB)/8, $%#016x", at+8*i, twice))
	}
	return at
}

// neonFiles is the text of the two files of NEON, by path.
func neonFiles() map[string][]byte {
	n := &neon{poolAt: map[constant]int{}}
	g := &gen{Context: build.NewContext(), isa: neonISA, neon: n}
	for _, g.size = range []int{4, 8} {
		for h := neonISA.height; h > 0; h-- {
			n.microKernel(g.size, h, false)
			n.microKernel(g.size, h, true)
		}
		for w := 1; 16*w <= g.size*neonISA.height; w++ { // all widths that a side of a tile has
			n.copyRows(g.size, w)
		}
		n.transpose(g.size)
		for h := alongHeightNEON; h > 0; h-- {
			n.along(g.size, h, false)
		}
		n.peak(g.size)
	}
	for h := alongHeightNEON; h > 0; h-- {
		n.along(4, h, true)
	}
	for _, s := range vectorKernels() {
		if s.amd64 {
			continue
		}
		sizes := s.sizes
		if sizes == nil {
			sizes = []int{4}
		}
		for _, g.size = range sizes {
			g.neonVector(s)
		}
	}
	head := generatedBy + "//go:build !noasm\n\n"
	text := head + "#include \"textflag.h\"\n\n" + strings.Join(n.pool, "\n") +
		fmt.Sprintf("\nGLOBL neonConstants<>(SB), RODATA|NOPTR, $%d\n", 8*len(n.pool)) + n.text.String()
	return map[string][]byte{
		"../asm_neon_arm64.s":  []byte(text),
		"../asm_neon_arm64.go": []byte(head + "package kernel\n" + n.stubs.String()),
	}
}

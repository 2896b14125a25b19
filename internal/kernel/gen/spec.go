package main

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// step is the number of elements in one turn of a vector kernel's loop: a whole
// number of vectors for every instruction set and type.
const step = 16

// param is a parameter of a vector kernel. A slice is a pointer in assembly. In a
// kernel of rows, slices are matrices of rows*cols elements; by says if they have
// an element for each row or for each column instead.
type param struct{ name, typ, by string }

// spec is a vector kernel: its Go signature, in which T is the element type,
// and its body.
type spec struct {
	name   string
	params []param
	sizes  []int // of T; nil for a kernel with fixed types
	// once: the Go function makes one call; its caller does the loop over chunks.
	once bool
	unit int // elements of one turn of the loop; 0: step
	// stream: there is a second version, whose stores to dst bypass the caches.
	stream bool
	// far: a parameter tells the Go function whether stores to dst bypass the
	// caches; the fence comes after all rows.
	far bool
	// amd64: there is no NEON version.
	amd64 bool
	doc   string
	body  func(g *gen)
}

var (
	bothSizes  = []int{4, 8}
	singleOnly = []int{4}
)

// parse reads parameters as in "dst, x []T, w []T by column, m []T by row, a T".
func parse(s string) []param {
	var ps []param
	first := 0 // index of the first one without a type yet
	for _, field := range strings.Split(s, ",") {
		name, typ, ok := strings.Cut(strings.TrimSpace(field), " ")
		ps = append(ps, param{name: name})
		if ok {
			typ, by, _ := strings.Cut(typ, " by ")
			for ; first < len(ps); first++ {
				ps[first].typ, ps[first].by = typ, by
			}
		}
	}
	return ps
}

const (
	byRow    = "row"
	byColumn = "column"
)

// rows is the parameter whose length is the number of rows; "" for a kernel of
// plain vectors.
func (s *spec) rows() string {
	for _, p := range s.params {
		if p.by == byRow {
			return p.name
		}
	}
	return ""
}

func (p param) slice() bool { return strings.HasPrefix(p.typ, "[]") }

// elem is the name of the element type of p for T of the given size.
func (p param) elem(size int) string {
	t := strings.TrimPrefix(strings.TrimPrefix(p.typ, "[]"), "[16]")
	t = strings.ReplaceAll(t, "T", fmt.Sprintf("float%d", 8*size))
	if t == "BF16" || t == "F16" {
		return "uint16"
	}
	return t
}

func elemSize(typ string) int {
	switch strings.TrimLeft(typ, "*[16]") {
	case "byte":
		return 1
	case "uint16":
		return 2
	case "float32":
		return 4
	}
	return 8
}

// rowBytes is the distance in bytes between the values of two rows, for a parameter
// by row.
func (p param) rowBytes(size int) int {
	n := elemSize(p.elem(size))
	if strings.Contains(p.typ, "[16]") {
		n *= 16
	}
	return n
}

// typeName is the part of an assembly function's name for T.
func (s *spec) typeName(size int) string {
	if s.sizes == nil {
		return ""
	}
	return fmt.Sprintf("F%d", 8*size)
}

func (s *spec) asmName(size int, isa string) string { return s.name + s.typeName(size) + isa }

// past is the version of s whose stores to dst bypass the caches.
func (s *spec) past() *spec {
	p := *s
	p.name += "Past"
	p.doc += " It writes past the caches: dst begins at a cache line."
	p.body = func(g *gen) {
		g.pastCaches = true
		s.body(g)
		g.pastCaches = false
		if !s.far {
			g.SFENCE()
		}
	}
	return &p
}

// asmParams is the parameter list of the assembly: pointers, then the number of
// elements, then the others.
func (s *spec) asmParams(size int) string {
	var slices, others []string
	for _, p := range s.params {
		if p.slice() {
			slices = append(slices, p.name+" *"+p.elem(size))
		} else {
			others = append(others, p.name+" "+p.elem(size))
		}
	}
	lengths := "n int"
	if s.rows() != "" {
		lengths = "n int, cols int, rows int"
	}
	return strings.Join(append(append(slices, lengths), others...), ", ")
}

// pointer is a register with the address of a slice.
type pointer struct {
	reg  reg.Register
	size int // of an element
	by   string
	// For NEON: the number of the register, and whether it advances with the loop.
	at    int
	moves bool
}

var (
	pointerRegs = []reg.Register{reg.RDI, reg.RSI, reg.RBX, reg.R8, reg.R9, reg.R10, reg.R11, reg.R12}
	rowsReg     = reg.R13
	indexReg    = reg.RAX
	countReg    = reg.RCX // the index at which the loop ends
	scratchReg  = reg.RDX
)

// vector emits the kernel s for the element size of g.
func (g *gen) vector(s *spec) {
	full := s.asmName(g.size, g.name)
	g.function(full, s.asmParams(g.size), fmt.Sprintf("%s n is a positive multiple of %d.", s.doc, max(s.unit, step)))
	g.pointers = map[string]pointer{}
	for _, p := range s.params {
		if p.slice() || strings.HasPrefix(p.typ, "*") {
			r := pointerRegs[len(g.pointers)]
			g.pointers[p.name] = pointer{reg: r, size: elemSize(p.elem(g.size)), by: p.by}
			g.arg(p.name, r)
		}
	}
	g.arg("n", countReg)
	g.XORQ(indexReg, indexReg)
	if s.rows() == "" {
		s.body(g)
	} else {
		g.eachRow(s)
	}
	g.end()
}

// eachRow emits the loop over the rows. The index continues through the matrices,
// and pointers to slices without an element for each row and column move back
// against it.
func (g *gen) eachRow(s *spec) {
	g.arg("rows", rowsReg)
	g.Label("row")
	s.body(g)
	for _, p := range s.params {
		at := g.pointers[p.name]
		switch p.by {
		case byRow:
			g.ADDQ(operand.I32(p.rowBytes(g.size)), at.reg)
		case byColumn:
			g.arg("cols", scratchReg)
			g.SHLQ(operand.Imm(uint64(bits.Len(uint(at.size))-1)), scratchReg)
			g.SUBQ(scratchReg, at.reg)
		}
	}
	g.arg("cols", scratchReg)
	g.ADDQ(scratchReg, countReg)
	g.arg("n", scratchReg)
	g.MOVQ(countReg, indexReg)
	g.SUBQ(scratchReg, indexReg)
	g.DECQ(rowsReg)
	g.JNZ(label("row"))
}

// loop emits body as the loop over all elements, step at a time.
func (g *gen) loop(body func()) {
	if g.neon != nil {
		g.neon.looped(body)
		return
	}
	g.Label("loop")
	body()
	g.ADDQ(operand.Imm(step), indexReg)
	g.CMPQ(indexReg, countReg)
	g.JLT(label("loop"))
}

// vectors calls f with the first element of each vector of a step, for elements of
// the given size.
func (g *gen) vectors(size int, f func(i int)) {
	for i := 0; i < step; i += g.bytes / size {
		f(i)
	}
}

// ways is the number of vectors that a loop of bundles computes together: as many
// as the registers can hold.
func (g *gen) ways() int { return g.bytes / 16 }

// bundles emits body as the loop over all elements of the given size: many vectors
// at a time, and then the rest of a step.
func (g *gen) bundles(size int, body func(f fp, i int)) {
	f := fp{g, size, g.ways()}
	all := f.ways * f.lanes()
	if g.neon != nil {
		g.loop(func() { g.vectors(size, func(i int) { body(f, i) }) })
		return
	}
	if all > step {
		g.LEAQ(mem(countReg, -all), scratchReg)
		g.JMP(label("enough"))
		g.Label("bundles")
		body(f, 0)
		g.ADDQ(operand.I32(all), indexReg)
		g.Label("enough")
		g.CMPQ(indexReg, scratchReg)
		g.JLE(label("bundles"))
		g.CMPQ(indexReg, countReg)
		g.JGE(label("done"))
		f.ways = step / f.lanes()
	}
	g.loop(func() {
		for i := 0; i < step; i += f.ways * f.lanes() {
			body(f, i)
		}
	})
	g.Label("done")
}

// blockBytes is the size of the blocks in package kernel's kernels of rows.
const blockBytes = 8 << 10

// ahead prefetches the elements of slice name from a block after element i on, as
// many as n vectors hold.
func (g *gen) ahead(name string, i, n int) {
	if g.neon != nil {
		return // the processor prefetches streams itself
	}
	for j := 0; j < n*g.bytes; j += 64 {
		m := g.at(name, i)
		m.Disp += blockBytes + j
		g.PREFETCHT0(m)
	}
}

// at is element i of slice name, relative to the loop's index.
func (g *gen) at(name string, i int) operand.Mem {
	p := g.pointers[name]
	return operand.Mem{Base: p.reg, Index: indexReg, Scale: uint8(p.size), Disp: i * p.size}
}

// fixed is the memory at byte offset disp from pointer name.
func (g *gen) fixed(name string, disp int) value {
	if g.neon != nil {
		return place{g.pointers[name].at, disp, 16}
	}
	return mem(g.pointers[name].reg, disp)
}

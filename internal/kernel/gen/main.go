package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set, with the data that the generator needs.
type isa struct {
	name   string
	bytes  int // of one vector register
	regs   int // number of vector registers
	height int // rows of the largest micro-tile
	widths []int
	vec    func(i int) reg.Register
}

// The largest micro-tiles fill the register file: height x 2 accumulators, 2
// vectors of B and 2 broadcast elements of A. The narrow one is for the last
// columns of C.
var isas = []isa{
	{"AVX512", 64, 32, 14, []int{2, 1}, func(i int) reg.Register { return zmm[i] }},
	{"AVX2", 32, 16, 6, []int{2}, func(i int) reg.Register { return ymm[i] }},
}

var zmm = []reg.Register{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
	reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

var ymm = []reg.Register{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
	reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
}

// gen emits the functions of one file: one instruction set, both element types.
type gen struct {
	*build.Context
	isa
	size      int   // bytes of an element: 4 or 8
	pairs     bool  // an element of A and B is a pair of bfloat16 numbers
	neon      *neon // the writer for NEON; nil for amd64, which avo writes
	pointers  map[string]pointer
	constants map[constant]scalar
	// pastCaches makes stores to dst bypass the caches.
	pastCaches bool
}

// constant is a number in the read-only data: its bits and its size.
type constant struct {
	bits uint64
	size int
}

func (c constant) name() string { return fmt.Sprintf("c%d_%x", 8*c.size, c.bits) }

func (g *gen) lanes() int { return g.bytes / g.size }

// goType is the element type in Go declarations.
func (g *gen) goType() string { return fmt.Sprintf("float%d", 8*g.size) }

// begin starts a function called name+type+isa, as in addF32AVX512.
func (g *gen) begin(name, params, doc string) {
	full := fmt.Sprintf("%sF%d%s", name, 8*g.size, g.name)
	if g.pairs {
		full = name + g.name
	}
	g.function(full, strings.ReplaceAll(params, "T", g.goType()), doc)
}

// function starts a function.
func (g *gen) function(name, params, doc string) {
	g.Function(name)
	g.Attributes(attr.NOSPLIT)
	g.Pragma("noescape")
	g.Doc(name + " " + doc)
	g.SignatureExpr("func(" + params + ")")
}

// end returns to Go, which expects the upper halves of the registers to be zero.
func (g *gen) end() {
	g.VZEROUPPER()
	g.RET()
}

// arg loads parameter name into r.
func (g *gen) arg(name string, r reg.Register) { g.Load(g.Param(name), r) }

func mem(base reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: base, Disp: disp}
}

func label(name string) operand.LabelRef { return operand.LabelRef(name) }

// file emits what all instruction sets have.
func (g *gen) file() {
	if g.name == "AVX2" { // once: every amd64 machine with assembly has it
		g.controlRegister()
		g.storeFence()
		g.moveBytes()
	}
	for _, g.size = range []int{4, 8} {
		for _, w := range g.widths {
			for h := g.height; h > 0; h-- {
				g.microKernel(h, w, false)
				g.microKernel(h, w, true)
			}
		}
		g.copyRows(1)
		g.copyRows(2)
		g.transpose()
		g.transposePast()
		g.peak(peakChains)
		g.alongKernels(false)
	}
	g.size = 4
	g.alongKernels(true)
	if g.masked() {
		g.foldCRC()
		for _, h := range []int{dotSide, 1} {
			g.dotKernel(h, dotSide)
			g.dotKernel(h, 1)
		}
	}
	for _, s := range vectorKernels() {
		sizes := s.sizes
		if sizes == nil {
			sizes = []int{4}
		}
		for _, g.size = range sizes {
			g.vector(s)
			if s.stream || s.far {
				g.vector(s.past())
			}
		}
	}
}

// vectorKernels are all kernels except those of GEMM.
func vectorKernels() []*spec {
	return slices.Concat(streams(), optimizers(), conversions(), exponentials(), losses(), reductions(), dropout(), probes(), pixels())
}

// outputs is the text of all files, by path.
func outputs() (map[string][]byte, error) {
	all, err := dispatchFiles()
	if err != nil {
		return nil, err
	}
	emit := map[string]func(g *gen){}
	for _, s := range isas {
		emit[s.name] = (*gen).file
	}
	emit[bf16.name], emit[amx.name] = (*gen).bf16File, (*gen).amxFile
	for _, s := range append(isas, bf16, amx) {
		files, err := output(s, emit[s.name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		maps.Copy(all, files)
	}
	maps.Copy(all, neonFiles())
	return all, nil
}

// output is the text of the two files of s, by path.
func output(s isa, emit func(g *gen)) (map[string][]byte, error) {
	g := &gen{Context: build.NewContext(), isa: s, constants: map[constant]scalar{}}
	g.ConstraintExpr("!noasm")
	emit(g)
	f, err := g.Result()
	if err != nil {
		return nil, err
	}
	if err := pass.Compile.Execute(f); err != nil {
		return nil, err
	}
	cfg := printer.Config{Name: "internal/kernel/gen (cd internal/kernel/gen && go run .)", Pkg: "kernel"}
	base := filepath.Join("..", "asm_"+strings.ToLower(s.name))
	text := map[string][]byte{}
	for path, p := range map[string]printer.Printer{
		base + "_amd64.s":  printer.NewGoAsm(cfg),
		base + "_amd64.go": printer.NewStubs(cfg),
	} {
		if text[path], err = p.Print(f); err != nil {
			return nil, err
		}
	}
	return text, nil
}

func main() {
	log.SetFlags(0)
	files, err := outputs()
	if err != nil {
		log.Fatal(err)
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/reg"
)

// probes are loops that do one thing as fast as the processor can. They are the
// upper limit for other kernels. They prefetch where that is faster.
func probes() []*spec {
	all := []*spec{
		{name: "probeRead", params: parse("x []float32"), doc: "reads x.",
			body: words(func(g *gen, i int) {
				g.ahead("x", i, 1)
				g.fp(4).load("x", i)
			})},
		{name: "probeWrite", params: parse("dst []float32"), doc: "writes zeros.",
			body: words(func(g *gen, i int) {
				zero := g.tmp()
				g.zero(zero)
				g.fp(4).store(zero, "dst", i)
			})},
		{name: "probeCopy", params: parse("dst, x []float32"), doc: "copies x.",
			body: words(func(g *gen, i int) { g.fp(4).store(g.fp(4).load("x", i), "dst", i) })},
		{name: "probeCopyNT", params: parse("dst, x []float32"), doc: "copies x past the caches. dst begins at a multiple of 64 bytes.",
			body: words(func(g *gen, i int) {
				g.ahead("x", i, 1)
				g.VMOVNTPS(g.fp(4).load("x", i), g.at("dst", i))
			})},
		{name: "probeTriad", params: parse("dst, x, y []float32"), doc: "computes dst = x + y.",
			body: words(func(g *gen, i int) {
				g.fp(4).store(g.fp(4).add(g.fp(4).load("x", i), g.at("y", i)), "dst", i)
			})},
		{name: "probeTriadNT", params: parse("dst, x, y []float32"),
			doc: "computes dst = x + y and writes it past the caches. dst begins at a multiple of 64 bytes.",
			body: words(func(g *gen, i int) {
				g.VMOVNTPS(g.fp(4).add(g.fp(4).load("x", i), g.at("y", i)), g.at("dst", i))
			})},
		probeSums("probeUpdate", "x []float32", "x", "x"),
		probeSums("probeSum", "y, x []float32", "y", "x"),
		probeSums("probeSum2", "z, y, x []float32", "z", "y", "x"),
		probeSums("probeSum3", "w, z, y, x []float32", "w", "z", "y", "x"),
	}
	for _, s := range all {
		s.amd64 = true
	}
	return all
}

// probeSums adds the last of the named slices to the one before it, that one to the
// one before, and so on: it reads all, and writes all except the last.
func probeSums(name, params string, names ...string) *spec {
	return &spec{name: name, params: parse(params), doc: "adds each slice to the one before, from the last one on.",
		body: words(func(g *gen, i int) {
			f := g.fp(4)
			for _, n := range names {
				g.ahead(n, i, 1)
			}
			x := f.load(names[len(names)-1], i)
			for k := len(names) - 2; k >= 0; k-- {
				x = f.add(x, f.at(names[k], i))
				f.store(x, names[k], i)
			}
		})}
}

// controlRegister makes the function with which tests read MXCSR.
func (g *gen) controlRegister() {
	g.Function("controlRegister")
	g.Attributes(attr.NOSPLIT)
	g.Doc("controlRegister returns MXCSR: how the processor rounds and treats denormal numbers, and the exceptions so far.")
	g.SignatureExpr("func() uint32")
	to, err := g.ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	g.STMXCSR(to.Addr)
	g.RET()
}

// moveBytes makes the function that copies with the processor's copy instruction.
func (g *gen) moveBytes() {
	g.function("moveBytes", "dst, src *byte, n int", "copies n bytes with REP MOVSB.")
	g.arg("dst", reg.RDI)
	g.arg("src", reg.RSI)
	g.arg("n", reg.RCX)
	g.encode(0xf3, 0xa4)
	g.RET()
}

// storeFence makes the function to call after stores that bypass the caches.
func (g *gen) storeFence() {
	g.Function("storeFence")
	g.Attributes(attr.NOSPLIT)
	g.Doc("storeFence makes stores past the caches visible before all later stores.")
	g.SignatureExpr("func()")
	g.SFENCE()
	g.RET()
}

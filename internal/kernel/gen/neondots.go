package main

import "fmt"

// rowDots emits the kernel for products of few rows of A, like gen.rowDots, with
// two vectors for one there.
func (n *neon) rowDots(size int, half bool) {
	name, t := fmt.Sprintf("rowDotsF%dNEON", 8*size), fmt.Sprintf("float%d", 8*size)
	b, width := t, 128
	if half {
		name, b, width = "rowDotsBF16NEON", "uint16", 64
	}
	n.begin(name, fmt.Sprintf("rows int, turns int, a *%s, b *%s, bs int, sums *%s", t, b, t),
		"computes the dot products of a with rows of B, bs bytes apart, over so many turns of eight vectors: sums has two vectors for each row, whose lanes are to be added.")
	n.loadArgs("rows turns a b bs sums", 0)
	if half {
		n.lines("MOVD $0xffff0000, R6", "VDUP R6, V24.S4")
	}
	n.lines("row:", "MOVD R1, R8", "MOVD R2, R6", "MOVD R3, R7")
	for i := range 8 {
		n.linef("VEOR V%d.B16, V%d.B16, V%d.B16", i, i, i)
	}
	n.lines("loop:")
	if half {
		n.halfTurn()
	} else {
		for i := range 8 {
			n.linef("FMOVQ %d(R6), F%d", 16*i, 8+i)
			n.linef("FMOVQ %d(R7), F%d", 16*i, 16+i)
			n.lines(word("fmla", size, i, 8+i, 16+i))
		}
	}
	n.linef("ADD $128, R6, R6")
	n.linef("ADD $%d, R7, R7", width)
	n.lines("SUBS $1, R8, R8", "BNE loop")
	for _, pair := range [][2]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}} {
		n.lines(word("fadd", size, pair[0], pair[0], pair[1]))
	}
	n.lines("FSTPQ (F0, F1), (R5)", "ADD $32, R5, R5", "ADD R4, R3, R3", "SUBS $1, R0, R0", "BNE row", "RET")
}

// halfTurn adds the products with 32 bfloat16 numbers: the even ones of each
// vector, and the odd ones.
func (n *neon) halfTurn() {
	for j := range 4 {
		at := j/2*4 + j%2
		n.linef("FMOVQ %d(R7), F16", 16*j)
		n.lines("VSHL $16, V16.S4, V17.S4", "VAND V24.B16, V16.B16, V16.B16")
		n.linef("FMOVQ %d(R6), F18", 16*at)
		n.linef("FMOVQ %d(R6), F19", 16*(at+2))
		n.lines(word("fmla", 4, at, 18, 17), word("fmla", 4, at+2, 19, 16))
	}
}

// peak emits a loop of multiply-adds on registers only.
func (n *neon) peak(size int) {
	n.begin(fmt.Sprintf("peakF%dNEON", 8*size), "n int", fmt.Sprintf("does n > 0 turns of %d multiply-adds of %d elements.", peakChains, 16/size))
	n.loadArgs("n", 0)
	for i := range peakChains + 2 {
		n.linef("VEOR V%d.B16, V%d.B16, V%d.B16", i, i, i)
	}
	n.lines("loop:")
	for i := range peakChains {
		n.lines(word("fmla", size, 2+i, 0, 1))
	}
	n.lines("SUBS $1, R0, R0", "BNE loop", "RET")
}

package main

import "fmt"

// The general registers of a micro-kernel, by their contents. R18 belongs to the
// platform, R27 to the assembler, and R28 is the goroutine.
const (
	regTiles = iota
	regK
	regA
	regB
	regC
	regAS
	regBS
	regCS
	regFrom
	regFS
	regNext
	regScratch
	regRowB  // the current row of B
	regCount // of steps
)

// rowRegs point into the rows of A.
var rowRegs = []int{14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26}

// The vector registers: first the accumulators, two for each row.
const (
	vecB = 24 // of two rows of B, if A is by rows
	vecA = 26
)

// microKernel emits the kernel for tiles of h rows and two vectors, like
// gen.microKernel for amd64. It reads no more of A's columns, and of B, C and from,
// than it uses.
func (n *neon) microKernel(size, h int, byRows bool) {
	name, form := "gemm", "The elements of a column of A lie side by side; as is the bytes between columns."
	if byRows {
		name, form = "gemmRows", "The elements of a row of A lie side by side; as is the bytes between rows."
	}
	t := fmt.Sprintf("float%d", 8*size)
	cols := 2 * 16 / size
	n.begin(fmt.Sprintf("%s%dx%dF%dNEON", name, h, cols, 8*size),
		fmt.Sprintf("tiles int, k int, a *%s, as int, next int, b *%s, bs int, c *%s, cs int, from *%s, fs int, alpha %s", t, t, t, t, t),
		fmt.Sprintf("computes tiles > 0 tiles C[0:%d, 0:%d] = alpha*A*B, one below the other, plus the matrix from unless that is nil. %s "+
			"next is the bytes from the A of a tile to that of the next. bs, cs and fs are the bytes between rows of B, C and from.", h, cols, form))
	n.loadArgs("tiles k a b c as bs cs from fs next", regTiles)
	n.lines("tile:")
	for v := range 2 * h {
		n.linef("VEOR V%d.B16, V%d.B16, V%d.B16", v, v, v)
	}
	n.linef("MOVD R%d, R%d", regB, regRowB)
	if byRows {
		n.rowsLoop(size, h)
	} else {
		n.columnsLoop(size, h)
	}
	n.storeSums(size, h)
	n.lines("next:")
	n.linef("ADD R%d, R%d, R%d", regNext, regA, regA)
	n.linef("SUBS $1, R%d, R%d", regTiles, regTiles)
	n.lines("BNE tile", "RET")
}

// steps emits a loop over k, unit steps at a time and then one by one.
func (n *neon) steps(unit int, many, single func()) {
	shift := map[int]int{2: 1, 4: 2}[unit]
	n.linef("LSR $%d, R%d, R%d", shift, regK, regCount)
	n.linef("CBZ R%d, tail", regCount)
	n.lines("loop:")
	many()
	n.linef("SUBS $1, R%d, R%d", regCount, regCount)
	n.lines("BNE loop", "tail:")
	n.linef("ANDS $%d, R%d, R%d", unit-1, regK, regCount)
	n.lines("BEQ done")
	if unit > 2 {
		n.lines("single:")
	}
	single()
	if unit > 2 {
		n.linef("SUBS $1, R%d, R%d", regCount, regCount)
		n.lines("BNE single")
	}
	n.lines("done:")
}

// columnsLoop adds the products for an A by columns.
func (n *neon) columnsLoop(size, h int) {
	n.linef("MOVD R%d, R%d", regA, regScratch)
	one := func() {
		n.linef("FLDPQ (R%d), (F%d, F%d)", regRowB, vecB, vecB+1)
		n.linef("ADD R%d, R%d, R%d", regBS, regRowB, regRowB)
		at, v := 0, vecA
		var elements []func(d, b int) string // the product with each element of A
		for _, bytes := range []int{16, 8, 4} {
			for h*size-at >= bytes {
				n.linef("%s %d(R%d), F%d", move(bytes), at, regScratch, v)
				for lane := range bytes / size {
					from := v
					elements = append(elements, func(d, b int) string { return byElement(true, size, d, b, from, lane) })
				}
				at, v = at+bytes, v+1
			}
		}
		n.linef("ADD R%d, R%d, R%d", regAS, regScratch, regScratch)
		for i, product := range elements {
			n.lines(product(2*i, vecB), product(2*i+1, vecB+1))
		}
	}
	n.steps(unroll, func() {
		for range unroll {
			one()
		}
	}, one)
}

// rowsLoop adds the products for an A by rows, two steps at a time.
func (n *neon) rowsLoop(size, h int) {
	n.linef("MOVD R%d, R%d", regA, rowRegs[0])
	for i := 1; i < h; i++ {
		n.linef("ADD R%d, R%d, R%d", regAS, rowRegs[i-1], rowRegs[i])
	}
	some := func(steps int) {
		const first = vecB + 4
		for s := range steps {
			n.linef("FLDPQ (R%d), (F%d, F%d)", regRowB, vecB+2*s, vecB+2*s+1)
			n.linef("ADD R%d, R%d, R%d", regBS, regRowB, regRowB)
		}
		for i := range h {
			a := first + i%4
			n.linef("%s.P %d(R%d), F%d", move(steps*size), steps*size, rowRegs[i], a)
			for s := range steps {
				n.lines(byElement(true, size, 2*i, vecB+2*s, a, s), byElement(true, size, 2*i+1, vecB+2*s+1, a, s))
			}
		}
	}
	n.steps(2, func() { some(2) }, func() { some(1) })
}

// storeSums writes alpha times the accumulators to C, plus the rows of from. The label next must follow.
func (n *neon) storeSums(size, h int) {
	n.linef("%s %s, F%d", move(size), n.slot("alpha"), vecB)
	n.linef("CBZ R%d, overwrite", regFrom)
	for i := range h {
		a := vecA + i%2*2
		n.linef("FLDPQ (R%d), (F%d, F%d)", regFrom, a, a+1)
		n.linef("ADD R%d, R%d, R%d", regFS, regFrom, regFrom)
		n.lines(byElement(true, size, a, 2*i, vecB, 0), byElement(true, size, a+1, 2*i+1, vecB, 0))
		n.linef("FSTPQ (F%d, F%d), (R%d)", a, a+1, regC)
		n.linef("ADD R%d, R%d, R%d", regCS, regC, regC)
	}
	n.lines("B next", "overwrite:")
	for i := range h {
		n.lines(byElement(false, size, 2*i, 2*i, vecB, 0), byElement(false, size, 2*i+1, 2*i+1, vecB, 0))
		n.linef("FSTPQ (F%d, F%d), (R%d)", 2*i, 2*i+1, regC)
		n.linef("ADD R%d, R%d, R%d", regCS, regC, regC)
	}
}

// copyRows emits the copy of rows of w vectors.
func (n *neon) copyRows(size, w int) {
	t := fmt.Sprintf("float%d", 8*size)
	n.begin(fmt.Sprintf("copyRows%dF%dNEON", w, 8*size), fmt.Sprintf("dst *%s, ds int, src *%s, ss int, n int", t, t),
		fmt.Sprintf("copies n > 0 rows of %d elements in ascending order; ds and ss are the bytes between rows.", w*16/size))
	n.loadArgs("dst ds src ss n", 0)
	n.lines("loop:")
	for v := range w {
		n.linef("FMOVQ %d(R2), F%d", 16*v, v)
	}
	for v := range w {
		n.linef("FMOVQ F%d, %d(R0)", v, 16*v)
	}
	n.lines("ADD R3, R2, R2", "ADD R1, R0, R0", "SUBS $1, R4, R4", "BNE loop", "RET")
}

// transpose emits the transposing copy of square blocks of one vector a side.
func (n *neon) transpose(size int) {
	t, side := fmt.Sprintf("float%d", 8*size), 16/size
	n.begin(fmt.Sprintf("transposeF%dNEON", 8*size), fmt.Sprintf("dst *%s, ds int, src *%s, ss int, w int, blocks int", t, t),
		fmt.Sprintf("writes the transpose of w in [1, %d] rows of blocks*%d > 0 elements: rows of %d elements, of which the first w count, "+
			"in ascending order. ds and ss are the bytes between rows.", side, side, side))
	n.loadArgs("dst ds src ss w blocks", 0)
	for i := range side {
		n.linef("VEOR V%d.B16, V%d.B16, V%d.B16", i, i, i)
	}
	n.lines("loop:", "MOVD R2, R6", "MOVD R4, R7")
	for i := range side {
		n.linef("FMOVQ (R6), F%d", i)
		if i < side-1 {
			n.lines("SUBS $1, R7, R7", "BEQ loaded", "ADD R3, R6, R6")
		}
	}
	n.lines("loaded:")
	first := 4
	if size == 8 {
		n.zip("D2", 0, 1, 4, 5)
	} else {
		n.zip("S4", 0, 2, 4, 5)
		n.zip("S4", 1, 3, 6, 7)
		n.zip("S4", 4, 6, 16, 17)
		n.zip("S4", 5, 7, 18, 19)
		first = 16
	}
	for i := range side {
		n.linef("FMOVQ F%d, (R0)", first+i)
		n.lines("ADD R1, R0, R0")
	}
	n.lines("ADD $16, R2, R2", "SUBS $1, R5, R5", "BNE loop", "RET")
}

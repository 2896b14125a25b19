package main

import "fmt"

// alongHeightNEON is the largest number of rows of A.
const alongHeightNEON = 4

// regColumn is the current column of B, and regRow the current row of A.
const regColumn, regRow = regRowB, regScratch

// along emits the kernel for h rows of A and a B whose columns lie along K, like
// gen.alongKernels, with two vectors of columns. It reads A as vectors, too.
func (n *neon) along(size, h int, half bool) {
	side := 16 / size
	name, t, b, width := "gemmAlong", fmt.Sprintf("float%d", 8*size), fmt.Sprintf("float%d", 8*size), size
	if half {
		name, b, width = "gemmAlongHalf", "uint16", 2
	}
	n.begin(fmt.Sprintf("%s%dx%dF%dNEON", name, h, 2*side, 8*size),
		fmt.Sprintf("k int, a *%s, as int, b *%s, bs int, c *%s, cs int, from *%s, fs int, alpha %s, next int", t, b, t, t, t),
		fmt.Sprintf("computes C[0:%d, 0:%d] = alpha*A*B over k > 0 elements, plus the matrix from unless that is nil. The elements of a row of "+
			"A, and of a column of B, lie side by side; as is the bytes between rows of A and bs those between columns of B. cs and fs are the bytes between rows of C and from. next is not used. "+
			"If k is no multiple of %d, up to %d elements before a row of A and a column of B are read, too.", h, 2*side, side, side-1))
	n.loadArgs("k a b c as bs cs from fs", regK)
	for v := range 2 * h {
		n.linef("VEOR V%d.B16, V%d.B16, V%d.B16", v, v, v)
	}
	n.linef("SUBS $%d, R%d, R%d", side, regK, regK)
	n.lines("BLT tail", "loop:")
	n.alongTurn(size, h, half, func(_ int, products func()) { products() })
	n.linef("ADD $%d, R%d, R%d", side*width, regB, regB)
	n.linef("ADD $16, R%d, R%d", regA, regA)
	n.linef("SUBS $%d, R%d, R%d", side, regK, regK)
	n.lines("BGE loop", "tail:")
	// The last square that there is, without the products that are added already.
	n.linef("ADDS $%d, R%d, R%d", side, regK, regK)
	n.lines("BEQ end")
	n.linef("SUB $%d, R%d, R%d", side, regK, regCount)
	n.linef("ADD R%d<<%d, R%d, R%d", regCount, shiftOf(width), regB, regB)
	n.linef("ADD R%d<<%d, R%d, R%d", regCount, shiftOf(size), regA, regA)
	n.alongTurn(size, h, half, func(p int, products func()) {
		n.linef("CMP $%d, R%d", side-p, regK)
		n.linef("BLT skip%d", p)
		products()
		n.linef("skip%d:", p)
	})
	n.lines("end:")
	n.storeSums(size, h)
	n.lines("next:", "RET")
}

// shiftOf is the binary logarithm of the bytes of an element.
func shiftOf(bytes int) int { return map[int]int{2: 1, 4: 2, 8: 3}[bytes] }

// alongTurn adds the products of a square of each vector of columns. each is called
// for the steps of K, with what adds their products.
func (n *neon) alongTurn(size, h int, half bool, each func(p int, products func())) {
	side := 16 / size
	const square, spare, a = 8, 16, 24 // of two groups, 8 apart for float32
	n.linef("MOVD R%d, R%d", regB, regColumn)
	for j := range 2 {
		for i := range side {
			v := square + 4*j + i
			if half {
				n.linef("FMOVD (R%d), F%d", regColumn, v)
				n.lines(word("shll", 4, v, v, 0))
			} else {
				n.linef("FMOVQ (R%d), F%d", regColumn, v)
			}
			n.linef("ADD R%d, R%d, R%d", regBS, regColumn, regColumn)
		}
	}
	n.linef("MOVD R%d, R%d", regA, regRow)
	for i := range h {
		n.linef("FMOVQ (R%d), F%d", regRow, a+i)
		n.linef("ADD R%d, R%d, R%d", regAS, regRow, regRow)
	}
	columns := spare
	for j := range 2 {
		n.zipSquare(size, square+4*j, spare+4*j)
		if size == 4 {
			columns = square
		}
	}
	for p := range side {
		each(p, func() {
			for i := range h {
				for j := range 2 {
					n.lines(byElement(true, size, 2*i+j, columns+4*j+p, a+i, p))
				}
			}
		})
	}
}

// zipSquare transposes a square of vectors from v on. Its columns are then in v and
// those that follow, or for float64 in to.
func (n *neon) zipSquare(size, v, to int) {
	if size == 8 {
		n.zip("D2", v, v+1, to, to+1)
		return
	}
	n.zip("S4", v, v+2, to, to+1)
	n.zip("S4", v+1, v+3, to+2, to+3)
	n.zip("S4", to, to+2, v, v+1)
	n.zip("S4", to+1, to+3, v+2, v+3)
}

// zip interleaves registers a and b.
func (n *neon) zip(arrangement string, a, b, lo, hi int) {
	n.linef("VZIP1 V%d.%s, V%d.%s, V%d.%s", b, arrangement, a, arrangement, lo, arrangement)
	n.linef("VZIP2 V%d.%s, V%d.%s, V%d.%s", b, arrangement, a, arrangement, hi, arrangement)
}

// peak emits a loop of multiply-adds on registers only.
func (n *neon) peak(size int) {
	n.begin(fmt.Sprintf("peakF%dNEON", 8*size), "n int",
		fmt.Sprintf("does n > 0 turns of %d multiply-adds of %d elements.", peakChains, 16/size))
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

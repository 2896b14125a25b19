package kernel

import "unsafe"

const (
	// fewRows is the largest number of rows of A for which B is read once, without
	// packing: packing would take longer than the product. This is the product for
	// the next token of a text. The generator has this number, too.
	fewRows = 4
	// fewRowsLeast is the least K for which this pays.
	fewRowsLeast = 64
	// dotVectors is the number of vectors in a turn of the kernel, and dotLanes the
	// largest number of elements of a vector.
	dotVectors, dotLanes = 4, 8
	// dotRows is the number of rows of B in a call, and dotTurns the largest number
	// of turns for each: Go cannot preempt assembly.
	dotRows, dotTurns = 8, 1024
	// fewRowsSums is the workspace, in elements, for the lanes of a call;
	// fewRowsWork is that with the sums.
	fewRowsSums = dotRows * dotLanes
	fewRowsWork = fewRowsSums + dotRows
)

// dotsOfRows is a kernel for dot products of a with rows of B, bs bytes apart, over
// turns of dotVectors vectors. sums has a vector for each row. The one for bfloat16
// needs an a made by apart.
type dotsOfRows[A, B any] func(rows, turns int, a *A, b *B, bs int, sums *A)

// fewRows reports whether g is computed by dotsOfRows. The answer is the same for
// all parts of a cut.
func (e *engine[T]) fewRows(g *Gemm[T]) bool {
	return e.dotsOfRows != nil && !g.TransA && g.TransB && g.M <= fewRows && g.K >= fewRowsLeast
}

// dotRow computes the dot products of a with rows of b, ld elements apart, one for
// each of dots. Each is the sum of the lanes, plus the products that do not fill a
// turn.
func dotRow[A Float, B any](run dotsOfRows[A, B], dots, a []A, b []B, ld int, wide func(B) A, sums []A) {
	lanes := 32 / int(unsafe.Sizeof(a[0]))
	turn := dotVectors * lanes
	whole := len(a) / turn * turn
	for k := 0; k < whole; k += dotTurns * turn {
		run(len(dots), min((whole-k)/turn, dotTurns), &a[k], &b[k], ld*int(unsafe.Sizeof(b[0])), &sums[0])
		for r := range dots {
			s := addLanes(sums[r*lanes:][:lanes])
			if k > 0 {
				s += dots[r]
			}
			dots[r] = s
		}
	}
	for r := range dots {
		for k := whole; k < len(a); k++ {
			dots[r] += a[k] * wide(b[r*ld+k])
		}
	}
}

// addLanes adds the lanes of a row's sums, as a tree.
func addLanes[T Float](s []T) T {
	for n := len(s) / 2; n > 0; n /= 2 {
		for i := range n {
			s[i] += s[i+n]
		}
	}
	return s[0]
}

// fewRowsOf computes a block of C for few rows of A.
func (e *engine[T]) fewRowsOf(g *Gemm[T], ws []T, i0, i1, j0, j1 int) {
	for j := j0; j < j1; j += dotRows {
		n := min(dotRows, j1-j)
		for i := i0; i < i1; i++ {
			dots := ws[fewRowsSums:][:n]
			dotRow(e.dotsOfRows, dots, g.A[i*g.LDA:][:g.K], g.B[j*g.LDB:], g.LDB, same[T], ws)
			for r, d := range dots {
				c := &g.C[i*g.LDC+j+r]
				switch {
				case g.From != nil:
					*c = g.Alpha*d + g.From[i*g.LDFrom+j+r]
				case g.Beta != 0:
					*c += g.Alpha * d
				default:
					*c = g.Alpha * d
				}
			}
		}
	}
	if g.Act != NoActivation {
		g.finish(i0, i1, j0, j1)
	}
}

func same[T Float](x T) T { return x }

// apart converts src to float32. Of each 16 elements it puts the even ones before
// the odd ones, except in the last, incomplete turn.
func apart(dst []float32, src []BF16) {
	const turn, lanes = dotVectors * dotLanes, dotLanes
	whole := len(dst) / turn * turn
	for at := 0; at < whole; at += 2 * lanes {
		d, s := dst[at:at+2*lanes], src[at:at+2*lanes]
		for i := range lanes {
			d[i], d[i+lanes] = s[2*i].Float32(), s[2*i+1].Float32()
		}
	}
	for i := whole; i < len(dst); i++ {
		dst[i] = src[i].Float32()
	}
}

// fewRowsOf computes a block of the result for few rows of A, which it converts to
// float32 first.
func (e *engineBF16) fewRowsOf(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	a := ws[fewRowsWork:][:(i1-i0)*g.K]
	for i := i0; i < i1; i++ {
		apart(a[(i-i0)*g.K:][:g.K], g.A[i*g.LDA:])
	}
	for j := j0; j < j1; j += dotRows {
		n := min(dotRows, j1-j)
		for i := i0; i < i1; i++ {
			dots := ws[fewRowsSums:][:n]
			dotRow(e.dotsOfRowsBF16, dots, a[(i-i0)*g.K:][:g.K], g.B[j*g.LDB:], g.LDB, BF16.Float32, ws)
			for r, d := range dots {
				g.put(i, j+r, g.scaled(i, j+r)+g.Alpha*d)
			}
		}
	}
}

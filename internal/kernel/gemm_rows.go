package kernel

import "unsafe"

const (
	// fewRows is the largest number of rows of A for which B is read where it lies and once: to pack it takes longer than
	// the product. It is what the next token of a text costs.
	fewRows = 4
	// fewRowsLeast is the K from which on that pays.
	fewRowsLeast = 64
	dotRows      = 4 // rows of B in a call of dotsOfRows
	dotLanes     = 8 // sums of a row, at most
	// dotTurns is the number of turns of a call, at most: Go cannot stop a goroutine in assembly.
	dotTurns = 4096
)

// dotsOfRows is a kernel for dot products of a with dotRows rows of B, bs bytes apart, over turns of 2*lanes elements. sums has lanes
// sums for each row.
type dotsOfRows[A, B any] func(turns int, a *A, b *B, bs int, sums *A)

// fewRows reports whether g is computed by dotsOfRows. It looks at what the parts of a cut have in common only.
func (e *engine[T]) fewRows(g *Gemm[T]) bool {
	return e.dotsOfRows != nil && !g.TransA && g.TransB && g.M <= fewRows && g.K >= fewRowsLeast
}

func (e *engineBF16) fewRows(g *GemmBF16) bool {
	return e.dotsOfRowsBF16 != nil && !g.TransA && g.TransB && g.M <= fewRows && g.K >= fewRowsLeast && g.M*g.K <= keptB
}

// fewRowsWork is the number of elements of workspace for the sums of a call.
const fewRowsWork = dotRows * dotLanes

// dot4 computes the dot products of a with n rows of b, ld elements apart; n is at most dotRows. Each is the sum of the lanes, and
// then of what fills no turn, whatever n is.
func dot4[A Float, B any](run dotsOfRows[A, B], a []A, b []B, ld, n int, wide func(B) A, sums []A) (dots [dotRows]A) {
	lanes := 32 / int(unsafe.Sizeof(a[0]))
	turn, step := 2*lanes, ld*int(unsafe.Sizeof(b[0]))
	whole := len(a) / turn * turn
	for k := 0; k < whole; k += dotTurns * turn {
		turns := min((whole-k)/turn, dotTurns)
		if n == dotRows {
			run(turns, &a[k], &b[k], step, &sums[0])
			addLanes(dots[:], sums, lanes)
			continue
		}
		for r := range n { // four times the same row
			run(turns, &a[k], &b[r*ld+k], 0, &sums[0])
			addLanes(dots[r:r+1], sums, lanes)
		}
	}
	for r := range n {
		for k := whole; k < len(a); k++ {
			dots[r] += a[k] * wide(b[r*ld+k])
		}
	}
	return dots
}

// addLanes adds the sums of each row, as a tree.
func addLanes[T Float](dots, sums []T, lanes int) {
	for r := range dots {
		s := sums[r*lanes:][:lanes]
		for n := lanes / 2; n > 0; n /= 2 {
			for i := range n {
				s[i] += s[i+n]
			}
		}
		dots[r] += s[0]
	}
}

// fewRowsOf computes a block of C for few rows of A.
func (e *engine[T]) fewRowsOf(g *Gemm[T], ws []T, i0, i1, j0, j1 int) {
	for j := j0; j < j1; j += dotRows {
		n := min(dotRows, j1-j)
		for i := i0; i < i1; i++ {
			dots := dot4(e.dotsOfRows, g.A[i*g.LDA:][:g.K], g.B[j*g.LDB:], g.LDB, n, same[T], ws[:fewRowsWork])
			for r, d := range dots[:n] {
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

// fewRowsOf computes a block of the result for few rows of A, which are converted to float32 first.
func (e *engineBF16) fewRowsOf(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	a := ws[fewRowsWork:][:(i1-i0)*g.K]
	for i := i0; i < i1; i++ {
		BF16ToF32(a[(i-i0)*g.K:][:g.K], g.A[i*g.LDA:][:g.K])
	}
	for j := j0; j < j1; j += dotRows {
		n := min(dotRows, j1-j)
		for i := i0; i < i1; i++ {
			dots := dot4(e.dotsOfRowsBF16, a[(i-i0)*g.K:][:g.K], g.B[j*g.LDB:], g.LDB, n, BF16.Float32, ws[:fewRowsWork])
			for r, d := range dots[:n] {
				g.put(i, j+r, g.scaled(i, j+r)+g.Alpha*d)
			}
		}
	}
}

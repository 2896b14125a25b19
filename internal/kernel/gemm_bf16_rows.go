package kernel

const (
	// pairLanes is the number of sums of a dot product of pairs: pair p is added to
	// sum p%pairLanes. The last turn is padded with pairs of zeros.
	pairLanes = 64
	// pairColumns is the largest number of rows of B for a call. pairWork limits
	// its products, unless one row has more: Go cannot preempt assembly. The
	// generator has pairColumns, too.
	pairColumns, pairWork = 64, 1 << 18
)

// dotsOfPairs computes the dot products of up to fewRows rows of A with rows of B,
// of k elements each. sums has a row of pairColumns elements for each row of A.
type dotsOfPairs func(h, rows, k int, a []BF16, as int, b []BF16, bs int, sums []float32)

// fewRows reports whether g is computed as dot products of unpacked rows. The
// answer is the same for all parts of a cut.
func (g *GemmBF16) fewRows() bool {
	return !g.TransA && g.TransB && g.M <= fewRows && g.K >= fewRowsLeast && g.M*g.K <= keptB
}

// rowDot is the dot product of row i of A and row j of B, in the order of engines
// that sum pairs.
func (g *GemmBF16) rowDot(i, j int) float32 {
	var lanes [pairLanes]float32
	for p := 0; 2*p < g.K || p%pairLanes != 0; p++ {
		s := &lanes[p%pairLanes]
		*s = DotBF16(*s, g.pair(g.at, i, 2*p), g.pair(g.bt, j, 2*p))
	}
	return addLanes(lanes[:])
}

// emulatedPairs is dotsOfPairs in plain Go.
func emulatedPairs(h, rows, k int, a []BF16, as int, b []BF16, bs int, sums []float32) {
	g := GemmBF16{TransB: true, K: k, A: a, LDA: as, B: b, LDB: bs}
	for i := range h {
		for r := range rows {
			sums[i*pairColumns+r] = g.rowDot(i, r)
		}
	}
}

// pairRowsOf computes a block of the result for few rows of A.
func (e *engineBF16) pairRowsOf(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	sums, bias := ws[:fewRows*pairColumns], ws[fewRows*pairColumns:][:pairColumns]
	step := min(pairColumns, max(1, pairWork/((i1-i0)*g.K)))
	clear(bias)
	for ; j0 < j1; j0 += step {
		n := min(step, j1-j0)
		e.dotsOfPairs(i1-i0, n, g.K, g.A[i0*g.LDA:], g.LDA, g.B[j0*g.LDB:], g.LDB, sums)
		for i := range i1 - i0 {
			row := sums[i*pairColumns:][:n]
			if g.Alpha != 1 || g.Beta != 0 {
				g.addScaled(row, i0+i, j0)
			}
			if g.H == nil {
				copy(g.C[(i0+i)*g.LDC+j0:], row)
			}
		}
		if g.H == nil {
			continue
		}
		if g.Bias != nil {
			BF16ToF32(bias[:n], g.Bias[j0:j0+n])
		}
		for c := 0; c < n; c += e.cols {
			e.round(g.H[i0*g.LDC+j0+c:], g.LDC, sums[c:], pairColumns, i1-i0, min(e.cols, n-c), bias[c:])
		}
	}
}

// addScaled computes the results of row i from column j on from the dot products:
// Alpha, Beta and Bias of g.
func (g *GemmBF16) addScaled(dots []float32, i, j int) {
	for r := range dots {
		if dots[r] *= g.Alpha; g.Beta != 0 {
			dots[r] += g.Beta * g.get(i, j+r)
		}
	}
}

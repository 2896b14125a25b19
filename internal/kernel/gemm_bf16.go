package kernel

import "fmt"

// GemmBF16 is one matrix product op(A)*op(B) of bfloat16 matrices, summed in
// float32. Exactly one of C and H holds the result: C in float32, H rounded to
// bfloat16:
//
//	C = Alpha*op(A)*op(B) + Beta*C
//	H = Alpha*op(A)*op(B) + Beta*H + Bias
//
// Shapes, strides and zeros of Alpha and Beta are as in [Gemm]; LDC is for C or H.
// Bias, of N elements, is added to every row; nil is zeros.
//
// Results below 2**-126 in magnitude may be replaced by zeros.
type GemmBF16 struct {
	TransA, TransB bool
	M, N, K        int
	Alpha          float32
	A              []BF16
	LDA            int
	B              []BF16
	LDB            int
	Beta           float32
	C              []float32
	H              []BF16
	LDC            int
	Bias           []BF16
}

// RefGemmBF16 computes g by its definition, with the sums of [DotBF16] over blocks
// of K. [GemmBF16Block] has the same bits on a CPU with AVX512-BF16; elsewhere this is
// its test oracle.
func RefGemmBF16(g *GemmBF16) {
	g.check()
	for i := range g.M {
		for j := range g.N {
			g.put(i, j, g.sum(i, j))
		}
	}
}

// sum is element (i, j) before the bias is added.
func (g *GemmBF16) sum(i, j int) (s float32) {
	start := g.Beta != 0
	if start {
		s = g.Beta * g.get(i, j)
	}
	if g.Alpha == 0 || g.K == 0 {
		return s
	}
	block := 2 * (&engine[float32]{kc: dotKC}).kBlock((g.K+1)/2)
	for k0 := 0; k0 < g.K; k0 += block {
		var dot float32
		for k := k0; k < min(k0+block, g.K); k += 2 {
			dot = DotBF16(dot, g.pair(g.at, i, k), g.pair(g.bt, j, k))
		}
		if start {
			s = fma32(g.Alpha, dot, s)
		} else {
			s, start = g.Alpha*dot, true
		}
	}
	return s
}

// pair is elements k and k+1 of line i, or zeros beyond K.
func (g *GemmBF16) pair(at func(i, k int) BF16, i, k int) (p [2]BF16) {
	for e := range min(2, g.K-k) {
		p[e] = at(i, k+e)
	}
	return p
}

// at is element (i, k) of op(A).
func (g *GemmBF16) at(i, k int) BF16 {
	if g.TransA {
		return g.A[k*g.LDA+i]
	}
	return g.A[i*g.LDA+k]
}

// bt is element (k, j) of op(B).
func (g *GemmBF16) bt(j, k int) BF16 {
	if g.TransB {
		return g.B[j*g.LDB+k]
	}
	return g.B[k*g.LDB+j]
}

func (g *GemmBF16) get(i, j int) float32 {
	if g.H != nil {
		return g.H[i*g.LDC+j].Float32()
	}
	return g.C[i*g.LDC+j]
}

func (g *GemmBF16) put(i, j int, s float32) {
	if g.H == nil {
		g.C[i*g.LDC+j] = s
		return
	}
	var bias float32
	if g.Bias != nil {
		bias = g.Bias[j].Float32()
	}
	g.H[i*g.LDC+j] = ToBF16(daz(s + bias))
}

// check panics unless the slices hold the matrices: the assembly does not check
// bounds.
func (g *GemmBF16) check() {
	checkMatrix("A", g.TransA, g.M, g.K, g.LDA, len(g.A))
	checkMatrix("B", g.TransB, g.K, g.N, g.LDB, len(g.B))
	if g.H == nil {
		checkMatrix("C", false, g.M, g.N, g.LDC, len(g.C))
	} else {
		checkMatrix("H", false, g.M, g.N, g.LDC, len(g.H))
	}
	switch {
	case g.H != nil && g.C != nil:
		panic("kernel: gemm: both C and H are given")
	case g.Bias != nil && (g.H == nil || len(g.Bias) < g.N):
		panic(fmt.Sprintf("kernel: gemm: a bias of %d elements for %d columns", len(g.Bias), g.N))
	}
}

// GemmBF16Workspace is the number of elements of workspace for one call of
// [GemmBF16Block], for any shape.
func GemmBF16Workspace() int { return active.bf16[0].workspace() }

// GemmBF16Block computes rows [i0, i1) and columns [j0, j1) of the result on the
// calling goroutine. As for [GemmBlock], the bits depend neither on how it is cut nor
// on other rows. They depend on the CPU: with AVX512-BF16 they are those of
// [RefGemmBF16]. Without it, A and B are converted to float32, which is exact, and
// multiplied as [GemmBlock] does.
func GemmBF16Block(g *GemmBF16, ws []float32, i0, i1, j0, j1 int) {
	active.bf16[0].block(g, ws, i0, i1, j0, j1)
}

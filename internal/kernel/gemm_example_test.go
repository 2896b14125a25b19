package kernel_test

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// A pool of workers could run the blocks at the same time, each with its own
// workspace. The result has the same bits.
func ExampleGemmBlock() {
	g := &kernel.Gemm[float32]{
		M: 2, N: 2, K: 3, Alpha: 1,
		A: []float32{1, 2, 3, 4, 5, 6}, LDA: 3, // 2 x 3
		B: []float32{1, 0, 1, 0, 1, 1}, LDB: 3, // stored 2 x 3, used as 3 x 2
		TransB: true,
		C:      make([]float32, 4), LDC: 2,
	}
	ws := make([]float32, kernel.WorkspaceLen[float32]())
	rows, cols := kernel.GemmSplit(g.M, g.N, g.K, 4)
	for r := range rows {
		for c := range cols {
			i0, i1 := kernel.GemmPart(g.M, rows, r)
			j0, j1 := kernel.GemmPart(g.N, cols, c)
			kernel.GemmBlock(g, ws, i0, i1, j0, j1)
		}
	}
	fmt.Println(g.C)
	// Output: [4 5 10 11]
}

package kernel

import (
	"fmt"
	"testing"
)

// benchShapes are those of a multilayer perceptron and square ones.
var benchShapes = []struct {
	ta, tb  bool
	m, n, k int
}{
	{false, true, 64, 512, 784},
	{false, true, 64, 10, 512},
	{false, false, 64, 512, 10},
	{true, false, 512, 784, 64},
	{false, false, 256, 256, 256},
	{false, true, 256, 256, 256},
	{false, false, 1024, 1024, 1024},
}

func transName(ta, tb bool) string {
	name := func(t bool) string {
		if t {
			return "T"
		}
		return "N"
	}
	return name(ta) + name(tb)
}

// BenchmarkGemm measures one goroutine on every instruction set of this machine.
func BenchmarkGemm(b *testing.B) {
	for _, s := range isas {
		b.Run(s.name, func(b *testing.B) {
			b.Run("float32", func(b *testing.B) { benchGemm(b, s.gemm32.block, s.gemm32.workspace()) })
			b.Run("float64", func(b *testing.B) { benchGemm(b, s.gemm64.block, s.gemm64.workspace()) })
		})
	}
	b.Run("reference/float32", func(b *testing.B) {
		benchGemm(b, func(g *Gemm[float32], _ []float32, _, _, _, _ int) { RefGemm(g) }, 0)
	})
}

func benchGemm[T Float](b *testing.B, run func(g *Gemm[T], ws []T, i0, i1, j0, j1 int), workspace int) {
	ws := make([]T, workspace)
	for _, s := range benchShapes {
		b.Run(fmt.Sprintf("%s/%dx%dx%d", transName(s.ta, s.tb), s.m, s.n, s.k), func(b *testing.B) {
			g := &newCase[T](1, s.ta, s.tb, s.m, s.n, s.k, 0).g
			for b.Loop() {
				run(g, ws, 0, s.m, 0, s.n)
			}
			flops := 2 * float64(s.m) * float64(s.n) * float64(s.k) * float64(b.N)
			b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

package kernel

import (
	"fmt"
	"testing"
)

// BenchmarkGemmBF16 measures one goroutine on every engine of this machine, with bfloat16 results.
func BenchmarkGemmBF16(b *testing.B) {
	for _, s := range isas {
		for _, e := range s.bf16 {
			ws := make([]float32, e.workspace())
			for _, x := range append(benchShapes, struct {
				ta, tb  bool
				m, n, k int
			}{false, false, 2048, 2048, 2048}) {
				b.Run(fmt.Sprintf("%s/%s/%s/%dx%dx%d", s.name, e, transName(x.ta, x.tb), x.m, x.n, x.k), func(b *testing.B) {
					g := &newBF16(1, x.ta, x.tb, x.m, x.n, x.k, 0, false, realNumber).g
					for b.Loop() {
						e.block(g, ws, 0, x.m, 0, x.n)
					}
					flops := 2 * float64(x.m) * float64(x.n) * float64(x.k) * float64(b.N)
					b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}

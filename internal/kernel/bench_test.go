package kernel

import (
	"fmt"
	"testing"
)

// benchSize is a vector that fits in the first-level cache.
const benchSize = 1024

func benchFloat32(b *testing.B, name string, f func(dst, x, y []float32)) {
	dst, x, y := make([]float32, benchSize), normals[float32](benchSize, 1), normals[float32](benchSize, 2)
	b.Run(name, func(b *testing.B) {
		b.SetBytes(4 * benchSize)
		for b.Loop() {
			f(dst, x, y)
		}
	})
}

func BenchmarkElementwise(b *testing.B) {
	benchFloat32(b, "Add", Add[float32])
	benchFloat32(b, "Max", Max[float32])
	benchFloat32(b, "ReLU", func(dst, x, _ []float32) { ReLU(dst, x) })
	benchFloat32(b, "Exp", func(dst, x, _ []float32) { Exp(dst, x) })
	benchFloat32(b, "Tanh", func(dst, x, _ []float32) { Tanh(dst, x) })
	benchFloat32(b, "GELU", func(dst, x, _ []float32) { GELU(dst, x) })
	benchFloat32(b, "GELUGrad", GELUGrad[float32])
	benchFloat32(b, "GELUTanh", func(dst, x, _ []float32) { GELUTanh(dst, x) })
	benchFloat32(b, "GELUTanhGrad", GELUTanhGrad[float32])
	m := wholeRows(benchSize, benchSize)
	benchFloat32(b, "Dropout", func(dst, x, _ []float32) { Dropout(dst, x, 0.1, 1, m, 0, benchSize) })
}

func BenchmarkRows(b *testing.B) {
	const cols, rows = 128, benchSize / 128
	mean, rstd := make([]float32, rows), make([]float32, rows)
	benchFloat32(b, "Softmax", func(dst, x, _ []float32) { Softmax(dst, x, cols, 0, rows) })
	benchFloat32(b, "LayerNorm", func(dst, x, w []float32) { LayerNorm(dst, mean, rstd, x, w[:cols], nil, cols, 0, rows, 1e-5) })
	benchFloat32(b, "LayerNormGradX", func(dst, g, x []float32) {
		LayerNormGradX(dst, g, x, x[:cols], mean, rstd, cols, 0, rows)
	})
	benchFloat32(b, "ReduceSum/rows", func(dst, x, _ []float32) { ReduceSum(dst, x, cols, 1, 0, rows) })
	benchFloat32(b, "ReduceSum/columns", func(dst, x, _ []float32) { ReduceSum(dst, x, rows, cols, 0, cols) })
	benchFloat32(b, "ReduceMax", func(dst, x, _ []float32) { ReduceMax(dst, nil, x, cols, 1, 0, rows) })
	dims, ds, ss := []int{32, 32}, []int{32, 1}, []int{1, 32}
	benchFloat32(b, "Transpose", func(dst, x, _ []float32) { CopyStrided(dst, x, dims, ds, ss) })
}

// BenchmarkOptim shows that subnormal moments do not slow the step down. Every step
// begins with the same moments.
func BenchmarkOptim(b *testing.B) {
	m, v := make([]float32, benchSize), make([]float32, benchSize)
	for _, size := range []float32{1e-3, 1e-30, 1.2e-38, 1e-40, 1e-45, 0} {
		moments := filled(benchSize, size)
		for _, grad := range []float32{0, size} {
			benchFloat32(b, fmt.Sprint("Adam/moments=", size, "/gradient=", grad), func(p, g, _ []float32) {
				copy(m, moments)
				copy(v, moments)
				Fill(g, grad)
				Adam(p, g, m, v, AdamHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1})
			})
			benchFloat32(b, fmt.Sprint("SGD/moments=", size, "/gradient=", grad), func(p, g, _ []float32) {
				copy(m, moments)
				Fill(g, grad)
				SGD(p, g, m, SGDHyper{LR: 0.1, Momentum: 0.9, GradScale: 1})
			})
		}
	}
}

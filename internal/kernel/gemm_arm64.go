//go:build !noasm

package kernel

import "unsafe"

// assemblyISAs is NEON, which every arm64 has.
func assemblyISAs() []*isa {
	s := &isa{name: "neon", vectors: vecNEON, grain: 1 << 17}
	s.gemm32, s.gemm64 = gemmNEON()
	return []*isa{s}
}

// plainKernel is a micro-kernel, as gen writes it: strides in bytes, one for each height of a tile.
type plainKernel[T Float] func(tiles, k int, a *T, as, next int, b *T, bs int, c *T, cs int, from *T, fs int, alpha T)

// neonEngine makes an engine of kernels that are 2 vectors wide, for columns and for rows of A, indexed by height-1.
func neonEngine[T Float](columns, rows []plainKernel[T]) *engine[T] {
	size := int(unsafe.Sizeof(*new(T)))
	lanes := 16 / size
	return &engine[T]{
		rows: len(columns), cols: 2 * lanes, lanes: lanes, step: 1,
		kc: 512, mc: 576 / size, nc: 4096 / size,
		direct: true,
		tile: func(tiles, h, _, k int, a operand[T], b operand[T], c []T, cs int, from operand[T], alpha T) {
			kernels := columns
			if a.byRows {
				kernels = rows
			}
			kernels[h-1](tiles, k, a.at, a.stride*size, a.next*size, b.at, b.stride*size, &c[0], cs*size, from.at, from.stride*size, alpha)
		},
	}
}

func gemmNEON() (f32 *engine[float32], f64 *engine[float64]) {
	f32 = neonEngine(
		[]plainKernel[float32]{
			gemm1x8F32NEON, gemm2x8F32NEON, gemm3x8F32NEON, gemm4x8F32NEON,
			gemm5x8F32NEON, gemm6x8F32NEON, gemm7x8F32NEON, gemm8x8F32NEON,
			gemm9x8F32NEON, gemm10x8F32NEON, gemm11x8F32NEON, gemm12x8F32NEON,
		},
		[]plainKernel[float32]{
			gemmRows1x8F32NEON, gemmRows2x8F32NEON, gemmRows3x8F32NEON, gemmRows4x8F32NEON,
			gemmRows5x8F32NEON, gemmRows6x8F32NEON, gemmRows7x8F32NEON, gemmRows8x8F32NEON,
			gemmRows9x8F32NEON, gemmRows10x8F32NEON, gemmRows11x8F32NEON, gemmRows12x8F32NEON,
		},
	)
	f64 = neonEngine(
		[]plainKernel[float64]{
			gemm1x4F64NEON, gemm2x4F64NEON, gemm3x4F64NEON, gemm4x4F64NEON,
			gemm5x4F64NEON, gemm6x4F64NEON, gemm7x4F64NEON, gemm8x4F64NEON,
			gemm9x4F64NEON, gemm10x4F64NEON, gemm11x4F64NEON, gemm12x4F64NEON,
		},
		[]plainKernel[float64]{
			gemmRows1x4F64NEON, gemmRows2x4F64NEON, gemmRows3x4F64NEON, gemmRows4x4F64NEON,
			gemmRows5x4F64NEON, gemmRows6x4F64NEON, gemmRows7x4F64NEON, gemmRows8x4F64NEON,
			gemmRows9x4F64NEON, gemmRows10x4F64NEON, gemmRows11x4F64NEON, gemmRows12x4F64NEON,
		},
	)
	copy(f32.copyRows[:], []func(dst *float32, ds int, src *float32, ss, n int){copyRows1F32NEON, copyRows2F32NEON, copyRows3F32NEON})
	f64.copyRows = [copyVectors]func(dst *float64, ds int, src *float64, ss, n int){
		copyRows1F64NEON, copyRows2F64NEON, copyRows3F64NEON, copyRows4F64NEON, copyRows5F64NEON, copyRows6F64NEON,
	}
	f32.transpose, f64.transpose = transposeF32NEON, transposeF64NEON
	f32.along = []alongKernel[float32, float32]{gemmAlong1x8F32NEON, gemmAlong2x8F32NEON, gemmAlong3x8F32NEON, gemmAlong4x8F32NEON}
	f64.along = []alongKernel[float64, float64]{gemmAlong1x4F64NEON, gemmAlong2x4F64NEON, gemmAlong3x4F64NEON, gemmAlong4x4F64NEON}
	f32.alongBF16 = []alongKernel[float32, uint16]{gemmAlongHalf1x8F32NEON, gemmAlongHalf2x8F32NEON, gemmAlongHalf3x8F32NEON,
		gemmAlongHalf4x8F32NEON}
	f32.peak, f64.peak = peakF32NEON, peakF64NEON
	return f32, f64
}

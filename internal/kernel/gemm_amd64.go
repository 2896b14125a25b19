//go:build !noasm

package kernel

import "unsafe"

// Micro-kernels, as gen writes them: strides are in bytes, and there is one for
// each height of a tile.
type (
	plainKernel[T Float]  func(tiles, k int, a *T, as, next int, b *T, bs int, c *T, cs int, from *T, fs int, alpha T)
	maskedKernel[T Float] func(tiles, k int, a *T, as, next int, b *T, bs int, c *T, cs int, from *T, fs int, alpha T, mask uint64)
)

// avx512Engine makes an engine with kernels of two vectors' width, for A by columns
// and by rows, and of one (narrow), indexed by height-1.
func avx512Engine[T Float](wide, wideRows, narrow, narrowRows []maskedKernel[T]) *engine[T] {
	size := int(unsafe.Sizeof(*new(T)))
	lanes := 64 / size
	return &engine[T]{
		rows: len(wide), cols: 2 * lanes, lanes: lanes, step: 1,
		kc: 512, mc: 672 / size, nc: 4096 / size,
		direct: true, narrow: true, crop: true,
		tile: func(tiles, h, n, k int, a operand[T], b operand[T], c []T, cs int, from operand[T], alpha T) {
			kernels := wide
			switch {
			case n <= lanes && a.byRows:
				kernels = narrowRows
			case n <= lanes:
				kernels = narrow
			case a.byRows:
				kernels = wideRows
			}
			kernels[h-1](tiles, k, a.at, a.stride*size, a.next*size, b.at, b.stride*size, &c[0], cs*size, from.at, from.stride*size, alpha, 1<<n-1)
		},
	}
}

// avx2Engine makes an engine with kernels of two vectors' width.
func avx2Engine[T Float](wide, rows []plainKernel[T]) *engine[T] {
	size := int(unsafe.Sizeof(*new(T)))
	lanes := 32 / size
	return &engine[T]{
		rows: len(wide), cols: 2 * lanes, lanes: lanes, step: 1,
		kc: 512, mc: 576 / size, nc: 4096 / size,
		direct: true,
		tile: func(tiles, h, _, k int, a operand[T], b operand[T], c []T, cs int, from operand[T], alpha T) {
			kernels := wide
			if a.byRows {
				kernels = rows
			}
			kernels[h-1](tiles, k, a.at, a.stride*size, a.next*size, b.at, b.stride*size, &c[0], cs*size, from.at, from.stride*size, alpha)
		},
	}
}

func gemmAVX512() (f32 *engine[float32], f64 *engine[float64]) {
	f32 = avx512Engine(
		[]maskedKernel[float32]{
			gemm1x32F32AVX512, gemm2x32F32AVX512, gemm3x32F32AVX512, gemm4x32F32AVX512,
			gemm5x32F32AVX512, gemm6x32F32AVX512, gemm7x32F32AVX512, gemm8x32F32AVX512,
			gemm9x32F32AVX512, gemm10x32F32AVX512, gemm11x32F32AVX512, gemm12x32F32AVX512,
			gemm13x32F32AVX512, gemm14x32F32AVX512,
		},
		[]maskedKernel[float32]{
			gemmRows1x32F32AVX512, gemmRows2x32F32AVX512, gemmRows3x32F32AVX512, gemmRows4x32F32AVX512,
			gemmRows5x32F32AVX512, gemmRows6x32F32AVX512, gemmRows7x32F32AVX512, gemmRows8x32F32AVX512,
			gemmRows9x32F32AVX512, gemmRows10x32F32AVX512, gemmRows11x32F32AVX512, gemmRows12x32F32AVX512,
			gemmRows13x32F32AVX512, gemmRows14x32F32AVX512,
		},
		[]maskedKernel[float32]{
			gemm1x16F32AVX512, gemm2x16F32AVX512, gemm3x16F32AVX512, gemm4x16F32AVX512,
			gemm5x16F32AVX512, gemm6x16F32AVX512, gemm7x16F32AVX512, gemm8x16F32AVX512,
			gemm9x16F32AVX512, gemm10x16F32AVX512, gemm11x16F32AVX512, gemm12x16F32AVX512,
			gemm13x16F32AVX512, gemm14x16F32AVX512,
		},
		[]maskedKernel[float32]{
			gemmRows1x16F32AVX512, gemmRows2x16F32AVX512, gemmRows3x16F32AVX512, gemmRows4x16F32AVX512,
			gemmRows5x16F32AVX512, gemmRows6x16F32AVX512, gemmRows7x16F32AVX512, gemmRows8x16F32AVX512,
			gemmRows9x16F32AVX512, gemmRows10x16F32AVX512, gemmRows11x16F32AVX512, gemmRows12x16F32AVX512,
			gemmRows13x16F32AVX512, gemmRows14x16F32AVX512,
		},
	)
	f64 = avx512Engine(
		[]maskedKernel[float64]{
			gemm1x16F64AVX512, gemm2x16F64AVX512, gemm3x16F64AVX512, gemm4x16F64AVX512,
			gemm5x16F64AVX512, gemm6x16F64AVX512, gemm7x16F64AVX512, gemm8x16F64AVX512,
			gemm9x16F64AVX512, gemm10x16F64AVX512, gemm11x16F64AVX512, gemm12x16F64AVX512,
			gemm13x16F64AVX512, gemm14x16F64AVX512,
		},
		[]maskedKernel[float64]{
			gemmRows1x16F64AVX512, gemmRows2x16F64AVX512, gemmRows3x16F64AVX512, gemmRows4x16F64AVX512,
			gemmRows5x16F64AVX512, gemmRows6x16F64AVX512, gemmRows7x16F64AVX512, gemmRows8x16F64AVX512,
			gemmRows9x16F64AVX512, gemmRows10x16F64AVX512, gemmRows11x16F64AVX512, gemmRows12x16F64AVX512,
			gemmRows13x16F64AVX512, gemmRows14x16F64AVX512,
		},
		[]maskedKernel[float64]{
			gemm1x8F64AVX512, gemm2x8F64AVX512, gemm3x8F64AVX512, gemm4x8F64AVX512,
			gemm5x8F64AVX512, gemm6x8F64AVX512, gemm7x8F64AVX512, gemm8x8F64AVX512,
			gemm9x8F64AVX512, gemm10x8F64AVX512, gemm11x8F64AVX512, gemm12x8F64AVX512,
			gemm13x8F64AVX512, gemm14x8F64AVX512,
		},
		[]maskedKernel[float64]{
			gemmRows1x8F64AVX512, gemmRows2x8F64AVX512, gemmRows3x8F64AVX512, gemmRows4x8F64AVX512,
			gemmRows5x8F64AVX512, gemmRows6x8F64AVX512, gemmRows7x8F64AVX512, gemmRows8x8F64AVX512,
			gemmRows9x8F64AVX512, gemmRows10x8F64AVX512, gemmRows11x8F64AVX512, gemmRows12x8F64AVX512,
			gemmRows13x8F64AVX512, gemmRows14x8F64AVX512,
		},
	)
	f32.dot = dotAVX512
	f32.along = []alongKernel[float32, float32]{gemmAlong1x32F32AVX512, gemmAlong2x32F32AVX512, gemmAlong3x32F32AVX512, gemmAlong4x32F32AVX512}
	f64.along = []alongKernel[float64, float64]{gemmAlong1x16F64AVX512, gemmAlong2x16F64AVX512, gemmAlong3x16F64AVX512, gemmAlong4x16F64AVX512}
	f32.alongBF16 = []alongKernel[float32, uint16]{gemmAlongHalf1x32F32AVX512, gemmAlongHalf2x32F32AVX512, gemmAlongHalf3x32F32AVX512,
		gemmAlongHalf4x32F32AVX512}
	f32.copyRows[0], f32.copyRows[1] = copyRows1F32AVX512, copyRows2F32AVX512
	f64.copyRows[0], f64.copyRows[1] = copyRows1F64AVX512, copyRows2F64AVX512
	f32.transpose, f64.transpose = transposeF32AVX512, transposeF64AVX512
	f32.transposePast, f64.transposePast = transposePastF32AVX512, transposePastF64AVX512
	f32.peak, f64.peak = peakF32AVX512, peakF64AVX512
	return f32, f64
}

func gemmAVX2() (f32 *engine[float32], f64 *engine[float64]) {
	f32 = avx2Engine(
		[]plainKernel[float32]{
			gemm1x16F32AVX2, gemm2x16F32AVX2, gemm3x16F32AVX2, gemm4x16F32AVX2,
			gemm5x16F32AVX2, gemm6x16F32AVX2,
		},
		[]plainKernel[float32]{
			gemmRows1x16F32AVX2, gemmRows2x16F32AVX2, gemmRows3x16F32AVX2, gemmRows4x16F32AVX2,
			gemmRows5x16F32AVX2, gemmRows6x16F32AVX2,
		},
	)
	f64 = avx2Engine(
		[]plainKernel[float64]{
			gemm1x8F64AVX2, gemm2x8F64AVX2, gemm3x8F64AVX2, gemm4x8F64AVX2,
			gemm5x8F64AVX2, gemm6x8F64AVX2,
		},
		[]plainKernel[float64]{
			gemmRows1x8F64AVX2, gemmRows2x8F64AVX2, gemmRows3x8F64AVX2, gemmRows4x8F64AVX2,
			gemmRows5x8F64AVX2, gemmRows6x8F64AVX2,
		},
	)
	f32.along = []alongKernel[float32, float32]{gemmAlong1x16F32AVX2, gemmAlong2x16F32AVX2}
	f64.along = []alongKernel[float64, float64]{gemmAlong1x8F64AVX2, gemmAlong2x8F64AVX2}
	f32.alongBF16 = []alongKernel[float32, uint16]{gemmAlongHalf1x16F32AVX2, gemmAlongHalf2x16F32AVX2}
	f32.copyRows[0], f32.copyRows[1] = copyRows1F32AVX2, copyRows2F32AVX2
	f64.copyRows[0], f64.copyRows[1] = copyRows1F64AVX2, copyRows2F64AVX2
	f32.transpose, f64.transpose = transposeF32AVX2, transposeF64AVX2
	f32.transposePast, f64.transposePast = transposePastF32AVX2, transposePastF64AVX2
	f32.peak, f64.peak = peakF32AVX2, peakF64AVX2
	return f32, f64
}

func dotAVX512(h, n, k int, a *float32, as int, b *float32, bs int, c []float32, cs int, from operand[float32], alpha float32) {
	run := gemmDot1x1F32AVX512
	switch {
	case h == dotSide && n == dotSide:
		run = gemmDot5x5F32AVX512
	case h == dotSide:
		run = gemmDot5x1F32AVX512
	case n == dotSide:
		run = gemmDot1x5F32AVX512
	}
	run(k/16, a, 4*as, b, 4*bs, &c[0], 4*cs, from.at, 4*from.stride, alpha, 1<<(k%16)-1)
}

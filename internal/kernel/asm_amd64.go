//go:build !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// assemblyISAs are the instruction sets with assembly kernels that the CPU (and
// the operating system, which must save the registers) supports.
func assemblyISAs() []*isa {
	var s []*isa
	x := &cpu.X86
	if x.HasAVX512F {
		s = append(s, avx512())
	}
	if x.HasAVX2 && x.HasFMA && x.HasF16C {
		s = append(s, avx2())
	}
	return s
}

// Micro-kernels, as gen writes them: strides in bytes, one for each height.
type (
	plainKernel[T Float]  func(k int, a, b *T, bs int, c *T, cs int, alpha T, add bool)
	maskedKernel[T Float] func(k int, a, b *T, bs int, c *T, cs int, alpha T, add bool, mask uint64)
)

// avx512Engine makes an engine of kernels that are 2 vectors wide (wide) and 1
// (narrow), indexed by height-1.
func avx512Engine[T Float](wide, narrow []maskedKernel[T]) *engine[T] {
	size := int(unsafe.Sizeof(*new(T)))
	lanes := 64 / size
	return &engine[T]{
		rows: len(wide), cols: 2 * lanes, lanes: lanes, step: 1,
		kc: 384, mc: 1344 / size, nc: 4096 / size,
		flat: 2 * len(wide), narrow: true, crop: true,
		tile: func(h, n, k int, a, b []T, bs int, c []T, cs int, alpha T, add bool) {
			kernels := wide
			if n <= lanes {
				kernels = narrow
			}
			kernels[h-1](k, &a[0], &b[0], bs*size, &c[0], cs*size, alpha, add, 1<<n-1)
		},
	}
}

// avx2Engine makes an engine of kernels that are 2 vectors wide.
func avx2Engine[T Float](kernels []plainKernel[T]) *engine[T] {
	size := int(unsafe.Sizeof(*new(T)))
	lanes := 32 / size
	return &engine[T]{
		rows: len(kernels), cols: 2 * lanes, lanes: lanes, step: 1,
		kc: 384, mc: 576 / size, nc: 4096 / size,
		flat: 2 * len(kernels),
		tile: func(h, _, k int, a, b []T, bs int, c []T, cs int, alpha T, add bool) {
			kernels[h-1](k, &a[0], &b[0], bs*size, &c[0], cs*size, alpha, add)
		},
	}
}

func avx512() *isa {
	s := &isa{
		name: "avx512", grain: 1 << 19,
		vectors: vecAVX512,
		gemm32: avx512Engine(
			[]maskedKernel[float32]{
				gemm1x32F32AVX512, gemm2x32F32AVX512, gemm3x32F32AVX512, gemm4x32F32AVX512,
				gemm5x32F32AVX512, gemm6x32F32AVX512, gemm7x32F32AVX512, gemm8x32F32AVX512,
				gemm9x32F32AVX512, gemm10x32F32AVX512, gemm11x32F32AVX512, gemm12x32F32AVX512,
				gemm13x32F32AVX512, gemm14x32F32AVX512,
			},
			[]maskedKernel[float32]{
				gemm1x16F32AVX512, gemm2x16F32AVX512, gemm3x16F32AVX512, gemm4x16F32AVX512,
				gemm5x16F32AVX512, gemm6x16F32AVX512, gemm7x16F32AVX512, gemm8x16F32AVX512,
				gemm9x16F32AVX512, gemm10x16F32AVX512, gemm11x16F32AVX512, gemm12x16F32AVX512,
				gemm13x16F32AVX512, gemm14x16F32AVX512,
			},
		),
		gemm64: avx512Engine(
			[]maskedKernel[float64]{
				gemm1x16F64AVX512, gemm2x16F64AVX512, gemm3x16F64AVX512, gemm4x16F64AVX512,
				gemm5x16F64AVX512, gemm6x16F64AVX512, gemm7x16F64AVX512, gemm8x16F64AVX512,
				gemm9x16F64AVX512, gemm10x16F64AVX512, gemm11x16F64AVX512, gemm12x16F64AVX512,
				gemm13x16F64AVX512, gemm14x16F64AVX512,
			},
			[]maskedKernel[float64]{
				gemm1x8F64AVX512, gemm2x8F64AVX512, gemm3x8F64AVX512, gemm4x8F64AVX512,
				gemm5x8F64AVX512, gemm6x8F64AVX512, gemm7x8F64AVX512, gemm8x8F64AVX512,
				gemm9x8F64AVX512, gemm10x8F64AVX512, gemm11x8F64AVX512, gemm12x8F64AVX512,
				gemm13x8F64AVX512, gemm14x8F64AVX512,
			},
		),
	}
	s.gemm32.copyRows[0], s.gemm32.copyRows[1] = copyRows1F32AVX512, copyRows2F32AVX512
	s.gemm64.copyRows[0], s.gemm64.copyRows[1] = copyRows1F64AVX512, copyRows2F64AVX512
	s.gemm32.transpose, s.gemm64.transpose = transposeF32AVX512, transposeF64AVX512
	s.bf16 = dotEngines()
	return s
}

func avx2() *isa {
	s := &isa{
		name: "avx2", grain: 1 << 18,
		vectors: vecAVX2,
		gemm32: avx2Engine(
			[]plainKernel[float32]{
				gemm1x16F32AVX2, gemm2x16F32AVX2, gemm3x16F32AVX2, gemm4x16F32AVX2,
				gemm5x16F32AVX2, gemm6x16F32AVX2,
			},
		),
		gemm64: avx2Engine(
			[]plainKernel[float64]{
				gemm1x8F64AVX2, gemm2x8F64AVX2, gemm3x8F64AVX2, gemm4x8F64AVX2,
				gemm5x8F64AVX2, gemm6x8F64AVX2,
			},
		),
	}
	s.gemm32.copyRows[0], s.gemm32.copyRows[1] = copyRows1F32AVX2, copyRows2F32AVX2
	s.gemm64.copyRows[0], s.gemm64.copyRows[1] = copyRows1F64AVX2, copyRows2F64AVX2
	s.gemm32.transpose, s.gemm64.transpose = transposeF32AVX2, transposeF64AVX2
	return s
}

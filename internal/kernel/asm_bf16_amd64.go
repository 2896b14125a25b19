//go:build !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// dotEngines are the engines for CPUs with AVX-512 that sum pairs of bfloat16,
// best first.
func dotEngines() []*engineBF16 {
	if x := &cpu.X86; !x.HasAVX512BF16 || !x.HasAVX512BW || !x.HasBMI2 {
		return nil
	}
	tiles := avx512Engine(
		[]maskedKernel[float32]{
			gemm1x32AVX512BF16, gemm2x32AVX512BF16, gemm3x32AVX512BF16, gemm4x32AVX512BF16,
			gemm5x32AVX512BF16, gemm6x32AVX512BF16, gemm7x32AVX512BF16, gemm8x32AVX512BF16,
			gemm9x32AVX512BF16, gemm10x32AVX512BF16, gemm11x32AVX512BF16, gemm12x32AVX512BF16,
			gemm13x32AVX512BF16, gemm14x32AVX512BF16,
		},
		[]maskedKernel[float32]{
			gemmRows1x32AVX512BF16, gemmRows2x32AVX512BF16, gemmRows3x32AVX512BF16, gemmRows4x32AVX512BF16,
			gemmRows5x32AVX512BF16, gemmRows6x32AVX512BF16, gemmRows7x32AVX512BF16, gemmRows8x32AVX512BF16,
			gemmRows9x32AVX512BF16, gemmRows10x32AVX512BF16, gemmRows11x32AVX512BF16, gemmRows12x32AVX512BF16,
			gemmRows13x32AVX512BF16, gemmRows14x32AVX512BF16,
		},
		[]maskedKernel[float32]{
			gemm1x16AVX512BF16, gemm2x16AVX512BF16, gemm3x16AVX512BF16, gemm4x16AVX512BF16,
			gemm5x16AVX512BF16, gemm6x16AVX512BF16, gemm7x16AVX512BF16, gemm8x16AVX512BF16,
			gemm9x16AVX512BF16, gemm10x16AVX512BF16, gemm11x16AVX512BF16, gemm12x16AVX512BF16,
			gemm13x16AVX512BF16, gemm14x16AVX512BF16,
		},
		[]maskedKernel[float32]{
			gemmRows1x16AVX512BF16, gemmRows2x16AVX512BF16, gemmRows3x16AVX512BF16, gemmRows4x16AVX512BF16,
			gemmRows5x16AVX512BF16, gemmRows6x16AVX512BF16, gemmRows7x16AVX512BF16, gemmRows8x16AVX512BF16,
			gemmRows9x16AVX512BF16, gemmRows10x16AVX512BF16, gemmRows11x16AVX512BF16, gemmRows12x16AVX512BF16,
			gemmRows13x16AVX512BF16, gemmRows14x16AVX512BF16,
		},
	)
	tiles.kc, tiles.mc = dotKC, 336
	tiles.transpose = transposeF32AVX512
	e := dotEngine(tiles, interleaveAVX512, transposePairsAVX512)
	e.round = roundTileAVX512
	e.along = []alongKernel[float32, uint16]{gemmAlong1x32AVX512BF16, gemmAlong2x32AVX512BF16, gemmAlong3x32AVX512BF16,
		gemmAlong4x32AVX512BF16}
	if amxGranted() {
		return []*engineBF16{tileEngine(e, amxKernels), e}
	}
	return []*engineBF16{e}
}

// interleaveAVX512 is interleave for w <= 32. It writes whole vectors.
func interleaveAVX512(dst []float32, ds int, src []BF16, ss, w, k int, _ []float32) {
	run := interleave1AVX512BF16
	if w > 16 {
		run = interleave2AVX512BF16
	}
	run(&dst[0], 4*ds, halfPtr(src), 2*ss, k, 1<<w-1)
}

// transposePairsAVX512 is transposePairs. It writes whole vectors, which may reach
// into the next row. So the last columns come first: the others then overwrite
// that.
func transposePairsAVX512(dst []float32, ds int, src []BF16, ss, w, k int, _ []float32) {
	for i := (w - 1) / 16 * 16; i >= 0; i -= 16 {
		transposePairsAVX512BF16(&dst[i], 4*ds, halfPtr(src[i*ss:]), 2*ss, min(16, w-i), k)
	}
}

func roundTileAVX512(dst []BF16, ds int, src []float32, ss, h, n int, bias []float32) {
	roundTileAVX512BF16(halfPtr(dst), 2*ds, &src[0], 4*ss, h, &bias[0], 1<<n-1)
}

func halfPtr(x []BF16) *uint16 { return (*uint16)(unsafe.Pointer(&x[0])) }

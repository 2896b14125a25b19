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

func avx512() *isa {
	s := &isa{name: "avx512", vectors: vecAVX512, grain: 1 << 18}
	s.gemm32, s.gemm64 = gemmAVX512()
	s.bf16 = dotEngines()
	return s
}

func avx2() *isa {
	s := &isa{name: "avx2", vectors: vecAVX2, grain: 1 << 18}
	s.gemm32, s.gemm64 = gemmAVX2()
	return s
}

// move copies with the processor's own loop, which takes lines that it overwrites whole without reading them: memory that
// another core had last is written 1.2 times as fast.
func move(dst, src []byte) {
	if !cpu.X86.HasERMS {
		copy(dst, src)
		return
	}
	moveBytes(unsafe.SliceData(dst), unsafe.SliceData(src), len(src))
}

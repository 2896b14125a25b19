//go:build !noasm

package kernel

import (
	"hash/crc32"
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

// move copies with the processor's copy instruction. It does not read lines that it
// overwrites whole, so memory that another core wrote last is written 1.2 times as
// fast.
func move(dst, src []byte) {
	if !cpu.X86.HasERMS {
		copy(dst, src)
		return
	}
	moveBytes(unsafe.SliceData(dst), unsafe.SliceData(src), len(src))
}

func folds() bool { return active.vectors == vecAVX512 && cpu.X86.HasAVX512VPCLMULQDQ }

// foldBlocks is CRC32C of whole blocks.
func foldBlocks(crc uint32, p []byte) uint32 {
	var rest [crcBlock]byte
	for len(p) > 0 {
		chunk := p[:min(len(p), crcChunk)]
		foldCRC(&rest[0], &chunk[0], len(chunk), ^crc, &crcFactors[0])
		crc = crc32.Update(^uint32(0), castagnoli, rest[:]) // from 0: Update complements what it begins with
		p = p[len(chunk):]
	}
	return crc
}

// crcChunk is the largest number of bytes for one assembly call: about 10 µs.
const crcChunk = 1 << 20

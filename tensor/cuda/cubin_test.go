package cuda_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Attributes of machine code, in sections .nv.info: https://docs.nvidia.com/cuda/cuda-binary-utilities and the compiler's output.
const (
	sizedAttribute = 4    // EIFMT_SVAL: the format byte of attributes with a length
	maxThreads     = 0x05 // of a kernel with __launch_bounds__
	frameSize      = 0x11 // a symbol's number, and the bytes of its stack frame: spilled registers
	registers      = 0x2f // a symbol's number and its registers
)

// resources are the resources that a kernel of a cubin needs.
type resources struct{ registers, frame, bound int }

// attributes calls fn for each attribute with a length.
func attributes(b []byte, fn func(kind byte, v []byte)) {
	for len(b) >= 4 {
		if b[0] != sizedAttribute {
			b = b[4:]
			continue
		}
		n := 4 + int(binary.LittleEndian.Uint16(b[2:]))
		fn(b[1], b[4:n])
		b = b[n:]
	}
}

// kernelsOf reads the resources of the kernels in a cubin, by name.
func kernelsOf(t *testing.T, code []byte) map[string]*resources {
	f, err := elf.NewFile(bytes.NewReader(code))
	require.NoError(t, err)
	symbols, err := f.Symbols()
	require.NoError(t, err)
	out := map[string]*resources{}
	for _, s := range f.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".nv.info."); ok {
			out[name] = &resources{}
		}
	}
	for _, s := range f.Sections {
		if !strings.HasPrefix(s.Name, ".nv.info") {
			continue
		}
		b, err := s.Data()
		require.NoError(t, err)
		attributes(b, func(kind byte, v []byte) {
			at := func(i int) int { return int(binary.LittleEndian.Uint32(v[4*i:])) }
			switch kind {
			case registers, frameSize:
				k := out[symbols[at(0)-1].Name] // Symbols does not return number 0
				switch {
				case k == nil:
				case kind == registers:
					k.registers = at(1)
				default:
					k.frame = at(1)
				}
			case maxThreads:
				out[strings.TrimPrefix(s.Name, ".nv.info.")].bound = at(0) * at(1) * at(2)
			}
		})
	}
	return out
}

// widest is the largest block of kernels without __launch_bounds__: rowWarps. Larger ones have it.
const widest = 512

// fits fails if a block of a kernel needs more registers than a multiprocessor has. On a GPU its launch would fail with
// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; the emulator does not check that. Kernels on tensor cores must not spill registers, either. most gets
// the largest number for each name.
func fits(t *testing.T, what string, code []byte, most map[string]int) {
	kernels := kernelsOf(t, code)
	require.NotEmpty(t, kernels, "%s", what)
	for name, k := range kernels {
		threads := k.bound
		if threads == 0 {
			threads = widest
		}
		require.Positive(t, k.registers, "%s of %s", name, what)
		require.LessOrEqual(t, (k.registers+7)/8*8*threads, 64<<10, "%s of %s: %d registers for each of %d threads", name, what, k.registers, threads)
		if strings.Contains(what, "_mma") {
			require.Zero(t, k.frame, "%s of %s has registers in memory", name, what)
		}
		most[name] = max(most[name], k.registers)
	}
}

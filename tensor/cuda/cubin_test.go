package cuda_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
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
	out, err := resourcesOf(code)
	require.NoError(t, err)
	return out
}

func resourcesOf(code []byte) (map[string]*resources, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
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
		if err != nil {
			return nil, err
		}
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
	return out, nil
}

// widest is the largest block of kernels without __launch_bounds__: rowWarps. Larger ones have it.
const widest = 512

// fits returns an error if a block of a kernel needs more registers than a multiprocessor has. On a GPU its launch would fail with
// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; the emulator does not check that. most gets the largest number for each name.
func fits(what string, code []byte, most map[string]int) error {
	kernels, err := resourcesOf(code)
	if err != nil || len(kernels) == 0 {
		return fmt.Errorf("%s has %d kernels: %w", what, len(kernels), err)
	}
	for name, k := range kernels {
		threads := k.bound
		if threads == 0 {
			threads = widest
		}
		if k.registers <= 0 || (k.registers+7)/8*8*threads > 64<<10 {
			return fmt.Errorf("%s of %s: %d registers for each of %d threads", name, what, k.registers, threads)
		}
		most[name] = max(most[name], k.registers)
	}
	return nil
}

// same returns an error if the kernels of two cubins have different instructions.
func same(a, b []byte) error {
	x, err := instructions(a)
	if err != nil {
		return err
	}
	y, err := instructions(b)
	if err != nil {
		return err
	}
	for name, code := range x {
		if !bytes.Equal(code, y[name]) {
			return fmt.Errorf("%s has other instructions: %d bytes and %d", name, len(code), len(y[name]))
		}
	}
	if len(x) == 0 || len(x) != len(y) {
		return fmt.Errorf("%d kernels and %d", len(x), len(y))
	}
	return nil
}

// instructions are the instructions of the kernels in a cubin, by section.
func instructions(code []byte) (map[string][]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".text.") {
			if out[s.Name], err = s.Data(); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

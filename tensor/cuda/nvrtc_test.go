package cuda_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// TestNVRTC compiles every kernel with NVIDIA's own compiler. A process opens one compiler, so a child of this one does it.
func TestNVRTC(t *testing.T) {
	if realCompiler == "" {
		t.Skip("RINGO_NVRTC_LIB does not name NVIDIA's compiler (pip install nvidia-cuda-nvrtc)")
	}
	for _, arch := range []string{"sm_80", "sm_90", "sm_100"} {
		t.Run(arch, func(t *testing.T) {
			if os.Getenv("RINGO_NVRTC_CHILD") == "" {
				cmd := exec.Command(os.Args[0], "-test.run=^TestNVRTC$/^"+arch+"$", "-test.v")
				cmd.Env = append(os.Environ(), "RINGO_NVRTC_CHILD=1", "RINGO_NVRTC_LIB="+realCompiler)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
				return
			}
			c, err := gpu.LoadCompiler()
			require.NoError(t, err)
			n, err := cuda.CompileAll(c, arch, os.Getenv("RINGO_LONG") == "1", func(what string, code []byte) {
				regs, frame := resources(t, code)
				if strings.HasPrefix(what, "attention_mma") {
					t.Logf("%s: %d registers", what, regs)
					assert.Zero(t, frame, "%s has registers in memory", what)
				}
			})
			require.NoError(t, err)
			t.Logf("%d modules by NVRTC %d.%d", n, c.Major, c.Minor)
		})
	}
}

// resources returns the registers of a thread and the bytes of its stack, the largest of a module's kernels: the section
// .nv.info is a list of a format, an attribute and, with format 4, a size and as many bytes, a symbol and a number here.
func resources(t *testing.T, code []byte) (registers, stack uint32) {
	const frameSize, regCount, sized = 0x11, 0x2f, 4
	f, err := elf.NewFile(bytes.NewReader(code))
	require.NoError(t, err)
	info, err := f.Section(".nv.info").Data()
	require.NoError(t, err)
	for len(info) > 0 {
		format, attribute, size := info[0], info[1], int(binary.LittleEndian.Uint16(info[2:]))
		info = info[4:]
		if format != sized {
			continue
		}
		if attribute == regCount {
			registers = max(registers, binary.LittleEndian.Uint32(info[4:]))
		}
		if attribute == frameSize {
			stack = max(stack, binary.LittleEndian.Uint32(info[4:]))
		}
		info = info[size:]
	}
	require.Positive(t, registers)
	return registers, stack
}

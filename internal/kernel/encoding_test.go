package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Go's assembler does not have the instructions for bfloat16 and AMX, so the
// generator encodes them. binutils must decode the bytes to the intended
// instructions. On a CPU without AMX, this is the only possible test of the AMX
// kernels.
func TestEncodings(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("objdump"); err != nil {
		t.Skip("needs objdump (binutils)")
	}
	for file, want := range map[string]func() map[string][]string{"asm_avx512bf16_amd64.s": wantDot, "asm_amx_amd64.s": wantAMX} {
		code, lists := encoded(t, file), want()
		var all []byte
		names := slices.Sorted(maps.Keys(code))
		require.Equal(t, slices.Sorted(maps.Keys(lists)), names, "functions with machine code, and those that it is expected of")
		for _, name := range names {
			all = append(all, code[name]...)
		}
		list := disassemble(t, all)
		for _, name := range names {
			n := min(len(lists[name]), len(list))
			require.Equal(t, lists[name], list[:n], name)
			list = list[n:]
		}
		require.Empty(t, list)
	}
}

// encoded returns the machine code that is written as numbers in each function of
// an assembly file.
func encoded(t *testing.T, file string) map[string][]byte {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	code, name := map[string][]byte{}, ""
	for _, line := range regexp.MustCompile(`TEXT ·(\w+)|(LONG|BYTE) +\$(\w+)`).FindAllSubmatch(text, -1) {
		if line[1] != nil {
			name = string(line[1])
			continue
		}
		v, err := strconv.ParseUint(string(line[3]), 0, 32)
		require.NoError(t, err)
		if string(line[2]) == "BYTE" {
			code[name] = append(code[name], byte(v))
		} else {
			code[name] = binary.LittleEndian.AppendUint32(code[name], uint32(v))
		}
	}
	return code
}

// disassemble returns instructions in Intel's syntax.
func disassemble(t *testing.T, code []byte) (list []string) {
	file := filepath.Join(t.TempDir(), "code")
	require.NoError(t, os.WriteFile(file, code, 0o600))
	out, err := exec.Command("objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "--no-show-raw-insn", file).Output()
	require.NoError(t, err)
	instruction := regexp.MustCompile(`^ +[0-9a-f]+:\t(.+)`)
	for _, line := range bytes.Split(out, []byte("\n")) {
		if m := instruction.FindSubmatch(line); m != nil {
			list = append(list, strings.Join(strings.Fields(string(m[1])), " "))
		}
	}
	return list
}

// wantDot are the products of the micro-kernels. Registers 0 and 1 hold B, then
// come the sums by row, then two elements of A. In kernels for few rows, the
// registers of a transposed square take the place of B's, and 0 and 1 hold A.
func wantDot() map[string][]string {
	all := map[string][]string{"roundTileAVX512BF16": {"vcvtne2ps2bf16 zmm2,zmm1,zmm0"}}
	for w := 1; w <= 2; w++ {
		for h := 1; h <= 14; h++ {
			var one []string
			for i := range h {
				for j := range w {
					one = append(one, fmt.Sprintf("vdpbf16ps zmm%d,zmm%d,zmm%d", w+i*w+j, j, w+h*w+i%2))
				}
			}
			for _, form := range []string{"gemm", "gemmRows"} { // by the layout of A
				name := fmt.Sprintf("%s%dx%dAVX512BF16", form, h, 16*w)
				for range 5 { // 4 steps of k in a turn of the loop, and the remainder's
					all[name] = append(all[name], one...)
				}
			}
		}
	}
	columns := []int{21, 23, 24, 10, 26, 11, 14, 12, 13, 15, 18, 16, 19, 22, 20, 25} // of a transposed square
	for h := 1; h <= fewRows; h++ {
		name := fmt.Sprintf("gemmAlong%dx32AVX512BF16", h)
		for c := range 2 * 2 { // two vectors, in the loop and in the remainder
			for _, column := range columns {
				for i := range h {
					all[name] = append(all[name], fmt.Sprintf("vdpbf16ps zmm%d,zmm%d,zmm%d", 2+2*i+c%2, column, i%2))
				}
			}
		}
	}
	return all
}

func wantAMX() map[string][]string {
	return map[string][]string{"tiles1AMX": wantTiles(1, false), "tiles2AMX": wantTiles(2, false), "tiles2RoundAMX": wantTiles(2, true)}
}

// wantTiles are the encoded instructions of the kernel for n tiles of rows.
func wantTiles(n int, round bool) []string {
	sums := func(form string) (list []string) {
		for t := range 2 * n {
			list = append(list, fmt.Sprintf(form, fmt.Sprintf("[rdi+r8*1+0x%x]", t/2*2048+t%2*64), t))
		}
		return list
	}
	code := append([]string{"ldtilecfg [rax]"}, sums("tileloadd tmm%[2]d,%[1]s")...)
	for t := range 2 * n {
		code = append(code, fmt.Sprintf("tilezero tmm%d", t))
	}
	code = append(code, "tileloadd tmm6,[rbx+r8*1+0x0]", "tileloadd tmm4,[rsi+r9*1+0x0]", "tdpbf16ps tmm0,tmm4,tmm6",
		"tileloadd tmm7,[rbx+r8*1+0x40]", "tdpbf16ps tmm1,tmm4,tmm7")
	if n == 2 {
		code = append(code, "tileloadd tmm5,[r12+r9*1+0x0]", "tdpbf16ps tmm2,tmm5,tmm6", "tdpbf16ps tmm3,tmm5,tmm7")
	}
	var rounded []string
	if round {
		rounded = []string{"vcvtne2ps2bf16 zmm2,zmm1,zmm0"}
	}
	code = append(code, rounded...) // the tile before
	code = append(append(code, sums("tilestored %[1]s,tmm%[2]d")...), "tilerelease")
	return append(code, rounded...) // the last tile
}

// On a CPU with AMX, its kernels have the bits of the emulation.
func TestAMXIsAsEmulated(t *testing.T) {
	for _, e := range isas[0].bf16 {
		if e.tiles == nil {
			continue
		}
		for i := range 40 {
			tr := transposes[i%4]
			c := newBF16(uint64(i), tr[0], tr[1], 1+i*7%70, 1+i*5%80, 1+i*37%900, 1, i%3 == 0, realNumber).withBias(realNumber)
			c.g.Alpha, c.g.Beta = 0.5, float32(i%2)
			requireSameBits(t, c.run(t, emulatedAMX()), c.run(t, e), c)
		}
		return
	}
	t.Skip("this CPU or system does not grant AMX")
}

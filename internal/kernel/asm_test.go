package kernel

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChooseISA(t *testing.T) {
	best, err := chooseISA("")
	require.NoError(t, err)
	assert.Same(t, isas[0], best)
	for _, s := range isas {
		got, err := chooseISA(s.name)
		require.NoError(t, err)
		assert.Same(t, s, got)
	}
	got, err := chooseISA("sse9")
	assert.Equal(t, "generic", got.name)
	require.ErrorContains(t, err, "RINGO_CPU=sse9")
	require.ErrorContains(t, err, "generic")
}

// The tests of the whole package also run with RINGO_CPU set.
func TestCPU(t *testing.T) {
	want, err := chooseISA(os.Getenv("RINGO_CPU"))
	assert.Equal(t, want.name, CPU())
	assert.Equal(t, err, CPUError())
}

// AVX2 has sixteen vector registers. A kernel that uses more can be assembled, with
// instructions of AVX-512, and runs on CPUs that have these.
func TestAVX2HasSixteenRegisters(t *testing.T) {
	text, err := os.ReadFile("asm_avx2_amd64.s")
	require.NoError(t, err)
	assert.Contains(t, string(text), "Y15")
	assert.Empty(t, regexp.MustCompile(`\b([XY](1[6-9]|2\d|3[01])|Z\d+|K[0-7])\b`).FindAllString(string(text), 3))
}

// On arm64 the operating system may own R18, the assembler uses R27, and Go keeps
// the goroutine, the frame and the return address in the last three. These
// functions call none and have no frame.
func TestNEONLeavesReservedRegisters(t *testing.T) {
	text, err := os.ReadFile("asm_neon_arm64.s")
	require.NoError(t, err)
	assert.Contains(t, string(text), "R26")
	assert.Empty(t, regexp.MustCompile(`\b(R18|R18_PLATFORM|R27|REGTMP|R28|g|R29|R30|LR|RSP)\b|\b(BL|CALL)\b`).FindAllString(string(text), 3))
	functions := regexp.MustCompile(`(?m)^TEXT .*$`).FindAllString(string(text), -1)
	assert.NotEmpty(t, functions)
	for _, f := range functions {
		assert.Regexp(t, `\(SB\), NOSPLIT, \$0-\d+$`, f)
	}
}

func TestAddTo(t *testing.T) {
	for _, s := range isas {
		t.Run(s.name+"/float32", func(t *testing.T) { testAddTo(t, s, AddTo32) })
		t.Run(s.name+"/float64", func(t *testing.T) { testAddTo(t, s, AddTo64) })
	}
}

func testAddTo[T Float](t *testing.T, s *isa, add func(dst, a, b []T)) {
	lengths := []int{asmChunk - 1, asmChunk, asmChunk + vectorStep, 2*asmChunk + 3}
	for n := range 200 {
		lengths = append(lengths, n)
	}
	for i, n := range lengths {
		c := newCase[T](uint64(i), false, false, 1, n, 0, 0).real()
		dst, a, b := c.c, append([]T(nil), c.c...), append([]T(nil), c.c...)
		for p := range b {
			b[p] = T(c.rng.Float64())
		}
		off := guard - i%5 // any alignment
		want := append([]T(nil), dst...)
		for p := off; p < off+n; p++ {
			want[p] = a[p] + b[p]
		}
		withISA(s, func() { add(dst[off:off+n], a[off:off+n], b[off:off+n]) })
		requireSameBits(t, want, dst, n)
		withISA(s, func() { add(b[off:off+n], a[off:off+n], b[off:off+n]) }) // in place
		requireSameBits(t, want[off:off+n], b[off:off+n], n)
	}
}

func TestAddTwice(t *testing.T) {
	twice := func(dst, a, b []float32) {
		too := make([]float32, len(dst)+1)
		AddTwice32(dst, too[:len(dst)], a, b)
		requireSameBits(t, dst, too[:len(dst)], len(dst))
		require.Zero(t, too[len(dst)])
	}
	for _, s := range isas {
		t.Run(s.name, func(t *testing.T) { testAddTo(t, s, twice) })
	}
	assert.Panics(t, func() { AddTwice32(make([]float32, 2), make([]float32, 1), make([]float32, 2), make([]float32, 2)) })
}

func TestMove(t *testing.T) {
	for _, n := range []int{0, 1, 100, moveFrom - 1, moveFrom, moveFrom + 1, 100_003} {
		src, dst := make([]byte, n+2), make([]byte, n+3)
		for i := range src {
			src[i] = byte(i*7 + i>>8)
		}
		want := slices.Clone(dst)
		copy(want[1:n+1], src[2:])
		Move(dst[1:n+1], src[2:])
		require.Equal(t, want, dst, n)
	}
	assert.Panics(t, func() { Move(make([]byte, 2), make([]byte, 1)) })
}

func TestAddToSpecial(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	dst := make([]float64, 40)
	a, b := filled(40, inf), filled(40, -inf)
	a[39], b[39] = 1, nan
	AddTo64(dst, a, b)
	assert.Equal(t, 40, countNonFinite(dst))
	AddTo32(nil, nil, nil)
	assert.Panics(t, func() { AddTo32(make([]float32, 2), make([]float32, 2), make([]float32, 1)) })
	assert.Panics(t, func() { AddTo64(make([]float64, 1), make([]float64, 2), make([]float64, 2)) })
}

// Assembly must not change the processor's rounding mode or its treatment of
// subnormal numbers.
func TestAssemblyLeavesTheControlRegister(t *testing.T) {
	files, err := filepath.Glob("*.s")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, strings.Contains(string(text), "VMOV"), strings.Contains(string(text), "VZEROUPPER"), file)
		for _, set := range []string{"LDMXCSR", "FLDCW", "FLDENV", "XRSTOR", "MSR"} { // FXRSTOR, too
			assert.NotContains(t, string(text), set, file)
		}
	}
}

package blas

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// realLib is read before any test puts the emulator's library there.
var realLib = os.Getenv("RINGO_CUBLASLT_LIB")

// openReal opens the real library; if there is none, the test is skipped.
func openReal(t *testing.T) *Handle {
	q := cuda.LibCuBLASLt.Query(13)
	q.Env = ""
	if realLib != "" {
		q.Names = []string{realLib}
	}
	lib, err := open(q)
	if errors.Is(err, ErrNotFound) {
		t.Skipf("needs the real cuBLASLt: %v", err)
	}
	require.NoError(t, err)
	return &Handle{lib: lib}
}

// The real library makes descriptors without a GPU. It returns an error for an
// attribute that it does not know, or whose size is wrong. So this test checks our
// constants.
func TestRealDescriptors(t *testing.T) {
	h := openReal(t)
	for _, typ := range []Type{Float32, Float64, BFloat16, Float16} {
		for e := range epilogueNames {
			g := &Gemm{Type: typ, TransA: true, TransB: true, M: 16, N: 24, K: 32, LDA: 16, LDB: 32, LDC: 24, Batch: 3, StrideA: 512,
				StrideB: 768, StrideC: 384, Epilogue: e, A: 1 << 20, B: 1 << 21, C: 1 << 22, Bias: 1 << 23, Aux: 1 << 24, LDAux: 24, TF32: true}
			p := new(plan)
			require.NoError(t, h.describe(p, g))
			require.NoError(t, h.layouts(p, g))
			pref, err := h.preference(g)
			require.NoError(t, err)
			dl.Call(h.lib.fn.PreferenceDestroy, pref)
			if e == None {
				var wide uint64
				r := dl.Call(h.lib.fn.DescSet, p.desc, descTransA, uintptr(unsafe.Pointer(&wide)), 8)
				require.ErrorContains(t, check("set", r, g), "CUBLAS_STATUS_INVALID_VALUE")
			}
			h.destroy(p)
		}
	}
}

// It accepts the types, scales and modes of 8-bit floats, too.
func TestRealFloat8(t *testing.T) {
	h := openReal(t)
	for _, perRow := range []bool{false, h.lib.Version >= rowScalesVersion} {
		g := &Gemm{Type: BFloat16, TransB: true, M: 16, N: 32, K: 64, LDA: 64, LDB: 64, LDC: 32, Batch: 1, A8: E5M2, B8: E4M3, PerRow: perRow,
			FastAccum: perRow, ScaleA: 1 << 20, ScaleB: 1 << 21, A: 1 << 22, B: 1 << 23, C: 1 << 24}
		p := new(plan)
		require.NoError(t, h.describe(p, g))
		require.NoError(t, h.layouts(p, g))
		h.destroy(p)
	}
}

// Products with and without fast accumulation have plans of their own.
func TestFastAccumIsInKey(t *testing.T) {
	g := &Gemm{Type: BFloat16, A8: E4M3, B8: E4M3}
	slow := g.key()
	g.FastAccum = true
	require.NotEqual(t, slow, g.key())
}

func TestMissingLibrary(t *testing.T) {
	q := cuda.LibCuBLASLt.Query(12)
	q.Env, q.Names, q.Wheels = "", []string{"libno-such-blas.so"}, nil
	_, err := open(q)
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, "pip install nvidia-cublas")
	require.ErrorContains(t, err, "libno-such-blas.so")
}

package blas_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

// newTuner is a rig that times algorithms and keeps choices in a folder.
func newTuner(t *testing.T, folder string) *rig {
	r := newRig(t)
	r.h.Tune(folder)
	return r
}

// Nothing is timed if the user does not ask for it.
func TestTuneIsAskedFor(t *testing.T) {
	require.Empty(t, newRig(t).h.Folder())
	t.Setenv("RINGO_CUDA_TUNE", "1")
	require.Equal(t, cuda.CacheDir(), newRig(t).h.Folder())
}

// times makes the rig's candidates take so many milliseconds, in turns.
func (r *rig) times(ms ...float32) {
	calls := 0
	r.h.SetTimer(func(run func() error) (float32, error) {
		calls++
		return ms[(calls-1)%len(ms)], run()
	})
}

// noTimes fails the test when something is timed.
func (r *rig) noTimes() {
	r.h.SetTimer(func(func() error) (float32, error) {
		assert.Fail(r.t, "timed")
		return 0, nil
	})
}

// small is a product for which the emulator has three algorithms.
func (r *rig) small() *blas.Gemm {
	x := r.vec(blas.Float32, 4*64, 0)
	return &blas.Gemm{Type: blas.Float32, M: 8, N: 8, K: 8, Alpha: 1, LDA: 8, LDB: 8, LDC: 8, A: x.ptr, B: x.ptr + 256, C: x.ptr + 512}
}

func (r *rig) requireAlgorithm(want int, g *blas.Gemm) {
	r.t.Helper()
	require.NoError(r.t, r.h.MatMul(r.s, g))
	at, of := r.h.Algorithm(g)
	require.Equal(r.t, 3, of)
	require.Equal(r.t, want, at)
}

// The fastest algorithm is chosen, unless the first one is nearly as fast. Later processes take the choice from the file.
func TestTune(t *testing.T) {
	emu.Only(t, "it counts the emulator's algorithms")
	for want, ms := range [][]float32{{1, 0.99, 1}, {2, 1, 1.5}, {2, 1.5, 1}} {
		folder := t.TempDir()
		r := newTuner(t, folder)
		r.times(ms...)
		r.requireAlgorithm(want, r.small())

		later := newTuner(t, folder)
		later.noTimes()
		later.requireAlgorithm(want, later.small())

		require.NoError(t, os.RemoveAll(folder)) // a product that was tuned is not looked up again
		r.noTimes()
		r.requireAlgorithm(want, r.small())
	}
}

// Of two processes that time at once, the first one to write decides for both.
func TestTuneTogether(t *testing.T) {
	emu.Only(t, "it counts the emulator's algorithms")
	folder := t.TempDir()
	first, second := newTuner(t, folder), newTuner(t, folder)
	first.times(3, 2, 1)
	calls := 0
	second.h.SetTimer(func(run func() error) (float32, error) {
		if calls++; calls == 1 {
			first.requireAlgorithm(2, first.small())
		}
		return []float32{3, 1, 2}[(calls-1)%3], run()
	})
	second.requireAlgorithm(2, second.small())
	left, err := filepath.Glob(filepath.Join(folder, ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Without a file that holds the choice, the heuristic's first algorithm stays: other processes cannot know of another one.
func TestTuneWithoutFolder(t *testing.T) {
	emu.Only(t, "it counts the emulator's algorithms")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	r := newTuner(t, filepath.Join(file, "folder"))
	r.times(3, 2, 1)
	r.requireAlgorithm(0, r.small())

	r = newTuner(t, t.TempDir())
	r.noTimes()
	g := r.small()
	require.NoError(t, os.WriteFile(r.h.ChoicePath(g), []byte("damaged\n00\n"), 0o666))
	r.requireAlgorithm(0, g)
}

// Timing may need more memory than the product: without it, the heuristic's first algorithm stays.
func TestTuneOutOfMemory(t *testing.T) {
	emu.Only(t, "it counts the emulator's algorithms")
	r := newTuner(t, t.TempDir())
	r.h.SetTimer(func(func() error) (float32, error) { return 0, &cuda.Error{Call: "cuMemAlloc", Code: 2} })
	r.requireAlgorithm(0, r.small())
}

// An algorithm that fails is not chosen.
func TestTuneRefused(t *testing.T) {
	emu.Only(t, "it counts the emulator's algorithms")
	r := newTuner(t, t.TempDir())
	calls := 0
	r.h.SetTimer(func(run func() error) (float32, error) {
		if calls++; calls%3 == 2 && calls < 4 {
			return 0, &blas.Error{Call: "cublasLtMatmul", Status: 15}
		}
		return float32(3 - calls%2), run()
	})
	g := r.small()
	require.NoError(t, r.h.MatMul(r.s, g))
	at, _ := r.h.Algorithm(g)
	require.NotEqual(t, 1, at)
	require.Equal(t, 3+4*2, calls)
}

// While the device records, nothing is timed. The next time it is.
func TestTuneLater(t *testing.T) {
	emu.Only(t, "it counts the emulator's algorithms")
	r := newTuner(t, t.TempDir())
	r.times(3, 2, 1)
	larger := r.small()
	larger.M = 16
	require.NoError(t, r.h.MatMul(r.s, larger)) // workspace cannot be allocated while the device records
	g := r.small()
	r.noTimes()
	require.NoError(t, r.s.BeginCapture())
	require.NoError(t, r.h.MatMul(r.s, g))
	graph, err := r.s.EndCapture()
	require.NoError(t, err)
	require.NoError(t, graph.Close())
	r.times(3, 2, 1)
	r.requireAlgorithm(2, g)
}

// The results of a product that was timed are those without it: also where it adds to C, and what epilogues store.
func TestTunedResults(t *testing.T) {
	r := newTuner(t, t.TempDir())
	want := 0
	product := func(g *blas.Gemm) {
		if r.product(g, 0) {
			want++
		}
	}
	for _, e := range []blas.Epilogue{blas.None, blas.ReLUBias, blas.GELUAux, blas.GELUAuxBias, blas.DGELU, blas.DGELUBias, blas.BiasGradA} {
		g := &blas.Gemm{Type: blas.Float32, M: 24, N: 16, K: 32, Alpha: 1, Beta: 0.5, LDA: 40, LDB: 16, LDC: 24, LDAux: 16, Epilogue: e}
		if e != blas.None {
			g.Beta = 0
		}
		product(g)
	}
	product(&blas.Gemm{Type: blas.BFloat16, M: 8, N: 16, K: 24, Alpha: 1, Beta: 1, LDA: 24, LDB: 16, LDC: 16, Batch: 3, StrideA: 192,
		StrideB: 384, StrideC: 128})
	files, err := filepath.Glob(filepath.Join(r.h.Folder(), "gemm-*.txt"))
	require.NoError(t, err)
	require.Len(t, files, want, "one for each product that this cuBLASLt has")
	require.True(t, want == 8 || emu.OnGPU() && want > 1, "%d products", want)
}

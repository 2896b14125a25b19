package cuda_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/reliability"
)

func compiler(t *testing.T) *cuda.Compiler {
	emu.Start(t, emu.Config{})
	c, err := cuda.LoadCompiler()
	require.NoError(t, err)
	return c
}

var small = cuda.Source{Name: "small.cu", Text: `extern "C" __global__ void one(float* y) { y[0] = 1.f; }`}

func TestCompileErrorNamesOurLines(t *testing.T) {
	c := compiler(t)
	_, err := c.Compile(cuda.Source{Name: "wrong.cu", Text: "// a comment\n__device__ int f() { return nosuch; }"}, "sm_90")
	require.ErrorContains(t, err, "cuda: nvrtcCompileProgram of wrong.cu for sm_90 ("+c.Lib.Version+")")
	require.Regexp(t, `wrong\.cu(:2:|\(2\))`, err.Error())
	require.ErrorContains(t, err, "nosuch")
}

func TestNoCompiler(t *testing.T) {
	_, err := cuda.OpenCompiler("libnosuchnvrtc.so.13")
	require.ErrorIs(t, err, cuda.ErrNoCompiler)
	if dl.Enabled {
		require.ErrorContains(t, err, "pip install nvidia-cuda-nvrtc")
		require.ErrorContains(t, err, "libnosuchnvrtc.so.13")
	}
}

func TestCache(t *testing.T) {
	c := compiler(t)
	t.Setenv("RINGO_CUDA_CACHE", t.TempDir())
	path := c.CachePath(small, "sm_90")
	code, err := c.CompileCached(small, "sm_90")
	require.NoError(t, err)
	entry, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, code, entry[32:])

	// An entry with a right checksum is used, whatever it contains.
	other := cuda.Source{Name: "small.cu", Text: small.Text + "\n// other"}
	require.NotEqual(t, path, c.CachePath(other, "sm_90"))
	require.NotEqual(t, path, c.CachePath(small, "sm_80"))
	require.NoError(t, os.Rename(path, c.CachePath(other, "sm_90")))
	again, err := c.CompileCached(other, "sm_90")
	require.NoError(t, err)
	require.Equal(t, code, again)

	// Damaged and truncated entries are compiled and written again.
	for _, damaged := range [][]byte{append([]byte{entry[0] ^ 1}, entry[1:]...), entry[:len(entry)-1]} {
		require.NoError(t, os.WriteFile(path, damaged, 0o644))
		_, err = c.CompileCached(small, "sm_90")
		require.NoError(t, err)
		mended, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Len(t, mended, len(entry))
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("RINGO_CUDA_CACHE"), ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	c := compiler(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	t.Setenv("RINGO_CUDA_CACHE", filepath.Join(file, "folder"))
	code, err := c.CompileCached(small, "sm_90")
	require.NoError(t, err)
	require.NotEmpty(t, code)
}

func TestCacheFolder(t *testing.T) {
	t.Setenv("RINGO_CUDA_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/somewhere")
	t.Setenv("HOME", "/home/somebody")
	require.Equal(t, "cuda", filepath.Base(cuda.CacheDir()))
	require.Equal(t, "ringo", filepath.Base(filepath.Dir(cuda.CacheDir())))
}

// TestCacheProcesses lets several processes fill one cache while others read it.
func TestCacheProcesses(t *testing.T) {
	const variable = "RINGO_TEST_CACHE"
	if os.Getenv(variable) != "" {
		c := compiler(t)
		t.Setenv("RINGO_CUDA_CACHE", os.Getenv(variable))
		code, err := c.CompileCached(small, "sm_90")
		require.NoError(t, err)
		require.NotEmpty(t, code)
		return
	}
	compiler(t)
	dir := t.TempDir()
	var wg sync.WaitGroup
	processes := 2
	if reliability.Long(t) || emu.OnGPU() {
		processes = 3
	}
	for range processes {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestCacheProcesses$")
			cmd.Env = append(os.Environ(), variable+"="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.True(t, strings.HasPrefix(entries[0].Name(), "small-sm_90-"))
}

func TestLongCacheProcesses(t *testing.T) { reliability.AsLong(t, TestCacheProcesses) }

// The prelude and every kernel in these tests compile with NVIDIA's compiler.
func TestRealCompiler(t *testing.T) {
	c := emu.NVRTC(t)
	for _, arch := range []string{"sm_80", "sm_90", "sm_100"} {
		for _, src := range []string{launchSource, stepSource, preludeSource} {
			code, err := c.Compile(cuda.Source{Name: "test.cu", Text: src}, arch)
			require.NoError(t, err)
			require.Equal(t, "\x7fELF", string(code[:4]))
		}
	}
	_, err := c.Compile(cuda.Source{Name: "wrong.cu", Text: "// a comment\n__device__ int f() { return nosuch; }"}, "sm_90")
	require.ErrorContains(t, err, `wrong.cu(2): error: identifier "nosuch" is undefined`)
}

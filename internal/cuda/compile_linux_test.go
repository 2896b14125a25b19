package cuda_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// held is a source that includes a pipe: its compiler waits until the test writes the text. The cache is empty.
func held(t *testing.T) (src cuda.Source, pipe string) {
	emu.Only(t, "NVRTC reads no files")
	t.Setenv("RINGO_CUDA_CACHE", t.TempDir())
	pipe = filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	return cuda.Source{Name: "held.cu", Text: fmt.Sprintf("#include %q\n", pipe)}, pipe
}

// opened waits until a compiler reads a pipe.
func opened(t *testing.T, pipe string) *os.File {
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	require.NoError(t, err)
	return f
}

func write(t *testing.T, f *os.File, text string) {
	_, err := f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// Goroutines that need the same code compile it once, and none waits for code that it does not need. So it is, in the long form, when the
// code cannot be saved.
func TestCompiledOnce(t *testing.T) {
	r := newRig(t, emu.Config{})
	src, pipe := held(t)
	dirs := []string{filepath.Join(pipe, "no folder"), t.TempDir()}
	if !reliability.Long(t) {
		dirs = dirs[1:]
	}
	for _, dir := range dirs {
		t.Setenv("RINGO_CUDA_CACHE", dir)
		const all = 8
		var modules [all]*cuda.Module
		var errs [all]error
		var started atomic.Int32
		var needs sync.WaitGroup
		for i := range all {
			needs.Go(func() {
				if errs[i] = r.dev.Lock(); errs[i] == nil {
					defer r.dev.Unlock()
					started.Add(1)
					modules[i], errs[i] = r.dev.Module(src)
				}
			})
		}
		f := opened(t, pipe)
		for started.Load() < all {
			if _, err := r.dev.Module(cuda.Source{Name: "small.cu", Text: small.Text}); err != nil {
				t.Error(err)
			}
		}
		_, err := r.dev.Module(cuda.Source{Name: "small.cu", Text: small.Text + fmt.Sprintf("// %q", dir)})
		require.NoError(t, err)
		write(t, f, small.Text) // to one compiler: a second one would wait for ever, or find nothing
		needs.Wait()
		for i := range all {
			require.NoError(t, errs[i])
			require.Same(t, modules[0], modules[i])
		}
		_, err = modules[0].Func("one")
		require.NoError(t, err)
		src.Text += "// not the same\n"
	}
}

func TestLongCompiledOnce(t *testing.T) { reliability.AsLong(t, TestCompiledOnce) }

// Without a folder for the cache, no file of the working directory is taken for an entry.
func TestNoCacheFolder(t *testing.T) {
	c := compiler(t)
	for _, name := range []string{"RINGO_CUDA_CACHE", "XDG_CACHE_HOME", "HOME"} {
		t.Setenv(name, "")
	}
	require.Empty(t, cuda.CacheDir())
	t.Chdir(t.TempDir())
	src := cuda.Source{Name: "small.cu", Text: small.Text + "// without a folder\n"}
	pipe := filepath.Base(c.CachePath(src, "sm_90"))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	compiled := make(chan error)
	go func() {
		_, err := c.CompileCached(src, "sm_90")
		compiled <- err
	}()
	for {
		if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // only if somebody reads it
			t.Error("it is read")
			require.NoError(t, f.Close())
		}
		select {
		case err := <-compiled:
			require.NoError(t, err)
			return
		default:
			runtime.Gosched()
		}
	}
}

// A module that does not compile is an error of those that need it, each time, and of no other.
func TestFailingModuleFailsAlone(t *testing.T) {
	r := newRig(t, emu.Config{})
	t.Setenv("RINGO_CUDA_CACHE", t.TempDir())
	var errs [3]error
	var needs sync.WaitGroup
	for i := range errs {
		src := cuda.Source{Name: "wrong.cu", Text: "no kernel;"}
		if i == 2 {
			src = small
		}
		needs.Go(func() {
			if errs[i] = r.dev.Lock(); errs[i] == nil {
				defer r.dev.Unlock()
				_, errs[i] = r.dev.Module(src)
			}
		})
	}
	needs.Wait()
	for _, err := range errs[:2] {
		require.ErrorContains(t, err, "cuda: nvrtcCompileProgram of wrong.cu")
	}
	require.NoError(t, errs[2])
}

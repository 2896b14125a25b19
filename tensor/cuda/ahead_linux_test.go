package cuda_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// TestCompanionsOfLayers trains a step of a GPT. The modules that it needs are compiled ahead, but those that it needs before the first
// layer, and few are compiled in vain.
func TestCompanionsOfLayers(t *testing.T) {
	for d, elem := range map[tensor.DType]string{tensor.Float32: "float", tensor.BFloat16: "bf16"} {
		dev := device(t)
		m, err := gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: 31, Positions: 12, Width: 32, Layers: 1, Heads: 2, KVHeads: 1})
		require.NoError(t, err)
		opt := optim.NewAdamW(nn.Init(m, dev, d, 7), optim.AdamWConfig{LR: 0.01})
		cuda.Ahead(dev) // of other tests
		ids := tensortest.On(dev, tensor.FromSlice(slices.Repeat([]int64{3, 1, 2}, 8), 2, 12))
		require.Empty(t, cuda.Ahead(dev), "before the first layer")
		tape := tensor.NewTape(dev)
		x := tape.Input(ids)
		tape.Backward(nn.CrossEntropy(m.Forward(x.Slice(1, 0, 11)), x.Slice(1, 1, 12)))
		require.NoError(t, opt.Step())
		require.NoError(t, dev.Queue(0).Sync())
		tape.Close()
		require.Equal(t, []string{elem}, cuda.Ahead(dev))
		needed, ahead := cuda.Modules(dev), cuda.Companions(elem)
		for _, m := range needed {
			first := slices.Contains([]string{"move.cu:u8", "move.cu:u64", "move.cu:vec16", "attention.cu:float"}, m)
			require.NotEqual(t, first, slices.Contains(ahead, m), "%s of %v", m, needed)
		}
		vain := slices.DeleteFunc(slices.Clone(ahead), func(m string) bool { return slices.Contains(needed, m) })
		require.LessOrEqual(t, len(vain), 3, "%v of %v", vain, ahead)
	}
}

// held opens a device, which the test closes, with an empty cache. The text includes a pipe: its compiler waits until the test writes.
func held(t *testing.T) (dev *cuda.Device, text, pipe string) {
	emu.Only(t, "NVRTC reads no files")
	emu.Start(t, emu.Config{})
	t.Setenv("RINGO_CUDA_CACHE", t.TempDir())
	for n := 1; n > 0; n, _ = cuda.Compilers() { // of other tests
		runtime.Gosched()
	}
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	pipe = filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	return dev, fmt.Sprintf("#if WHICH == 0\n#include %q\n#endif\nextern \"C\" __global__ void f(float* x) { x[0] = WHICH; }", pipe), pipe
}

// A device that is closed waits for what is being compiled, and leaves the rest.
func TestCloseWhileCompiling(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one is compiled at a time
	dev, text, pipe := held(t)
	cuda.CompileAhead(dev, text, false, "-DWHICH=0", "-DWHICH=1", "-DWHICH=2")
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // the compiler reads
	require.NoError(t, err)
	closed := make(chan error)
	go func() { closed <- dev.Close() }()
	for !cuda.Closing(dev) {
		runtime.Gosched()
	}
	select {
	case <-closed:
		t.Fatal("Close did not wait")
	default:
	}
	require.NoError(t, f.Close())
	require.NoError(t, <-closed)
	entries, err := os.ReadDir(os.Getenv("RINGO_CUDA_CACHE"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.True(t, strings.HasPrefix(entries[0].Name(), "ahead-"))
}

// What a device that is closed leaves out, the next device of the process compiles.
func TestLongCloseLeavesCompanions(t *testing.T) {
	reliability.SkipUnlessLong(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	dev, text, pipe := held(t)
	cuda.CompileAhead(dev, text, false, "-DWHICH=0")
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // the only compiler reads
	require.NoError(t, err)
	cuda.CompileSoon(dev, "norm.cu", "float")
	_, waiting := cuda.Compilers()
	require.GreaterOrEqual(t, waiting, len(cuda.Companions("float")))
	closed := make(chan error)
	go func() { closed <- dev.Close() }()
	for !cuda.Closing(dev) {
		runtime.Gosched()
	}
	_, waiting = cuda.Compilers()
	require.Zero(t, waiting)
	require.NoError(t, f.Close())
	require.NoError(t, <-closed)
	require.Empty(t, cuda.Ahead(dev), "that no device compiles")
}

// Whatever asks for kernels, all processors but one compile them, and each for the architecture that its launch asks for.
func TestLongCompilersAreFew(t *testing.T) {
	reliability.SkipUnlessLong(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	dev, text, pipe := held(t)
	for i := range 4 {
		cuda.CompileAhead(dev, text, i == 0, "-DWHICH=0", fmt.Sprint("-DWHICH=", 1+i))
	}
	n, _ := cuda.Compilers()
	require.Equal(t, 2, n)
	for n > 0 {
		if f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil { // a compiler reads
			require.NoError(t, f.Close())
		}
		n, _ = cuda.Compilers()
	}
	require.NoError(t, dev.Close())
	for arch, want := range map[string]int{"sm_90": 4, "sm_90a": 2} { // -DWHICH=0 is one, for each
		found, err := filepath.Glob(filepath.Join(os.Getenv("RINGO_CUDA_CACHE"), "ahead-"+arch+"-*"))
		require.NoError(t, err)
		require.Len(t, found, want, arch)
	}
}

// lines are what the log says.
type lines chan slog.Record

func (l lines) Enabled(context.Context, slog.Level) bool      { return true }
func (l lines) Handle(_ context.Context, r slog.Record) error { l <- r; return nil }
func (l lines) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l lines) WithGroup(string) slog.Handler                 { return l }
func (l lines) said(t *testing.T) (text string, attrs map[string]any) {
	r := <-l
	attrs = map[string]any{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.Any(); return true })
	return r.Message, attrs
}

// The log says that kernels are compiled if that takes longer than a second, how many, and where they are kept. The error of one is no
// matter of the others, nor of the device.
func TestLongCompilingIsSaid(t *testing.T) {
	reliability.SkipUnlessLong(t)
	dev, text, pipe := held(t)
	log := make(lines, 100)
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(log))
	cuda.SayAgain()
	cuda.CompileAhead(dev, text, false, "--no-such-option", "-DWHICH=0")
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	require.NoError(t, err)
	said, attrs := log.said(t)
	require.Equal(t, "compiling CUDA kernels, which later runs find in the cache if it can be written", said)
	require.EqualValues(t, 2, attrs["kernels"])
	require.EqualValues(t, 1, attrs["left"])
	require.Equal(t, os.Getenv("RINGO_CUDA_CACHE"), attrs["cache"])
	require.NoError(t, f.Close())
	require.NoError(t, dev.Close())
	require.Empty(t, log)
}

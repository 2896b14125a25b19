package cuda

import (
	"cmp"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// ahead is what a device compiles before a launch needs it. It fills the cache and loads nothing, so it needs no context, and a
// capture goes on. The error of a kernel is that of the launch that needs it.
type ahead struct {
	running sync.WaitGroup
	closed  atomic.Bool
}

// layers are the files whose kernels only layers of models use, in the type that these compute in.
var layers = strings.Fields("norm.cu resident_norm.cu rows.cu resident_rows.cu rotary.cu attention.cu attention_mma.cu " +
	"attention_wgmma.cu")

// companions are the modules that a step of training with such a layer needs, too: files and types; the layer's where none is written.
// Those that take the compiler longest are first.
var companions = strings.Fields("unary.cu: unary.cu:float norm.cu: arith.cu: reduce.cu:float rows.cu: optim.cu: optim.cu:double cast.cu: " +
	"index.cu: move.cu:u32 move.cu:u16 rotary.cu:")

// companionsOf returns a kernel of each of these modules that there is for a type.
func companionsOf(elem string) (all []*kernel) {
	for _, c := range companions {
		file, t, _ := strings.Cut(c, ":")
		t = cmp.Or(t, elem)
		i := slices.IndexFunc(kernels, func(k *kernel) bool { return k.file == file && k.elem == t && k.defines == nil && k.text == "" })
		if i >= 0 && !slices.Contains(all, kernels[i]) {
			all = append(all, kernels[i])
		}
	}
	return all
}

// begun are the architectures, types and folders whose companions a device of the process compiles, or has compiled.
var begun sync.Map

// compileSoon begins to compile what is needed some time after k: the companions, if it is the first of a layer in its type.
func (d *Device) compileSoon(k *kernel) {
	all := k.soon
	if slices.Contains(layers, k.file) {
		if _, done := begun.LoadOrStore([3]string{d.gpu.Arch(), k.elem, cuda.CacheDir()}, true); !done {
			all = append(companionsOf(k.elem), all...)
		}
	}
	if len(all) > 0 {
		d.compileAhead(all)
	}
}

// said is set when the log has said that kernels are compiled: once in a process.
var said atomic.Bool

// compileAhead compiles kernels on all processors but the one that launches. If that takes longer than a second, the log says so.
func (d *Device) compileAhead(all []*kernel) {
	var left atomic.Int64
	left.Store(int64(len(all)))
	slow := time.AfterFunc(time.Second, func() {
		if !said.Swap(true) {
			slog.Info("compiling CUDA kernels, which later runs find in the cache", "kernels", len(all), "left", left.Load(), "arch", d.gpu.Arch(),
				"cache", cuda.CacheDir())
		}
	})
	turn := make(chan *kernel, len(all))
	for _, k := range all {
		turn <- k
	}
	close(turn)
	for range min(len(all), max(1, runtime.GOMAXPROCS(0)-1)) {
		d.ahead.running.Go(func() {
			for k := range turn {
				d.fill(k)
				if left.Add(-1) == 0 {
					slow.Stop()
				}
			}
		})
	}
}

// fill compiles a kernel's code unless the cache has it, or the device is being closed.
func (d *Device) fill(k *kernel) {
	c, err := cuda.LoadCompiler()
	src, bad := k.source()
	if err == nil && bad == nil && !d.ahead.closed.Load() {
		c.CompileCached(src, d.gpu.Arch(), k.options()...) // the launch gets the error
	}
}

// close waits for what is being compiled, and leaves the rest.
func (a *ahead) close() {
	a.closed.Store(true)
	a.running.Wait()
}

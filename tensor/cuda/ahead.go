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
	left   sync.WaitGroup // kernels that are not compiled yet
	closed bool           // guarded by pool
}

// layers are the files whose kernels only layers of models use, in the type that these compute in.
var layers = strings.Fields("norm.cu resident_norm.cu rows.cu resident_rows.cu rotary.cu attention.cu attention_mma.cu " +
	"attention_wgmma.cu")

// companions are the modules that a step of training with such a layer needs, too: files and types; the layer's where none is written.
// Those that take the compiler longest are first. A kernel does not know what it is for: a program that does not train has those of
// gradients and optimizers compiled in vain, once.
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
	if key := [3]string{d.gpu.Arch(), k.elem, cuda.CacheDir()}; slices.Contains(layers, k.file) {
		if _, done := begun.LoadOrStore(key, true); !done {
			d.compileAhead(companionsOf(k.elem), key)
		}
	}
	d.compileAhead(k.soon, [3]string{})
}

// batch are kernels that are compiled ahead for a device.
type batch struct {
	d    *Device
	key  [3]string // in begun, while none of them is left out
	left atomic.Int64
	slow *time.Timer
}

// pool are the goroutines of a process that compile, and the kernels that wait for one: those of all devices.
var pool struct {
	sync.Mutex
	workers int
	waiting []waiting
}

type waiting struct {
	*batch
	kernel *kernel
}

// said is set when the log has said that kernels are compiled: once in a process.
var said atomic.Bool

// compileAhead compiles kernels in the pool, which has all processors but one, that of the goroutine that launches. If that takes longer
// than a second, the log says so.
func (d *Device) compileAhead(all []*kernel, key [3]string) {
	pool.Lock()
	defer pool.Unlock()
	if d.ahead.closed || len(all) == 0 {
		return
	}
	b := &batch{d: d, key: key}
	b.left.Store(int64(len(all)))
	b.slow = time.AfterFunc(time.Second, func() {
		if !said.Swap(true) {
			slog.Info("compiling CUDA kernels, which later runs find in the cache if it can be written", "kernels", len(all),
				"left", b.left.Load(), "arch", d.gpu.Arch(), "cache", cmp.Or(cuda.CacheDir(), "none: set RINGO_CUDA_CACHE"))
		}
	})
	for _, k := range all {
		pool.waiting = append(pool.waiting, waiting{b, k})
		if d.ahead.left.Add(1); pool.workers < max(1, runtime.GOMAXPROCS(0)-1) {
			pool.workers++
			go work()
		}
	}
}

// work compiles what waits.
func work() {
	pool.Lock()
	defer pool.Unlock()
	for len(pool.waiting) > 0 {
		w := pool.waiting[0]
		pool.waiting = pool.waiting[1:]
		pool.Unlock()
		w.d.fill(w.kernel)
		w.end()
		pool.Lock()
	}
	pool.workers--
}

// end counts a kernel that is compiled, or left out.
func (b *batch) end() {
	if b.left.Add(-1) == 0 {
		b.slow.Stop()
	}
	b.d.ahead.left.Done()
}

// fill compiles a kernel's code unless the cache has it.
func (d *Device) fill(k *kernel) {
	c, err := cuda.LoadCompiler()
	src, bad := k.source()
	arch := d.gpu.Arch()
	if k.specific {
		arch += "a"
	}
	if err == nil && bad == nil {
		c.CompileCached(src, arch, k.options()...) // the launch gets the error
	}
}

// close waits for what is being compiled, and leaves out the rest, which another device may compile.
func (a *ahead) close() {
	pool.Lock()
	a.closed = true
	pool.waiting = slices.DeleteFunc(pool.waiting, func(w waiting) bool {
		if &w.d.ahead != a {
			return false
		}
		begun.Delete(w.key)
		w.end()
		return true
	})
	pool.Unlock()
	a.left.Wait()
}

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// CompileAll compiles every file for every element type in the table, several at a time; with variants, also all variants of files. It
// returns the number of compilations.
func CompileAll(variants bool, compile func(what string, src cuda.Source, options ...string) error) (int, error) {
	var mu sync.Mutex
	var errs error
	var running sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	seen := map[string]bool{}
	for _, k := range kernels {
		what := fmt.Sprint(k.file, " ", k.options())
		if seen[what] || len(k.defines) > 0 && !variants || k.file == "broken.cu" { // TestRegisterRefuses's, which does not compile
			continue
		}
		seen[what] = true
		src, err := k.source()
		if err != nil {
			return 0, err
		}
		turns <- struct{}{}
		running.Go(func() {
			if err := compile(what, src, k.options()...); err != nil {
				mu.Lock()
				errs = errors.Join(errs, fmt.Errorf("%s: %w", what, err))
				mu.Unlock()
			}
			<-turns
		})
	}
	running.Wait()
	return len(seen), errs
}

// FarCopy returns the kernel strided_copy for 32-bit words, with addresses computed as for tensors of 2^31 elements and more.
func FarCopy(d *Device) (*cuda.Func, error) {
	src, err := source("move.cu")
	if err != nil {
		return nil, err
	}
	text := strings.Replace(src.Text, "s.n >> 31", "true", 1)
	if text == src.Text {
		return nil, errors.New("tensor.cuh does not test s.n >> 31")
	}
	m, err := d.gpu.Module(cuda.Source{Name: "far.cu", Text: text}, (&kernel{elem: "u32"}).options()...)
	if err != nil {
		return nil, err
	}
	return m.Func("strided_copy")
}

// SetCopy makes f the kernel that copies 32-bit words with strides.
func SetCopy(d *Device, f *cuda.Func) { d.funcs[stridedCopies[unitOf(4)].number] = f }

// Header compiles text after one of the files that kernels include, for an element type, and returns a kernel of it.
func Header(d *Device, file, text, elem, name string, defines ...string) (*cuda.Func, error) {
	src, err := source(file)
	if err != nil {
		return nil, err
	}
	k := &kernel{elem: elem, defines: defines}
	m, err := d.gpu.Module(cuda.Source{Name: "test.cu", Text: src.Text + "#line 1 \"test.cu\"\n" + text}, k.options()...)
	if err != nil {
		return nil, err
	}
	return m.Func(name)
}

// Plain makes the device use plain kernels instead of those on tensor cores.
func Plain(d *Device, on bool) { d.plain = on }

// ChannelsLast makes convolutions of 16 bits have channels last, however small they are.
func ChannelsLast(d *Device) { d.last = lastLeast{} }

// LastLeast sets what a convolution must have at least for channels last.
func LastLeast(d *Device, channels, reuse, work int) { d.last = lastLeast{channels, reuse, work} }

// SetMultiprocessors sets the number of multiprocessors for which grids are made.
func SetMultiprocessors(d *Device, n int) { d.sms = n }

// PutsChannelsLast reports whether a convolution of this type (and the gradients of x and w) has channels last.
func PutsChannelsLast(d *Device, t tensor.DType, c ops.Conv) (is [3]bool) {
	q, a := d.Queue(0).(*Queue), &tensor.Args{DType: t}
	for product := range is {
		is[product] = q.channelsLast(a, c, product)
	}
	return is
}

// Compiled lists the kernels with this prefix that the device has compiled.
func Compiled(d *Device, prefix string) (names []string) {
	for i, f := range d.funcs {
		if f != nil && strings.HasPrefix(kernels[i].name, prefix) {
			names = append(names, kernels[i].name)
		}
	}
	return names
}

// Hopper says whether the device uses kernels for compute capability 9.0 alone; on = false stops that.
func Hopper(d *Device, on bool) bool {
	d.hopper = d.hopper && on
	return d.hopper
}

// HopperParams is what a kernel of attention for compute capability 9.0 gets, whose own rows are queries, or keys.
func HopperParams(d *Device, a *tensor.Args, ofKeys bool) []byte {
	q := d.Queue(0).(*Queue)
	q.op = a.Op
	ks := &wgmmaTable[a.DType][1][0]
	k := ks.forward
	if ofKeys {
		k = ks.kv
	}
	p := q.wgmmaParams(a, ks, k, 5)
	return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p)))
}

// HopperKernel is how the forward kernel for a launch of cross-attention was compiled, if the device had compute capability 9.0.
func HopperKernel(d *Device, a *tensor.Args) string {
	defer func(was bool) { d.hopper = was }(d.hopper)
	d.hopper = true
	if ks := d.Queue(0).(*Queue).onHopper(a, 5); ks != nil {
		return strings.Join(ks.forward.defines, " ")
	}
	return ""
}

// Alter compiles the kernels of a file again, with from replaced by to; from must occur once.
func Alter(d *Device, file, from, to string, defines ...string) error {
	src, err := source(file)
	if err != nil {
		return err
	}
	if from != "" && strings.Count(src.Text, from) != 1 {
		return fmt.Errorf("%s has %q %d times", file, from, strings.Count(src.Text, from))
	}
	text := strings.Replace(src.Text, from, to, 1)
	for i, k := range kernels {
		if k.file != file || d.funcs[i] == nil {
			continue
		}
		altered := *k
		altered.defines = append(defines, k.defines...)
		m, err := d.gpu.Module(cuda.Source{Name: file, Text: text, Specific: k.specific}, altered.options()...)
		if err != nil {
			return err
		}
		if d.funcs[i], err = m.Func(k.name); err != nil {
			return err
		}
		if err := d.funcs[i].SetShared(k.shared); err != nil {
			return err
		}
	}
	return nil
}

// Scratch asks for n bytes of scratch memory and returns how many there are.
func Scratch(d *Device, n int) int {
	q := d.Queue(0).(*Queue)
	q.scratch(n)
	return q.work.x.Len()
}

// OpAfterGrowth is the operation that errors name after scratch memory and counters were made in it.
func OpAfterGrowth(d *Device, op tensor.Op) tensor.Op {
	q := d.Queue(0).(*Queue)
	q.op = op
	q.scratch(1)
	q.counters()
	return q.op
}

// CompileAhead begins to compile a text, once with each of the options.
func CompileAhead(d *Device, text string, specific bool, options ...string) {
	var all []*kernel
	for _, o := range options {
		k := &kernel{file: "ahead.cu", elem: "float", text: text, specific: specific, defines: []string{o}}
		all = append(all, k)
	}
	d.compileAhead(all, [3]string{})
}

// CompileSoon begins to compile what is needed after the first kernel of a file.
func CompileSoon(d *Device, file, elem string) {
	d.compileSoon(kernels[slices.IndexFunc(kernels, func(k *kernel) bool { return k.file == file && k.elem == elem })])
}

// Compilers is how many goroutines compile ahead, and how many kernels wait for them.
func Compilers() (n, waiting int) {
	pool.Lock()
	defer pool.Unlock()
	return pool.workers, len(pool.waiting)
}

// Modules lists the modules without variants that the device has compiled: files and types.
func Modules(d *Device) (all []string) {
	for i, f := range d.funcs {
		if k := kernels[i]; f != nil && k.defines == nil {
			all = append(all, k.file+":"+k.elem)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Companions are those of a type, as files and types.
func Companions(elem string) (all []string) {
	for _, k := range companionsOf(elem) {
		all = append(all, k.file+":"+k.elem)
	}
	return all
}

// Ahead lists the types whose companions the process has compiled or is compiling, and forgets them.
func Ahead(d *Device) (elems []string) {
	begun.Range(func(k, _ any) bool {
		if of := k.([3]string); of[0] == d.gpu.Arch() && of[2] == cuda.CacheDir() {
			elems = append(elems, of[1])
			begun.Delete(k)
		}
		return true
	})
	return elems
}

// Closing reports whether Close waits for the compiler, or has.
func Closing(d *Device) bool {
	pool.Lock()
	defer pool.Unlock()
	return d.ahead.closed
}

// SayAgain lets the log say once more that kernels are compiled.
func SayAgain() { said.Store(false) }

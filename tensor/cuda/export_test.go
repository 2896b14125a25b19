package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// CompileAll compiles every file for every element type that the table uses, several at a time, with the variants of files that
// have some or without these. It returns how many there are.
func CompileAll(variants bool, compile func(src cuda.Source, options ...string) error) (int, error) {
	var mu sync.Mutex
	var errs error
	var running sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	seen := map[string]bool{}
	for _, k := range kernels {
		key := fmt.Sprint(k.file, k.options())
		if seen[key] || len(k.defines) > 0 && !variants {
			continue
		}
		seen[key] = true
		src, err := source(k.file)
		if err != nil {
			return 0, err
		}
		turns <- struct{}{}
		running.Go(func() {
			if err := compile(src, k.options()...); err != nil {
				mu.Lock()
				errs = errors.Join(errs, fmt.Errorf("%s for %s: %w", k.file, k.elem, err))
				mu.Unlock()
			}
			<-turns
		})
	}
	running.Wait()
	return len(seen), errs
}

// FarCopy returns the kernel strided_copy for words of 32 bits, with places computed as for 2^31 elements and more.
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

// SetCopy makes f the kernel that copies words of 32 bits with strides.
func SetCopy(d *Device, f *cuda.Func) { d.funcs[stridedCopies[unitOf(4)].number] = f }

// Table is what a device can compute.
var Table = &table

// Header compiles text behind one of the files that kernels include, for an element type, and returns a kernel of it.
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

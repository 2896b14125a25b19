package cuda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// CompileAll compiles every file for every element type that the table uses, for an architecture, and calls see with the
// machine code. It returns how many it compiled.
func CompileAll(c *cuda.Compiler, arch string, see func(file, elem string, code []byte)) (int, error) {
	seen := map[string]bool{}
	for _, k := range kernels {
		if seen[k.file+k.elem] {
			continue
		}
		seen[k.file+k.elem] = true
		src, err := source(k.file)
		if err != nil {
			return 0, err
		}
		code, err := c.Compile(src, arch, options(k.elem)...)
		if err != nil {
			return 0, fmt.Errorf("%s for %s: %w", k.file, k.elem, err)
		}
		see(k.file, k.elem, code)
	}
	return len(seen), nil
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
	m, err := d.gpu.Module(cuda.Source{Name: "far.cu", Text: text}, options("u32")...)
	if err != nil {
		return nil, err
	}
	return m.Func("strided_copy")
}

// SetCopy makes f the kernel that copies words of 32 bits with strides.
func SetCopy(d *Device, f *cuda.Func) { d.funcs[stridedCopies[unitOf(4)].number] = f }

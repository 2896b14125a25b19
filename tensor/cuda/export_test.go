package cuda

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// CompileAll compiles every file for every element type that the table uses, for an architecture. It returns how many it
// compiled.
func CompileAll(c *cuda.Compiler, arch string) (int, error) {
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
		if _, err := c.Compile(src, arch, options(k.elem)...); err != nil {
			return 0, fmt.Errorf("%s for %s: %w", k.file, k.elem, err)
		}
	}
	return len(seen), nil
}

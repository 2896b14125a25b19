package peer

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// CompileAll compiles the reductions of every type for an architecture.
func CompileAll(c *cuda.Compiler, arch string) error {
	for t := range tensor.DType(tensor.NumDTypes) {
		if _, err := c.Compile(cuda.Source{Name: "reduce.cu", Text: source}, arch, options(t)...); err != nil {
			return fmt.Errorf("reductions of %v: %w", t, err)
		}
	}
	return nil
}

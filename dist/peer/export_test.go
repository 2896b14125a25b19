package peer

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

var OneShotBytes = oneShotBytes

// CompileAll compiles the reductions of every type for an architecture, of addresses and of rows.
func CompileAll(c *cuda.Compiler, arch string) error {
	for t := range tensor.DType(tensor.NumDTypes) {
		for _, o := range [][]string{options(t), append(options(t), "-DROWS")} {
			if _, err := c.Compile(cuda.Source{Name: "reduce.cu", Text: source}, arch, o...); err != nil {
				return fmt.Errorf("reductions of %v with %v: %w", t, o, err)
			}
		}
	}
	return nil
}

package autograd_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/tensor"
)

// Rows of a batch are gathered without Counts, also where ranks have other numbers of them: those of any batch of a data.Loader.
func TestGatherOfRows(t *testing.T) {
	for _, counts := range [][]int{{3, 3, 3}, {4, 3, 2}, {2, 2, 1}, {1, 1, 0}, {0, 0, 0}, {5, 4}, {1, 0, 0, 0}} {
		ends, total := make([]int, len(counts)), 0
		for i, n := range counts {
			total += n
			ends[i] = total
		}
		run(t, len(counts), func(r *dist.Rank) error {
			n := counts[r.World.Rank()]
			lo := ends[r.World.Rank()] - n
			values := make([]float64, 2*n)
			for i := range values {
				values[i] = float64(2*lo + i)
			}
			want := make([]float64, 2*total)
			for i := range want {
				want[i] = float64(i)
			}
			for name, f := range map[string]tensor.Function{
				"AllGather": &autograd.AllGather{Group: r.World}, "Gather": &autograd.Gather{Group: r.World},
			} {
				for _, dims := range [][]int{{n, 2}, {2 * n}} {
					tape := tensor.NewTape(r.Device, tensor.NoGrad())
					x := tape.Input(tensor.FromSlice(values, n, 2).WithRows(r.World.Rows(lo, max(total, 1)))).Reshape(dims...)
					assert.Equal(t, want, tensor.Floats(tape.Apply(f, x)), fmt.Sprint(name, counts, dims))
					tape.Close()
				}
			}
			return nil
		})
	}
}

package algo_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// The average of large numbers does not overflow, whichever algorithm adds: 60000 in float16, and numbers near the largest one where no
// rank sees all inputs. Its error is at most that of one addition in the type for each rank.
func TestAvgDoesNotOverflow(t *testing.T) {
	const count = 41
	large := map[tensor.DType]float64{tensor.Float16: 60000, tensor.BFloat16: 3e38, tensor.Float32: 3e38, tensor.Float64: 1.5e308}
	ulp := map[tensor.DType]float64{tensor.Float16: 1. / 1024, tensor.BFloat16: 1. / 128, tensor.Float32: 1e-6, tensor.Float64: 1e-15}
	bubbles(t, func(t *testing.T, w *world, n int) {
		for dt, v := range large {
			in := make([][]byte, n)
			for r := range in {
				in[r] = values(dt, count, func(int) float64 { return v })
			}
			for _, kind := range []backend.Kind{backend.AllReduce, backend.Reduce} {
				for _, name := range algo.Names(kind) {
					if algo.InRankOrder(name) && dt != tensor.Float16 {
						continue // adds as many as there are ranks in float32 or float64
					}
					out, _ := w.reduceOn(kind, name, reduction{backend.Avg, dt}, in, 0, false)
					got := floatsOf(dt, out[0])
					require.Len(t, got, count)
					for _, y := range got {
						require.InEpsilon(t, floatsOf(dt, in[0])[0], y, float64(n)*ulp[dt], "%s %v of %v, %d ranks", name, kind, dt, n)
					}
					if dt == tensor.Float16 && n == 4 {
						assert.EqualValues(t, 60000, got[0], "%s %v, %d ranks", name, kind, n)
					}
				}
			}
		}
	})
}

func floatsOf(dt tensor.DType, b []byte) []float64 {
	x := tensor.New(tensor.NewCPU(1), dt, len(b)/dt.Size())
	copy(x.Bytes(), b)
	return tensor.Floats(x)
}

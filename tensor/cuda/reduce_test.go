package cuda_test

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// reductions are outer, n and inner: short and long rows, with and without a second pass, and columns.
var reductions = [][3]int{{1, 1, 1}, {7, 3, 1}, {3, 0, 1}, {33, 100, 1}, {2, 4096, 1}, {2, 4097, 1}, {1, 70001, 1}, {1, 5, 40},
	{3, 256, 33}, {2, 257, 5}, {1, 20001, 3}, {4, 0, 5}, {300, 2, 2}}

func TestSum(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, numberTypes, func(t *testing.T, d tensor.DType) {
			r := rng(12)
			tol := tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 10}
			for _, s := range reductions {
				launch{op: tensor.OpSum, d: d, outs: 1, x: []operand{random(r, d, s[0]*s[2]), random(r, d, s[0]*s[1]*s[2])},
					set: func(a *tensor.Args) { a.Dim = [6]int{s[0], s[1], s[2]} }}.agree(t, dev, tol)
			}
		})
	})
}

func TestColSum(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			r := rng(13)
			tol := tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 10}
			for _, s := range [][2]int{{1, 1}, {64, 10}, {256, 100}, {1000, 33}, {20001, 3}, {0, 5}} {
				for beta := range 2 {
					launch{op: tensor.OpColSum, d: d, outs: 1, x: []operand{random(r, d, s[1]), random(r, d, s[0]*s[1])},
						set: func(a *tensor.Args) { a.Dim, a.F[0] = [6]int{s[0], s[1]}, float64(beta) }}.agree(t, dev, tol)
				}
			}
		})
	})
}

// TestTopK has ties, zeros of both signs and NaN.
func TestTopK(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, numberTypes, func(t *testing.T, d tensor.DType) {
			r := rng(15)
			for _, s := range [][3]int{{1, 1, 1}, {3, 8, 2}, {70, 64, 6}, {5, 300, 300}, {2, 5000, 3}} {
				x := values(d, s[0]*s[1], func(i int) float64 { return float64(r.IntN(40)) })
				if d.IsFloat() {
					for i := 0; i < x.n(); i += 13 {
						x.set(i, []float64{math.NaN(), math.Inf(1), math.Copysign(0, -1), 0, math.Inf(-1)}[i/13%5])
					}
				}
				launch{op: tensor.OpTopK, d: d, outs: 1, x: []operand{blank(tensor.Int64, s[0]*s[2]), x},
					set: func(a *tensor.Args) { a.Dim = [6]int{s[0], s[1], s[2]} }}.agree(t, dev, exact)
			}
		})
	})
}

// TestExtremes has ties, zeros of both signs and NaN.
func TestExtremes(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, numberTypes, func(t *testing.T, d tensor.DType) {
			r := rng(14)
			for _, op := range []tensor.Op{tensor.OpMax, tensor.OpMin} {
				for _, s := range reductions {
					if s[1] == 0 {
						continue
					}
					n := s[0] * s[2]
					x := values(d, n*s[1], func(i int) float64 { return float64(r.IntN(40)) })
					if d.IsFloat() {
						for i := 0; i < x.n(); i += 31 {
							x.set(i, []float64{math.NaN(), math.Inf(1), math.Copysign(0, -1), 0}[i/31%4])
						}
					}
					launch{op: op, d: d, outs: 2, x: []operand{blank(d, n), blank(tensor.Int64, n), x},
						set: func(a *tensor.Args) { a.Dim = [6]int{s[0], s[1], s[2]} }}.agree(t, dev, exact)
				}
			}
		})
	})
}

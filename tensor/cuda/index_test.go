package cuda_test

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// TestEmbeddingGrad has indices that repeat inside a block's range and outside, and more columns than a block.
func TestEmbeddingGrad(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			r := rng(15)
			for _, s := range [][3]int{{1, 1, 1}, {5, 40, 7}, {3, 600, 5}, {70, 300, 33}, {2, 9, 1030}, {3, 2500, 8}, {40, 1300, 16}} {
				rows, n, cols := s[0], s[1], s[2]
				launch{op: tensor.OpEmbeddingGrad, d: d, outs: 1, x: []operand{random(r, d, rows*cols), random(r, d, n*cols), indices(16, n, rows)},
					set: func(a *tensor.Args) { a.Dim = [6]int{n, cols} }}.agree(t, dev, exact)
			}
		})
	})
}

func TestScatterAdd(t *testing.T) {
	dev := device(t)
	each(t, numberTypes, func(t *testing.T, d tensor.DType) {
		r := rng(17)
		for _, g := range append([][4]int{{1, 7, 70000, 1}}, gathers...) {
			if g[2] > 1000 && d.IsHalf() {
				continue // it compares each pair of elements
			}
			n := g[0] * g[2] * g[3]
			launch{op: tensor.OpScatterAdd, d: d, outs: 1, x: []operand{random(r, d, g[0]*g[1]*g[3]), random(r, d, n), indices(18, n, g[1])},
				set: func(a *tensor.Args) { a.Dim = [6]int{g[0], g[1], g[2], g[3]} }}.agree(t, dev, exact)
		}
	})
}

// TestDropout: the mask is the CPU's, wherever an element is in the whole batch.
func TestDropout(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(19)
		for i, n := range append([]int{4096}, lengths...) {
			for _, rows := range [][3]int{{0, 1, n}, {3, 1, n}, {3, 1, 1}, {2, 4, n}, {1, 3, max(n/16, 1)}, {1 << 40, 1, n}} {
				for _, p := range []float64{0.1, 0.5} {
					launch{op: tensor.OpDropout, d: d, outs: 1, x: []operand{blank(d, n), random(r, d, n).shifted(i % 2)},
						set: func(a *tensor.Args) {
							a.Key, a.F[0] = 0x123456789abcdef0, p
							a.I = [8]int{rows[0] * rows[2], rows[1] * rows[2], rows[2], rows[2], rows[2]}
						}}.agree(t, dev, exact)
				}
			}
			// a part of the columns, the lines, both
			regions := [][8]int{{86, 28, 12, 3, 7}, {87, 27, 12, 3, 3}, {59, 90, 12, 4, 9}, {36, 12, 12, 12, 12}, {4, 12, 12, 4, 9}}
			for _, region := range regions {
				for _, region[5] = range []int{0, 3, 8, 29} { // and not from the first row on
					launch{op: tensor.OpDropout, d: d, outs: 1, x: []operand{blank(d, n), random(r, d, n)},
						set: func(a *tensor.Args) { a.Key, a.F[0], a.I = 77, 0.5, region }}.agree(t, dev, exact)
				}
			}
		}
	})
}

func TestPointLosses(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r, wide := rng(20), d
		if d.IsHalf() {
			wide = tensor.Float32
		}
		for _, op := range []tensor.Op{tensor.OpMSE, tensor.OpBCE} {
			for _, n := range lengths {
				x, y := random(r, d, n), values(d, n, func(int) float64 { return r.Float64() })
				for i, v := range []float64{0, 90, -90, math.Inf(1), math.NaN()} {
					if n > 100 && (op == tensor.OpMSE || i < 3) {
						x.set(i, v)
					}
				}
				launch{op: op, d: d, outs: 1, x: []operand{blank(wide, n), x, y}}.agree(t, dev, near)
				launch{op: op + 1, d: d, outs: 1, x: []operand{blank(d, n), x, y, values(wide, 1, func(int) float64 { return 0.7 })}}.agree(t, dev,
					near)
			}
		}
	})
}

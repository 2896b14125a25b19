package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// reductions are outer, n and inner: short and long rows, with and without a second pass, and columns.
var reductions = [][3]int{{1, 1, 1}, {7, 3, 1}, {3, 0, 1}, {33, 100, 1}, {2, 4096, 1}, {2, 4097, 1}, {1, 70001, 1}, {1, 5, 40},
	{3, 256, 33}, {2, 257, 5}, {1, 20001, 3}, {4, 0, 5}, {300, 2, 2}}

func TestSum(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, numberTypes, func(t *testing.T, d tensor.DType) {
			r := rng(12)
			tol := tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 10}
			for i, s := range reductions {
				if !turn(t, d, i, 2) {
					continue
				}
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

// TestWholeSums: the sum of all elements is cut into parts that blocks read 16 bytes at a time; its gradient is one number, written
// everywhere.
func TestWholeSums(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		host := cpu.New(1)
		defer host.Close()
		each(t, numberTypes, func(t *testing.T, d tensor.DType) {
			eps := tolerance{f32: 1e-4, f64: 1e-12, half: 0x1p-7}.of(d)
			for i, n := range []int{4097, 16384, 20003, 70001} {
				if !turn(t, d, i, 2) {
					continue
				}
				x := random(rng(3), d, n)
				l := launch{op: tensor.OpSum, d: d, outs: 1, x: []operand{blank(d, 1), x}, set: func(a *tensor.Args) { a.Dim = [6]int{1, n, 1} }}
				got := l.on(t, dev)[0]
				requireClose(t, l.exactly(t, host)[0], got, eps, "sum of %d of %v", n, d)
				l.x[1].offset = 1
				require.Equal(t, got, l.on(t, dev)[0], "sum of %d of %v that are not aligned", n, d)
			}
			for i, n := range []int{5000, 20003, 20008} { // a line's sum does not depend on the number of lines
				if !turn(t, d, i, 3) {
					continue
				}
				x := random(rng(6), d, 3*n)
				l := launch{op: tensor.OpSum, d: d, outs: 1, x: []operand{blank(d, 3), x}, set: func(a *tensor.Args) { a.Dim = [6]int{3, n, 1} }}
				all := l.on(t, dev)[0]
				requireClose(t, l.exactly(t, host)[0], all, eps, "sums of 3 lines of %d of %v", n, d)
				l.x = []operand{blank(d, 1), values(d, n, func(i int) float64 { return x.at(2*n + i) })}
				l.set = func(a *tensor.Args) { a.Dim = [6]int{1, n, 1} }
				require.Equal(t, l.on(t, dev)[0].at(0), all.at(2), "the third of 3 lines of %d of %v", n, d)
			}
			x := random(rng(4), d, 20003)
			x.set(20001, math.NaN())
			l := launch{op: tensor.OpSum, d: d, outs: 1, x: []operand{blank(d, 1), x}, set: func(a *tensor.Args) { a.Dim = [6]int{1, 20003, 1} }}
			require.True(t, !d.IsFloat() || math.IsNaN(l.on(t, dev)[0].at(0)))
		})
		require.NotEmpty(t, cuda.Compiled(dev, "sum_part"))
		for i, d := range numberTypes {
			for _, n := range []int{1, 7, 231, 5003} {
				launch{op: tensor.OpCopy, d: d, outs: 1, x: []operand{blank(d, 3*n).shifted(i % 2), random(rng(5), d, 2)}, set: func(a *tensor.Args) {
					a.NDim, a.Dim, a.Stride[0] = 2, [6]int{3, n}, [6]int{n, 1}
				}}.agree(t, dev, exact)
			}
		}
		require.NotEmpty(t, cuda.Compiled(dev, "fill_from"))
	})
}

// TestTopK has ties, zeros of both signs and NaN.
func TestTopK(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, numberTypes, func(t *testing.T, d tensor.DType) {
			r := rng(15)
			for i, s := range [][3]int{{1, 1, 1}, {3, 8, 2}, {70, 64, 6}, {5, 300, 300}, {2, 5000, 3}} {
				if !turn(t, d, i, 2) {
					continue
				}
				x := values(d, s[0]*s[1], func(i int) float64 { return float64(r.IntN(40)) })
				if d.IsFloat() {
					for i := 0; i < x.n(); i += 13 {
						x.set(i, []float64{math.NaN(), math.Inf(1), math.Copysign(0, -1), 0, math.Inf(-1)}[i/13%5])
					}
				}
				launch{op: ops.OpTopK, d: d, outs: 1, x: []operand{blank(tensor.Int64, s[0]*s[2]), x},
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
			for _, op := range []tensor.Op{ops.OpMax, ops.OpMin} {
				for i, s := range reductions {
					if s[1] == 0 || !turn(t, d, i+int(op), 2) {
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

// TestExtremesOfLongLines has lines that are cut into parts, with the best element at two places, and NaN: at the ends of parts, and in the
// last elements. The first one counts.
func TestExtremesOfLongLines(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, numberTypes, func(t *testing.T, d tensor.DType) {
			r := rng(16)
			for i, s := range [][3]int{{1, 70001, 1}, {2, 40016, 1}, {3, 16401, 1}, {1, 20001, 3}, {2, 300, 7}, {1, 200001, 1}} {
				if !turn(t, d, i, 3) {
					continue
				}
				n, all := s[1], s[0]*s[2]
				x := values(d, all*n, func(int) float64 { return float64(5 + r.IntN(90)) })
				for c := range all {
					at := func(k int) int { return c/s[2]*n*s[2] + k*s[2] + c%s[2] }
					first := []int{n - 1, 2047, 4096, 8191, 128, 16384}[(c+i)%6] % n
					x.set(at(first), 100)
					x.set(at((first+8192)%n), 100)
					x.set(at((first+1)%n), 3)
					x.set(at((first+4097)%n), 3)
					if d.IsFloat() && c%2 == 1 {
						x.set(at(n-1), math.NaN())
						x.set(at(max(first-n/3, n/5)), math.NaN())
					}
				}
				for _, op := range []tensor.Op{ops.OpMax, ops.OpMin} {
					launch{op: op, d: d, outs: 2, x: []operand{blank(d, all), blank(tensor.Int64, all), x.shifted(i % 2)},
						set: func(a *tensor.Args) { a.Dim = [6]int{s[0], s[1], s[2]} }}.agree(t, dev, exact)
				}
			}
		})
	})
}

var maps = []tensor.Op{tensor.OpNeg, tensor.OpAbs, tensor.OpExp, tensor.OpLog, tensor.OpSqrt, tensor.OpSquare, tensor.OpRecip,
	tensor.OpSin, tensor.OpCos, tensor.OpTanh, tensor.OpSigmoid, tensor.OpReLU, tensor.OpGELU, tensor.OpGELUTanh, tensor.OpSiLU,
	tensor.OpAffine}

var gradients = []tensor.Op{tensor.OpAbsGrad, tensor.OpSqrtGrad, tensor.OpSquareGrad, tensor.OpRecipGrad,
	tensor.OpSinGrad, tensor.OpCosGrad, tensor.OpTanhGrad, tensor.OpSigmoidGrad, tensor.OpReLUGrad, tensor.OpGELUGrad,
	tensor.OpGELUTanhGrad, tensor.OpSiLUGrad}

// roundedAlike are operations with the CPU's additions, multiplications, divisions and square roots, and so with its bits.
var roundedAlike = map[tensor.Op]bool{tensor.OpNeg: true, tensor.OpAbs: true, tensor.OpSqrt: true, tensor.OpSquare: true,
	tensor.OpRecip: true, tensor.OpReLU: true, tensor.OpAffine: true, tensor.OpAbsGrad: true,
	tensor.OpSqrtGrad: true, tensor.OpSquareGrad: true, tensor.OpRecipGrad: true, tensor.OpTanhGrad: true,
	tensor.OpSigmoidGrad: true, tensor.OpReLUGrad: true}

func toleranceOf(op tensor.Op) tolerance {
	if roundedAlike[op] {
		return exact
	}
	return near
}

// lengths are not multiples of the elements of a thread, a vector or a block.
var lengths = []int{1, 3, 16, 257, 5003}

var specials = []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 1e-30, -1e-30, 88, -88, 300, -300, 6e4}

func TestFunctions(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(1)
		for _, op := range append(append([]tensor.Op(nil), maps...), gradients...) {
			for i, n := range lengths {
				if !turn(t, d, i+int(op), 2) {
					continue
				}
				l := launch{op: op, d: d, outs: 1, x: []operand{blank(d, n).shifted(i % 2), random(r, d, n).shifted(i % 3)},
					set: func(a *tensor.Args) { a.F = [8]float64{1.7, -0.3} }}
				if op >= tensor.OpAbsGrad {
					l.x = append(l.x, random(r, d, n))
				}
				l.agree(t, dev, toleranceOf(op))
			}
		}
	})
}

func TestLongFunctions(t *testing.T) { reliability.AsLong(t, TestFunctions) }

func TestFunctionsOfSpecialValues(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		n := len(specials)
		at := func(i int) float64 { return specials[i] }
		for _, op := range maps {
			tol := toleranceOf(op)
			tol.floor = 1e-30
			launch{op: op, d: d, outs: 1, x: []operand{blank(d, n), values(d, n, at)}, set: func(a *tensor.Args) { a.F = [8]float64{2, 1} }}.agree(t,
				dev, tol)
		}
		for _, op := range gradients {
			launch{op: op, d: d, outs: 1, x: []operand{blank(d, n), values(d, n, func(int) float64 { return 0.5 }), values(d, n, at)}}.agree(t, dev,
				toleranceOf(op))
		}
	})
}

// TestEmbeddingGrad has indices that repeat inside a block's range and outside, and more columns than a block.
func TestEmbeddingGrad(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			r := rng(15)
			for _, s := range [][3]int{{1, 1, 1}, {5, 40, 7}, {3, 600, 5}, {70, 300, 33}, {2, 9, 1030}, {3, 2500, 8}, {40, 1300, 16}} {
				rows, n, cols := s[0], s[1], s[2]
				launch{op: ops.OpEmbeddingGrad, d: d, outs: 1, x: []operand{random(r, d, rows*cols), random(r, d, n*cols), indices(16, n, rows)},
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
			if g[2] > 1000 && (d.IsHalf() || !turn(t, d, 0, 4)) {
				continue // it compares each pair of elements of 16 bits
			}
			n := g[0] * g[2] * g[3]
			launch{op: ops.OpScatterAdd, d: d, outs: 1, x: []operand{random(r, d, g[0]*g[1]*g[3]), random(r, d, n), indices(18, n, g[1])},
				set: func(a *tensor.Args) { a.Dim = [6]int{g[0], g[1], g[2], g[3]} }}.agree(t, dev, exact)
		}
	})
}

func TestLongScatterAdd(t *testing.T) { reliability.AsLong(t, TestScatterAdd) }

// TestDropout: the mask is the CPU's, wherever an element is in the whole batch.
func TestDropout(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(19)
		for i, n := range append([]int{4096}, lengths...) {
			for k, rows := range [][3]int{{0, 1, n}, {3, 1, n}, {3, 1, 1}, {2, 4, n}, {1, 3, max(n/16, 1)}, {1 << 40, 1, n}} {
				for j, p := range []float64{0.1, 0.5} {
					if !turn(t, d, i+k+j, 3) {
						continue
					}
					launch{op: ops.OpDropout, d: d, outs: 1, x: []operand{blank(d, n), random(r, d, n).shifted(i % 2)},
						set: func(a *tensor.Args) {
							a.Key, a.F[0] = 0x123456789abcdef0, p
							a.I = [8]int{rows[0] * rows[2], rows[1] * rows[2], rows[2], rows[2], rows[2]}
						}}.agree(t, dev, exact)
				}
			}
			// a part of the columns, the lines, both; two runs of lines
			regions := [][8]int{{86, 28, 12, 3, 7}, {87, 27, 12, 3, 3}, {59, 90, 12, 4, 9}, {36, 12, 12, 12, 12}, {4, 12, 12, 4, 9},
				{4, 8, 8, 4, 4, 0, 4, 4}, {36, 81, 12, 4, 9, 0, 8, 18}}
			for k, region := range regions {
				for j, first := range []int{0, 3, 8, 29} { // and not from the first row on
					if region[5] = first; !turn(t, d, i+k+j, 4) {
						continue
					}
					launch{op: ops.OpDropout, d: d, outs: 1, x: []operand{blank(d, n), random(r, d, n)},
						set: func(a *tensor.Args) { a.Key, a.F[0], a.I = 77, 0.5, region }}.agree(t, dev, exact)
				}
			}
		}
	})
}

func TestLongDropout(t *testing.T) { reliability.AsLong(t, TestDropout) }

// TestRotaryRuns: angles are the CPU's also where later positions are not side by side with the first ones.
func TestRotaryRuns(t *testing.T) {
	const rows, time, width, head, positions = 2, 5, 12, 6, 20
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r, stat := rng(20), tensor.Float32
		if d == tensor.Float64 {
			stat = d
		}
		unit := func(int) float64 { return 2*r.Float64() - 1 }
		for _, at := range [][8]int{{3, 0, 1}, {3, 0, 1, 2, 7}, {0, 1, -1, 4, 11}, {8, 1, 1, 1, 1}} {
			launch{op: ops.OpRotary, d: d, outs: 1,
				x:   []operand{blank(d, rows*time*width), values(d, rows*time*width, unit), values(stat, positions*head, unit)},
				set: func(a *tensor.Args) { a.Dim, a.I = [6]int{rows * time, time, width, head}, at }}.agree(t, dev, near)
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
		for _, op := range []tensor.Op{ops.OpMSE, ops.OpBCE} {
			for _, n := range lengths {
				x, y := random(r, d, n), values(d, n, func(int) float64 { return r.Float64() })
				for i, v := range []float64{0, 90, -90, math.Inf(1), math.NaN()} {
					if n > 100 && (op == ops.OpMSE || i < 3) {
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

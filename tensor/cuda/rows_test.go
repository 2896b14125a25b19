package cuda_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// rowShapes are rows and columns: less than a warp, whole vectors, more than a block; 1, 2, 4 and 8 rows in a block of norms, up to the
// longest row that one warp computes and one more.
var rowShapes = [][2]int{{1, 1}, {3, 7}, {33, 10}, {2, 32}, {16, 40}, {12, 31}, {5, 104}, {7, 1000}, {8, 1023}, {4, 1024}, {3, 1025},
	{2, 1500}, {3, 4096}, {2, 9001}}

// residentShapes have a row for each number of packs of a warp's lane, and for a block, of 32-bit and of 16-bit elements; and one that is
// too long.
var residentShapes = [][2]int{{3, 8}, {9, 256}, {11, 384}, {2, 504}, {9, 768}, {3, 1024}, {2, 1536}, {3, 2048}, {2, 2056}, {1, 8192},
	{1, 16400}}

// allRowShapes are both.
var allRowShapes = slices.Concat(rowShapes, residentShapes)

// rowLaunch is a launch over rows. Its operands are letters: x a tensor of values, y the one before after softmax, o an output, s a value
// for each row, S such an output, 1 a single value, w a value for each column, l labels, n none.
func rowLaunch(op tensor.Op, d tensor.DType, rows, cols int, seed uint64, outs int, operands string) launch {
	r := rng(seed)
	stat := d
	if d.IsHalf() {
		stat = tensor.Float32
	}
	l := launch{op: op, d: d, outs: outs, set: func(a *tensor.Args) { a.Dim[0], a.Dim[1] = rows, cols }}
	for _, c := range operands {
		var o operand
		switch c {
		case 'x':
			o = random(r, d, rows*cols)
		case 'y':
			o = values(d, rows*cols, func(int) float64 { return r.Float64() / float64(cols) })
		case 'o':
			o = blank(d, rows*cols)
		case 's':
			o = values(stat, rows, func(int) float64 { return 0.2 + r.Float64() })
		case 'g':
			o = random(r, d, rows)
		case 'S':
			o = blank(stat, rows)
		case '1':
			o = random(r, stat, 1)
		case 'w':
			o = random(r, d, cols)
		case 'l':
			o = values(tensor.Int64, rows, func(i int) float64 { return float64(r.IntN(cols)) })
		case 'n':
			o = blank(d, 0)
		}
		l.x = append(l.x, o)
	}
	return l
}

func (l launch) with(set func(a *tensor.Args)) launch {
	before := l.set
	l.set = func(a *tensor.Args) {
		before(a)
		set(a)
	}
	return l
}

func TestSoftmax(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		tol := tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 0.01}
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, s := range allRowShapes {
				for k, c := range []struct {
					op       tensor.Op
					operands string
				}{{ops.OpSoftmax, "ox"}, {ops.OpLogSoftmax, "ox"}, {ops.OpLogSumExp, "Sx"}, {ops.OpSoftmaxGrad, "oyx"},
					{ops.OpLogSoftmaxGrad, "oxx"}, {ops.OpLogSumExpGrad, "oxsg"}} {
					if !turn(t, d/2, i+k, 2) {
						continue
					}
					l := rowLaunch(c.op, d, s[0], s[1], uint64(i), 1, c.operands)
					if c.op == ops.OpLogSoftmaxGrad {
						l.x[1] = values(d, s[0]*s[1], func(i int) float64 { return -math.Log(float64(s[1])) - float64(i%5)/8 })
					}
					l.x[1].offset = i % 2 * truth(i < len(rowShapes))
					l.agree(t, dev, tol)
				}
			}
		})
	})
}

func TestSoftmaxCausal(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		for _, s := range [][3]int{{2, 5, 5}, {3, 4, 9}, {1, 40, 40}, {2, 3, 1}, {2, 5, 264}, {1, 3, 1600}, {1, 2, 4096}, {1, 4, 8200}} {
			if s[1] > s[2] {
				continue
			}
			l := rowLaunch(ops.OpSoftmaxCausal, d, s[0]*s[1], s[2], 3, 1, "ox")
			l.with(func(a *tensor.Args) { a.I[0] = s[1] }).agree(t, dev, near)
		}
	})
}

// Rows of -Inf, with +Inf, with NaN.
func TestSoftmaxOfSpecialValues(t *testing.T) {
	dev := device(t)
	inf, nan := math.Inf(1), math.NaN()
	rows := [][]float64{{-inf, -inf, -inf}, {0, inf, 1}, {inf, inf, inf}, {0, nan, 1}, {-inf, 3, -inf}, {-inf, nan, inf}, {300, -300, 299},
		{-inf, -inf, nan}}
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		for _, cols := range []int{3, 264, 3000, 4096} { // the last columns have them; a row that begins with infinity has nothing else
			x := values(d, len(rows)*cols, func(i int) float64 {
				if row, col := rows[i/cols], i%cols-cols+3; col >= 0 || math.IsInf(row[0], 0) {
					return row[max(col, 0)]
				}
				return -1
			})
			for op, operands := range map[tensor.Op]string{ops.OpSoftmax: "ox", ops.OpLogSoftmax: "ox", ops.OpLogSumExp: "Sx"} {
				l := rowLaunch(op, d, len(rows), cols, 1, 1, operands)
				l.x[1] = x
				l.agree(t, dev, near)
			}
		}
	})
}

func TestCrossEntropy(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		tol := tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 0.01}
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, s := range rowShapes {
				for k, smoothing := range []float64{0, 0.1} {
					if !turn(t, d/2, i+k, 2) {
						continue
					}
					l := rowLaunch(ops.OpCrossEntropy, d, s[0], s[1], uint64(i), 2, "SSxl").with(func(a *tensor.Args) {
						a.F[0], a.I[0] = smoothing, -100
					})
					l.x[3].set(0, -100) // ignored
					l.agree(t, dev, tol)
					for _, g := range []string{"s", "1"} {
						l := rowLaunch(ops.OpCrossEntropyGrad, d, s[0], s[1], uint64(i), 1, "oxsl"+g).with(func(a *tensor.Args) {
							a.F[0], a.I[0] = smoothing, -100
						})
						l.x[3].set(s[0]/2, -100)
						for r := range s[0] {
							l.x[2].set(r, math.Log(float64(s[1]))+1)
						}
						l.agree(t, dev, tol)
					}
				}
			}
		})
	})
}

// A label outside of the classes is an error of the next Sync.
func TestLabelOutOfRange(t *testing.T) {
	dev := device(t)
	tape := tensor.NewTape(dev)
	x := tape.Input(tensor.FromSlice(make([]float32, 6), 2, 3))
	ops.CrossEntropy(x, tape.Input(tensor.FromSlice([]int64{1, 3}, 2)), ops.CrossEntropyOptions{})
	require.ErrorContains(t, dev.Queue(0).Sync(), "cross_entropy: cuda:0: index 3 is out of range")
	require.NoError(t, dev.Queue(0).Sync())
}

func TestNorms(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		tol := tolerance{f32: 1e-5, f64: 1e-12, half: 0x1p-7, floor: 1}
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, s := range allRowShapes {
				if s[1] < 2 {
					continue // one column has no variance: the result is 1/sqrt(eps) times a rounding error
				}
				for k, c := range []struct {
					op       tensor.Op
					outs     int
					operands string
				}{{ops.OpLayerNorm, 3, "oSSxww"}, {ops.OpLayerNorm, 3, "oSSxnn"}, {ops.OpLayerNorm, 3, "oSSxwn"},
					{ops.OpRMSNorm, 2, "oSxw"}, {ops.OpRMSNorm, 2, "oSxn"}, {ops.OpLayerNormGradX, 1, "oxxwss"},
					{ops.OpLayerNormGradX, 1, "oxxnss"}, {ops.OpRMSNormGradX, 1, "oxxws"}, {ops.OpRMSNormGradX, 1, "oxxns"}} {
					if !turn(t, d/2, i+k, 2) {
						continue
					}
					rowLaunch(c.op, d, s[0], s[1], uint64(i), c.outs, c.operands).with(func(a *tensor.Args) {
						absent(a, c.operands)
						if c.outs > 1 {
							a.F[0] = 1e-5
						}
					}).agree(t, dev, tol)
				}
			}
		})
	})
}

// absent removes the operands with the letter n.
func absent(a *tensor.Args, operands string) {
	for i, c := range operands {
		if c == 'n' {
			a.X[i], a.Len[i] = nil, 0
		}
	}
}

func TestNormWeightGradients(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for _, s := range [][2]int{{1, 1}, {7, 33}, {300, 40}, {1000, 3}, {0, 5}} {
				for beta := range 2 {
					set := func(a *tensor.Args) { a.F[0] = float64(beta) }
					rowLaunch(ops.OpLayerNormGradW, d, s[0], s[1], 1, 1, "wxxss").with(set).agree(t, dev, sumsOf(s[0]))
					rowLaunch(ops.OpRMSNormGradW, d, s[0], s[1], 1, 1, "wxxs").with(set).agree(t, dev, sumsOf(s[0]))
				}
			}
		})
	})
}

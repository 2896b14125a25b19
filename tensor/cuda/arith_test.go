package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// layout is a shape with the strides of three operands.
type layout struct {
	dims    []int
	strides [3][]int
}

// elements is the number of elements from the first to the last one of operand j.
func (l layout) elements(j int) int {
	n := 1
	for d, size := range l.dims {
		n += (size - 1) * l.strides[j][d]
	}
	return n
}

func (l layout) set(a *tensor.Args) {
	a.NDim = len(l.dims)
	copy(a.Dim[:], l.dims)
	for j := range 3 {
		copy(a.Stride[j][:], l.strides[j])
	}
}

// layouts are the results of broadcasting shapes and merging dimensions.
var layouts = []layout{
	{[]int{1}, [3][]int{{1}, {1}, {1}}},
	{[]int{5003}, [3][]int{{1}, {1}, {1}}},
	{[]int{777}, [3][]int{{1}, {1}, {0}}},
	{[]int{64}, [3][]int{{1}, {0}, {1}}},
	{[]int{65}, [3][]int{{1}, {0}, {0}}},
	{[]int{7, 33}, [3][]int{{33, 1}, {33, 1}, {0, 1}}},
	{[]int{9, 64}, [3][]int{{64, 1}, {80, 1}, {0, 1}}},
	{[]int{9, 64}, [3][]int{{64, 1}, {64, 1}, {1, 0}}},
	{[]int{9, 64}, [3][]int{{66, 1}, {67, 1}, {65, 1}}},
	{[]int{5, 1}, [3][]int{{3, 1}, {7, 1}, {0, 1}}},
	{[]int{3, 5, 32}, [3][]int{{160, 32, 1}, {0, 32, 1}, {32, 0, 1}}},
	{[]int{2, 3, 2, 3, 2, 3}, [3][]int{{108, 36, 18, 6, 3, 1}, {3, 0, 6, 0, 0, 1}, {0, 36, 0, 6, 0, 0}}},
}

var pairs = []tensor.Op{tensor.OpAdd, tensor.OpSub, tensor.OpMul, tensor.OpDiv, ops.OpMaximum, ops.OpMinimum,
	tensor.OpEq, tensor.OpNe, tensor.OpLt, tensor.OpLe, tensor.OpGt, tensor.OpGe}

func TestPairs(t *testing.T) {
	dev := device(t)
	each(t, numberTypes, func(t *testing.T, d tensor.DType) {
		r := rng(2)
		for k, op := range pairs {
			out := d
			if op >= tensor.OpEq && op <= tensor.OpGe {
				out = tensor.Bool
			}
			for i, y := range layouts {
				if !long(t) && (i+k)%3 > 0 { // operations take turns
					continue
				}
				launch{op: op, d: d, outs: 1, set: y.set, x: []operand{blank(out, y.elements(0)).shifted(i % 4 / 3),
					random(r, d, y.elements(1)).shifted(i % 5 / 4), random(r, d, y.elements(2))}}.agree(t, dev, exact)
			}
		}
	})
}

func TestLongPairs(t *testing.T) { reliability.AsLong(t, TestPairs) }

func TestPower(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(3)
		for _, y := range layouts {
			launch{op: ops.OpPow, d: d, outs: 1, set: y.set, x: []operand{blank(d, y.elements(0)),
				values(d, y.elements(1), func(int) float64 { return 3 * r.Float64() }), random(r, d, y.elements(2))}}.agree(t, dev, near)
		}
	})
}

// TestPairsOfSpecialValues has every pair of zeros of both signs, infinities, NaN and the limits of integers.
func TestPairsOfSpecialValues(t *testing.T) {
	dev := device(t)
	limits := map[tensor.DType][]float64{tensor.Int32: {0, 1, -1, math.MinInt32, math.MaxInt32, 7},
		tensor.Int64: {0, 1, -1, math.MinInt64, 1 << 62, 7}, tensor.Uint8: {0, 1, 255, 128, 7}}
	each(t, numberTypes, func(t *testing.T, d tensor.DType) {
		v := specials
		if l, ok := limits[d]; ok {
			v = l
		}
		n := len(v)
		l := layout{[]int{n * n}, [3][]int{{1}, {1}, {1}}}
		for _, op := range append([]tensor.Op{ops.OpPow}, pairs...) {
			out, tol := d, exact
			switch {
			case op >= tensor.OpEq && op <= tensor.OpGe:
				out = tensor.Bool
			case op == ops.OpPow && !d.IsFloat():
				continue
			case op == ops.OpPow:
				tol = near
			}
			launch{op: op, d: d, outs: 1, set: l.set, x: []operand{blank(out, n*n), values(d, n*n, func(i int) float64 { return v[i/n] }),
				values(d, n*n, func(i int) float64 { return v[i%n] })}}.agree(t, dev, tol)
		}
	})
}

func TestAddTo(t *testing.T) {
	dev := device(t)
	each(t, numberTypes, func(t *testing.T, d tensor.DType) {
		r := rng(4)
		for i, y := range moves {
			launch{op: tensor.OpAddTo, d: d, outs: 1, set: y.set, x: []operand{random(r, d, y.elements(0)).shifted(i % 2),
				random(r, d, y.elements(1)).shifted(i % 3 / 2)}}.agree(t, dev, exact)
		}
	})
}

var allTypes = append([]tensor.DType{tensor.Bool}, numberTypes...)

// none is the strides of an absent operand.
var none = []int{0, 0, 0, 0, 0, 0}

// moves are copies: flat, with gaps, of columns, repeated, transposes and permutations, with sizes that are multiples of a tile and others.
var moves = []layout{
	{[]int{1}, [3][]int{{1}, {1}, none}},
	{[]int{5003}, [3][]int{{1}, {1}, none}},
	{[]int{100}, [3][]int{{1}, {0}, none}},
	{[]int{100}, [3][]int{{3}, {1}, none}},
	{[]int{9, 64}, [3][]int{{64, 1}, {96, 1}, none}},
	{[]int{9, 33}, [3][]int{{50, 1}, {33, 1}, none}},
	{[]int{17, 40}, [3][]int{{40, 1}, {1, 17}, none}},
	{[]int{64, 96}, [3][]int{{96, 1}, {1, 64}, none}},
	{[]int{3, 35, 70}, [3][]int{{70 * 35, 70, 1}, {70 * 35, 1, 35}, none}},
	{[]int{3, 5, 16}, [3][]int{{80, 16, 1}, {16, 48, 1}, none}},
	{[]int{2, 3, 10, 9}, [3][]int{{270, 90, 9, 1}, {270, 10, 1, 30}, none}},
	{[]int{33, 4, 3, 20}, [3][]int{{240, 60, 20, 1}, {1, 33 * 60, 33, 99}, none}},
	{[]int{2, 3, 2, 3, 2, 3}, [3][]int{{108, 36, 18, 6, 3, 1}, {1, 2, 18, 36, 6, 108}, none}},
	{[]int{4, 3}, [3][]int{{3, 1}, {0, 1}, none}},
}

func TestCopy(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, allTypes, func(t *testing.T, d tensor.DType) {
			r := rng(5)
			for i, y := range moves {
				launch{op: tensor.OpCopy, d: d, outs: 1, set: y.set, x: []operand{random(r, d, y.elements(0)).shifted(i % 2),
					random(r, d, y.elements(1)).shifted(i % 3 / 2)}}.agree(t, dev, exact)
				launch{op: tensor.OpCopy, d: d, outs: 1, set: y.set, x: []operand{random(r, d, y.elements(0)),
					random(r, d, y.elements(1))}}.agree(t, dev, exact)
			}
		})
	})
}

func TestFill(t *testing.T) {
	dev := device(t)
	each(t, allTypes, func(t *testing.T, d tensor.DType) {
		for i, n := range lengths {
			for _, v := range []float64{0, 1, 3.7} {
				launch{op: tensor.OpFill, d: d, outs: 1, x: []operand{blank(d, n).shifted(i % 2)},
					set: func(a *tensor.Args) { a.F[0] = v }}.agree(t, dev, exact)
			}
		}
	})
}

func TestWhere(t *testing.T) {
	dev := device(t)
	each(t, allTypes, func(t *testing.T, d tensor.DType) {
		r := rng(6)
		for i, n := range lengths {
			launch{op: ops.OpWhere, d: d, outs: 1, x: []operand{blank(d, n), random(r, tensor.Bool, n).shifted(i % 2),
				random(r, d, n), random(r, d, n).shifted(i % 3 / 2)}}.agree(t, dev, exact)
		}
	})
}

var castValues = []float64{0, 1, -1, 0.5, -2.75, 3.999, 255, 256, 300, -300, 65504, 65520, 70000, 1e-8, 1e9, -1e9, 5e18, 1e30, 1e300,
	math.NaN(), math.Inf(1), math.Inf(-1), 1.00390625, 1.01171875, math.Copysign(0, -1)}

func TestCast(t *testing.T) {
	dev := device(t)
	each(t, allTypes, func(t *testing.T, from tensor.DType) {
		r := rng(7)
		for _, to := range allTypes {
			for i, n := range lengths {
				x := random(r, from, n).shifted(i % 3)
				if from.IsFloat() && n > len(castValues) {
					for k, v := range castValues {
						x.set(k, v)
					}
				}
				launch{op: tensor.OpCast, d: from, outs: 1, x: []operand{blank(to, n).shifted(i % 2), x}}.agree(t, dev, exact)
			}
		}
	})
}

// indices makes n indices below limit.
func indices(seed uint64, n, limit int) operand {
	r := rng(seed)
	return values(tensor.Int64, n, func(int) float64 { return float64(r.IntN(limit)) })
}

func TestEmbedding(t *testing.T) {
	dev := device(t)
	each(t, allTypes, func(t *testing.T, d tensor.DType) {
		r := rng(8)
		for i, cols := range []int{1, 5, 8, 48, 130} {
			const rows, n = 11, 29
			launch{op: ops.OpEmbedding, d: d, outs: 1,
				x:   []operand{blank(d, n*cols), random(r, d, rows*cols).shifted(i % 2), indices(9, n, rows)},
				set: func(a *tensor.Args) { a.Dim = [6]int{n, cols} }}.agree(t, dev, exact)
		}
	})
}

// gathers are outer, n, m and inner.
var gathers = [][4]int{{1, 1, 1, 1}, {1, 9, 30, 1}, {3, 4, 5, 7}, {40, 3, 1, 2}, {1, 5, 600, 3}, {2, 300, 400, 1}}

func TestGather(t *testing.T) {
	dev := device(t)
	each(t, allTypes, func(t *testing.T, d tensor.DType) {
		r := rng(10)
		for _, g := range gathers {
			n := g[0] * g[2] * g[3]
			launch{op: ops.OpGather, d: d, outs: 1, x: []operand{blank(d, n), random(r, d, g[0]*g[1]*g[3]), indices(11, n, g[1])},
				set: func(a *tensor.Args) { a.Dim = [6]int{g[0], g[1], g[2], g[3]} }}.agree(t, dev, exact)
		}
	})
}

// TestWrongIndex: the element is not changed, and the next Sync returns an error with operation and index, once.
func TestWrongIndex(t *testing.T) {
	dev := device(t)
	q := dev.Queue(0)
	for _, c := range []struct {
		op    tensor.Op
		index float64
		dims  [6]int
	}{
		{ops.OpEmbedding, 4, [6]int{3, 2}}, {ops.OpEmbedding, -1, [6]int{3, 2}}, {ops.OpGather, 4, [6]int{1, 4, 3, 2}},
		{ops.OpGather, -5e9, [6]int{1, 4, 3, 2}},
	} {
		x := []tensor.Tensor{tensor.New(dev, tensor.Float32, 6), tensor.New(dev, tensor.Float32, 4, 2), tensor.New(dev, tensor.Int64, 6)}
		tensor.Copy(x[2].Range(1, 2), tensor.FromSlice([]int64{int64(c.index)}, 1))
		e := tensor.NewExec(dev)
		e.Args(c.op, tensor.Float32).Out(x[0]).In(x[1]).In(x[2]).Dim = c.dims
		e.Launch()
		var f *tensor.Failure
		err := q.Sync()
		require.ErrorAs(t, err, &f)
		require.ErrorContains(t, err, c.op.String())
		require.ErrorContains(t, err, "index "+map[bool]string{true: "-5000000000"}[c.index < -1e9])
		require.NoError(t, q.Sync())
	}
}

// TestFarPlaces copies with the addresses of tensors of 2^31 elements and more, which are too large for a test.
func TestFarPlaces(t *testing.T) {
	dev := device(t)
	require.NoError(t, dev.Bind())
	f, err := cuda.FarCopy(dev)
	require.NoError(t, err)
	cuda.SetCopy(dev, f)
	r := rng(24)
	for _, y := range moves {
		launch{op: tensor.OpCopy, d: tensor.Float32, outs: 1, set: y.set, x: []operand{random(r, tensor.Float32, y.elements(0)).shifted(1),
			random(r, tensor.Float32, y.elements(1))}}.agree(t, dev, exact)
	}
}

package cuda_test

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
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
	a.Rank = len(l.dims)
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

var pairs = []tensor.Op{tensor.OpAdd, tensor.OpSub, tensor.OpMul, tensor.OpDiv, tensor.OpMaximum, tensor.OpMinimum,
	tensor.OpEq, tensor.OpNe, tensor.OpLt, tensor.OpLe, tensor.OpGt, tensor.OpGe}

func TestPairs(t *testing.T) {
	dev := device(t)
	each(t, numberTypes, func(t *testing.T, d tensor.DType) {
		r := rng(2)
		for _, op := range pairs {
			out := d
			if op >= tensor.OpEq {
				out = tensor.Bool
			}
			for i, y := range layouts {
				launch{op: op, d: d, outs: 1, set: y.set, x: []operand{blank(out, y.elements(0)).shifted(i % 4 / 3),
					random(r, d, y.elements(1)).shifted(i % 5 / 4), random(r, d, y.elements(2))}}.agree(t, dev, exact)
			}
		}
	})
}

func TestPower(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(3)
		for _, y := range layouts {
			launch{op: tensor.OpPow, d: d, outs: 1, set: y.set, x: []operand{blank(d, y.elements(0)),
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
		for _, op := range append([]tensor.Op{tensor.OpPow}, pairs...) {
			out, tol := d, exact
			switch {
			case op >= tensor.OpEq:
				out = tensor.Bool
			case op == tensor.OpPow && !d.IsFloat():
				continue
			case op == tensor.OpPow:
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

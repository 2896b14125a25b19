package tensortest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// sortingCases are Clamp, CumSum, Sort, Detach and the logic of Bools.
func sortingCases() []ValueCase {
	lines := [][][]int{{{6}}, {{3, 5}}, {{2, 300, 3}}, {{2, 1100}}, {{0, 4}}, {{3, 0}}}
	one := func(name string, special bool, f func(x tensor.Tensor) tensor.Tensor, want func(x Array) Array) ValueCase {
		c := one1(name, lines, true, f, want)
		c.Special = special
		return c
	}
	sorted := func(descending, values bool) func(x Array) Array {
		return func(x Array) Array { return x.lines(sortedOf(descending, values)) }
	}
	logic := func(name string, f func(x, y tensor.Tensor) tensor.Tensor, want func(x, y bool) bool) ValueCase {
		c := two(name, 0, true, func(x, y tensor.Tensor) tensor.Tensor { return f(x.Lt(y), y.Ne(scalar(1, y))) },
			func(x, y float64) float64 { return truth(want(x < y, y != 1)) })
		c.Bools = true
		return c
	}
	return []ValueCase{
		one("detach", true, tensor.Tensor.Detach, func(x Array) Array { return x }),
		one("clamp", true, func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, -1, 1) }, clampOf(-1, 1)),
		one("clamp below", true, func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, 2, math.Inf(1)) }, clampOf(2, math.Inf(1))),
		one("clamp above", true, func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, math.Inf(-1), 0) }, clampOf(math.Inf(-1), 0)),
		one("clamp, crossed", true, func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, 3, 1) }, func(x Array) Array {
			return x.each(func(v float64) float64 {
				if v != v {
					return v
				}
				return 1
			})
		}),
		one1("cumsum", [][][]int{{{6}}, {{3, 5}}, {{2, 30, 3}}, {{2, 1100}}, {{0, 4}}, {{3, 0}}}, true,
			func(x tensor.Tensor) tensor.Tensor { return ops.CumSum(x, -1) }, func(x Array) Array { return x.lines(cumSumOf) }),
		one("cumsum first", false, func(x tensor.Tensor) tensor.Tensor { return ops.CumSum(x, 0) },
			func(x Array) Array { return x.along(0, cumSumOf) }),
		one("sort", true, func(x tensor.Tensor) tensor.Tensor { v, _ := ops.Sort(x, -1, false); return v }, sorted(false, true)),
		one("sort positions", true, func(x tensor.Tensor) tensor.Tensor { _, at := ops.Sort(x, -1, false); return at }, sorted(false, false)),
		one("sort descending", true, func(x tensor.Tensor) tensor.Tensor { _, at := ops.Sort(x, -1, true); return at }, sorted(true, false)),
		{Name: "sort with NaN", Dims: lines[1:2],
			F:    func(x []tensor.Tensor) tensor.Tensor { _, at := ops.Sort(oddNaN(x[0]), -1, false); return at },
			Want: func(x []Array) Array { return oddNaNOf(x[0]).lines(sortedOf(false, false)) }},
		{Name: "sort descending with NaN", Dims: lines[1:2],
			F:    func(x []tensor.Tensor) tensor.Tensor { _, at := ops.Sort(oddNaN(x[0]), -1, true); return at },
			Want: func(x []Array) Array { return oddNaNOf(x[0]).lines(sortedOf(true, false)) }},
		one("sort first", false, func(x tensor.Tensor) tensor.Tensor { v, _ := ops.Sort(x, 0, true); return v },
			func(x Array) Array { return x.along(0, sortedOf(true, true)) }),
		logic("and", ops.And, func(x, y bool) bool { return x && y }),
		logic("or", ops.Or, func(x, y bool) bool { return x || y }),
		logic("not", func(x, y tensor.Tensor) tensor.Tensor { return ops.Not(ops.And(x, y)) }, func(x, y bool) bool { return !(x && y) }),
	}
}

// oddNaN sets every other column of x [3, 5] to NaN.
func oddNaN(x tensor.Tensor) tensor.Tensor {
	odd := Of(tensor.Bool, []float64{0, 1, 0, 1, 0}, 5)
	return ops.Where(x.Tape().Input(odd), scalar(math.NaN(), x), x)
}

func oddNaNOf(x Array) Array {
	return build(x.Dims, func(i []int) float64 {
		if i[1]%2 == 1 {
			return math.NaN()
		}
		return x.at(i...)
	})
}

func clampOf(lo, hi float64) func(x Array) Array {
	return func(x Array) Array { return x.each(func(v float64) float64 { return minOf(maxOf(v, lo), hi) }) }
}

func cumSumOf(line []float64) []float64 {
	sum := 0.0
	return mapLine(line, func(v float64) float64 {
		sum += v
		return sum
	})
}

// lines applies f to the lines of the last dimension; its result has the length of its argument.
func (a Array) lines(f func(line []float64) []float64) Array {
	out, n := Array{a.Dims, nil}, a.Dims[len(a.Dims)-1]
	for lo := 0; lo < len(a.V); lo += n {
		out.V = append(out.V, f(a.V[lo:lo+n])...)
	}
	return out
}

// sortedOf returns a sorted line, or the positions of its elements: NaN is the largest, and equal elements keep their order.
func sortedOf(descending, values bool) func(line []float64) []float64 {
	return func(line []float64) []float64 {
		sign := 1.0
		if !descending { // topOf's order is that of the largest first, NaN before all
			sign = -1
		}
		at := topOf(len(line), false)(mapLine(line, func(v float64) float64 { return sign * v }))
		if !descending { // NaN has no sign: those go last
			isNaN := func(i float64) bool { return line[int(i)] != line[int(i)] }
			numbers := slices.DeleteFunc(slices.Clone(at), isNaN)
			at = append(numbers, slices.DeleteFunc(at, func(i float64) bool { return !isNaN(i) })...)
		}
		if values {
			return mapLine(at, func(i float64) float64 { return line[int(i)] })
		}
		return at
	}
}

// countingCases are OneHot, Bincount and Arange: only the type of their inputs matters.
func countingCases() []ValueCase {
	of := func(name string, bools bool, f func(t *tensor.Tape, d tensor.DType) tensor.Tensor, want func() Array) ValueCase {
		return ValueCase{Name: name, Dims: [][][]int{{{1}}}, Ints: true, Bools: bools,
			F: func(x []tensor.Tensor) tensor.Tensor { return f(x[0].Tape(), x[0].DType()) }, Want: func([]Array) Array { return want() }}
	}
	ids, many := randomInts(7, 4, 5), randomInts(9, 3, 1000)
	return []ValueCase{
		of("one_hot", true, func(t *tensor.Tape, d tensor.DType) tensor.Tensor { return ops.OneHot(t.Input(ids), 7, d) }, func() Array {
			v := tensor.Floats(ids)
			return build([]int{4, 5, 7}, func(i []int) float64 { return truth(int(v[i[0]*5+i[1]]) == i[2]) })
		}),
		of("one_hot of none", true, func(t *tensor.Tape, d tensor.DType) tensor.Tensor {
			return ops.OneHot(t.Input(randomInts(7, 0)), 7, d)
		}, func() Array { return Array{[]int{0, 7}, nil} }),
		of("bincount", true, func(t *tensor.Tape, _ tensor.DType) tensor.Tensor { return ops.Bincount(t.Input(many), 11) }, func() Array {
			out := Array{[]int{11}, make([]float64, 11)}
			for _, v := range tensor.Floats(many) {
				out.V[int(v)]++
			}
			return out
		}),
		of("bincount of none", true, func(t *tensor.Tape, _ tensor.DType) tensor.Tensor { return ops.Bincount(t.Input(randomInts(9, 0)), 2) },
			func() Array { return Array{[]int{2}, []float64{0, 0}} }),
		of("arange", false, func(t *tensor.Tape, d tensor.DType) tensor.Tensor { return ops.Arange(t, d, 250, -1, -2) }, func() Array {
			return build([]int{126}, func(i []int) float64 { return 250 - 2*float64(i[0]) })
		}),
		of("arange of none", false, func(t *tensor.Tape, d tensor.DType) tensor.Tensor { return ops.Arange(t, d, 3, 3, 1) },
			func() Array { return Array{[]int{0}, nil} }),
	}
}

func sortingGrads() map[tensor.Op][]GradCase {
	on := func(name string, f func(x tensor.Tensor) tensor.Tensor) GradCase {
		return GradCase{Name: name, Shapes: func(r *rand.Rand) [][]int { return [][]int{dimsOf(r, 3)} },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return f(x[0]) }}
	}
	return map[tensor.Op][]GradCase{
		ops.OpClamp: append(unary(func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, -1, 0.7) }),
			on("below", func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, 0.1, math.Inf(1)).Exp() })),
		ops.OpCumSum: {on("last", func(x tensor.Tensor) tensor.Tensor { return ops.CumSum(x, -1) }),
			on("middle", func(x tensor.Tensor) tensor.Tensor { return ops.CumSum(x, 1).Sin() })},
		ops.OpGather: {on("sorted", func(x tensor.Tensor) tensor.Tensor { v, _ := ops.Sort(x, -1, true); return ops.CumSum(v, -1).Exp() }),
			on("sorted in the middle", func(x tensor.Tensor) tensor.Tensor { v, _ := ops.Sort(x, 1, false); return ops.CumSum(v, 1) })},
		tensor.OpMul: {on("detached", func(x tensor.Tensor) tensor.Tensor {
			c := x.Scale(0).Add(scalar(3, x)) // the backward pass may drop what does not depend on x
			return x.Mul(c.Detach().Exp())
		})},
	}
}

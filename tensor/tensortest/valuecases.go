package tensortest

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// ValueCase is an operation, and the same computed by plain loops.
type ValueCase struct {
	Name    string
	Dims    [][][]int // shapes of the inputs, several times
	Ints    bool      // also for integer types
	Bools   bool      // also for Bool
	Special bool      // also for NaN, infinities and zeros
	Loss    bool      // Float32 for 16-bit inputs
	Rounds  bool      // rounds inner results to bfloat16, too, if the inputs are
	Lo      float64   // smallest input; 0: −2
	F       func(x []tensor.Tensor) tensor.Tensor
	Want    func(x []Array) Array
}

// DTypes returns the types that the case is for.
func (c ValueCase) DTypes() []tensor.DType {
	ds := []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16}
	if c.Ints {
		ds = append(ds, tensor.Int32, tensor.Int64, tensor.Uint8)
	}
	if c.Bools {
		ds = append(ds, tensor.Bool)
	}
	return ds
}

// Operand makes input number key, from 0 on, on the host: in the range of the case, or integers that neither overflow a uint8 nor become
// negative in one.
func (c ValueCase) Operand(d tensor.DType, key uint64, dims []int) tensor.Tensor {
	v := make([]float64, count(dims))
	lo := c.Lo
	if lo == 0 {
		lo = -2
	}
	for i := range v {
		r := uniform(key, uint64(i))
		switch {
		case d.IsFloat():
			v[i] = lo + (2-lo)*r
		case d == tensor.Bool:
			v[i] = math.Floor(2 * r)
		default:
			v[i] = math.Floor(4*r) + float64(1-key)*10
		}
	}
	return Of(d, v, dims...)
}

var (
	singles = [][][]int{{{}}, {{7}}, {{0}}, {{3, 5}}, {{2, 1, 300}}}
	rows    = [][][]int{{{6}}, {{3, 5}}, {{2, 3, 40}}, {{0, 4}}}
	pairs   = [][][]int{{{}, {}}, {{5}, {}}, {{3, 1}, {4}}, {{2, 3, 4}, {2, 3, 4}}, {{2, 1, 300}, {3, 1}}, {{1, 0}, {3, 1}},
		{{2, 3, 1, 4}, {2, 1, 5, 1}}}
	cubes = [][][]int{{{2, 3, 4}}, {{1, 2, 3}}, {{3, 1, 40}}}
)

func each(name string, lo float64, f func(x tensor.Tensor) tensor.Tensor, want func(v float64) float64) ValueCase {
	return ValueCase{Name: name, Dims: singles, Special: true, Lo: lo,
		F: func(x []tensor.Tensor) tensor.Tensor { return f(x[0]) }, Want: func(x []Array) Array { return x[0].each(want) }}
}

func two(name string, lo float64, ints bool, f func(x, y tensor.Tensor) tensor.Tensor, want func(x, y float64) float64) ValueCase {
	return ValueCase{Name: name, Dims: pairs, Special: true, Lo: lo, Ints: ints,
		F: func(x []tensor.Tensor) tensor.Tensor { return f(x[0], x[1]) }, Want: func(x []Array) Array { return x[0].with(x[1], want) }}
}

func one1(name string, dims [][][]int, ints bool, f func(x tensor.Tensor) tensor.Tensor, want func(x Array) Array) ValueCase {
	return ValueCase{Name: name, Dims: dims, Ints: ints, F: func(x []tensor.Tensor) tensor.Tensor { return f(x[0]) },
		Want: func(x []Array) Array { return want(x[0]) }}
}

// SpecialOperands makes inputs with all pairs of NaN, infinities, zeros and very large and small numbers, for a case that is Special.
func (c ValueCase) SpecialOperands(d tensor.DType) (in []tensor.Tensor) {
	values := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, 0.5, 3, -200, 200, 1e30, -1e30}
	n := len(values)
	for _, s := range [][]int{{n, 1}, {1, n}}[:len(c.Dims[0])] {
		in = append(in, Of(d, values, s...))
	}
	return in
}

// ValueCases is the table of all operations except those of the tape and of optimizers.
func ValueCases() []ValueCase {
	moving := movingCases()
	for i := range moving {
		moving[i].Bools = moving[i].Name != "scatter_add"
	}
	return slices.Concat(elementCases(), moving, reducingCases(), matrixCases(), lossCases(), sortingCases(), countingCases(),
		generalLossCases(), rotaryCases(), attentionCases(), pictureCases())
}

func elementCases() []ValueCase {
	compare := func(name string, f func(x, y tensor.Tensor) tensor.Tensor, want func(x, y float64) bool) ValueCase {
		c := two(name, 0, true, f, func(x, y float64) float64 { return truth(want(x, y)) })
		c.Bools = true
		return c
	}
	return []ValueCase{
		each("neg", 0, tensor.Tensor.Neg, func(v float64) float64 { return -v }),
		each("abs", 0, tensor.Tensor.Abs, math.Abs),
		each("exp", 0, tensor.Tensor.Exp, math.Exp),
		each("log", 0.1, tensor.Tensor.Log, math.Log),
		each("sqrt", 0.1, tensor.Tensor.Sqrt, math.Sqrt),
		each("square", 0, tensor.Tensor.Square, func(v float64) float64 { return v * v }),
		each("recip", 0.1, tensor.Tensor.Recip, func(v float64) float64 { return 1 / v }),
		each("sin", 0, tensor.Tensor.Sin, math.Sin),
		each("cos", 0, tensor.Tensor.Cos, math.Cos),
		each("tanh", 0, tensor.Tensor.Tanh, math.Tanh),
		each("sigmoid", 0, tensor.Tensor.Sigmoid, sigmoidOf),
		each("relu", 0, tensor.Tensor.ReLU, func(v float64) float64 { return maxOf(v, 0) }),
		{Name: "gelu", Dims: singles, F: func(x []tensor.Tensor) tensor.Tensor { return x[0].GELU() },
			Want: func(x []Array) Array { return x[0].each(geluOf) }},
		{Name: "gelu_tanh", Dims: singles, F: func(x []tensor.Tensor) tensor.Tensor { return x[0].GELUTanh() },
			Want: func(x []Array) Array { return x[0].each(geluTanhOf) }},
		{Name: "silu", Dims: singles, F: func(x []tensor.Tensor) tensor.Tensor { return x[0].SiLU() },
			Want: func(x []Array) Array { return x[0].each(func(v float64) float64 { return v * sigmoidOf(v) }) }},
		each("affine", 0, func(x tensor.Tensor) tensor.Tensor { return x.Affine(-2, 0.5) }, func(v float64) float64 { return -2*v + 0.5 }),
		two("add", 0, true, tensor.Tensor.Add, func(x, y float64) float64 { return x + y }),
		two("sub", 0, true, tensor.Tensor.Sub, func(x, y float64) float64 { return x - y }),
		two("mul", 0, true, tensor.Tensor.Mul, func(x, y float64) float64 { return x * y }),
		two("div", 0, false, tensor.Tensor.Div, func(x, y float64) float64 { return x / y }),
		two("maximum", 0, true, ops.Maximum, maxOf),
		two("minimum", 0, true, ops.Minimum, minOf),
		two("pow", 0.1, false, ops.Pow, math.Pow),
		compare("eq", tensor.Tensor.Eq, func(x, y float64) bool { return x == y }),
		compare("ne", tensor.Tensor.Ne, func(x, y float64) bool { return x != y }),
		compare("lt", tensor.Tensor.Lt, func(x, y float64) bool { return x < y }),
		compare("le", tensor.Tensor.Le, func(x, y float64) bool { return x <= y }),
		compare("gt", tensor.Tensor.Gt, func(x, y float64) bool { return x > y }),
		compare("ge", tensor.Tensor.Ge, func(x, y float64) bool { return x >= y }),
		two("where", 0, true, func(x, y tensor.Tensor) tensor.Tensor { return ops.Where(x.Lt(y), x, y) }, func(x, y float64) float64 {
			if x < y {
				return x
			}
			return y
		}),
	}
}

func movingCases() []ValueCase {
	span := func(a Array, d, lo, hi int) Array {
		return a.along(d, func(l []float64) []float64 { return slices.Clone(l[lo:hi]) })
	}
	return []ValueCase{
		one1("reshape", cubes, true, func(x tensor.Tensor) tensor.Tensor { return x.Reshape(x.Dim(1), -1) },
			func(x Array) Array { return Array{[]int{x.Dims[1], len(x.V) / x.Dims[1]}, x.V} }),
		one1("permute", cubes, true, func(x tensor.Tensor) tensor.Tensor { return x.Permute(2, 0, 1) }, func(x Array) Array {
			return build([]int{x.Dims[2], x.Dims[0], x.Dims[1]}, func(i []int) float64 { return x.at(i[1], i[2], i[0]) })
		}),
		one1("transpose", [][][]int{{{70, 33}}, {{1, 5}}, {{0, 3}}}, true, func(x tensor.Tensor) tensor.Tensor {
			return x.Transpose(0, 1)
		}, func(x Array) Array {
			return build([]int{x.Dims[1], x.Dims[0]}, func(i []int) float64 { return x.at(i[1], i[0]) })
		}),
		one1("slice rows", cubes, true, func(x tensor.Tensor) tensor.Tensor { return x.Slice(0, 1, x.Dim(0)) },
			func(x Array) Array { return span(x, 0, 1, x.Dims[0]) }),
		one1("slice columns", [][][]int{{{3, 5}}, {{1, 4}}, {{4, 2}}}, true,
			func(x tensor.Tensor) tensor.Tensor { return x.Slice(1, 1, x.Dim(1)).Slice(0, 0, x.Dim(0)) },
			func(x Array) Array { return span(x, 1, 1, x.Dims[1]) }),
		one1("slice last", cubes, true, func(x tensor.Tensor) tensor.Tensor { return x.Slice(-1, 1, 3) },
			func(x Array) Array { return span(x, 2, 1, 3) }),
		one1("split and concat", cubes, true, func(x tensor.Tensor) tensor.Tensor {
			p := x.Split(-1, 1, x.Dim(-1)-1)
			return tensor.Concat(2, p[1], p[0], p[1])
		}, func(x Array) Array {
			return x.along(2, func(l []float64) []float64 { return slices.Concat(l[1:], l[:1], l[1:]) })
		}),
		one1("pad", cubes, true, func(x tensor.Tensor) tensor.Tensor { return ops.Pad(x, 1, 2, 1) }, func(x Array) Array {
			return x.along(1, func(l []float64) []float64 { return slices.Concat([]float64{0, 0}, l, []float64{0}) })
		}),
		one1("broadcast", [][][]int{{{3, 1}}, {{1, 1}}, {{3, 4}}}, true, func(x tensor.Tensor) tensor.Tensor {
			return x.Broadcast(2, 3, 4)
		}, func(x Array) Array {
			return build([]int{2, 3, 4}, func(i []int) float64 { return x.at(i...) })
		}),
		one1("gather", [][][]int{{{3, 5}}}, true, func(x tensor.Tensor) tensor.Tensor {
			return ops.Gather(x, 1, tensor.FromSlice([]int64{4, 0, 1, 1, 2, 3}, 3, 2))
		},
			func(x Array) Array {
				return Array{[]int{3, 2}, []float64{x.at(0, 4), x.at(0, 0), x.at(1, 1), x.at(1, 1), x.at(2, 2), x.at(2, 3)}}
			}),
		one1("embedding", [][][]int{{{4, 3}}}, true,
			func(x tensor.Tensor) tensor.Tensor { return ops.Embedding(x, tensor.FromSlice([]int64{3, 3, 0}, 3)) },
			func(x Array) Array {
				return build([]int{3, 3}, func(i []int) float64 { return x.at([]int{3, 3, 0}[i[0]], i[1]) })
			}),
		{Name: "scatter_add", Dims: [][][]int{{{2, 3, 2}, {2, 4, 2}}}, Ints: true,
			F: func(x []tensor.Tensor) tensor.Tensor { return ops.ScatterAdd(x[0], 1, randomInts(3, 2, 4, 2), x[1]) },
			Want: func(x []Array) Array {
				out, idx := Array{x[0].Dims, slices.Clone(x[0].V)}, tensor.Floats(randomInts(3, 2, 4, 2))
				for k, v := range x[1].V {
					out.V[k/8*6+int(idx[k])*2+k%2] += v
				}
				return out
			}},
	}
}

func reducingCases() []ValueCase {
	to1 := func(f func(l []float64) float64) func(l []float64) []float64 {
		return func(l []float64) []float64 { return []float64{f(l)} }
	}
	last := func(x Array, f func(l []float64) []float64) Array { return x.along(len(x.Dims)-1, f) }
	withNaN := func(x tensor.Tensor) tensor.Tensor {
		return ops.Where(x.Gt(x.Scale(0).Add(scalar(1.5, x))), scalar(math.NaN(), x), x)
	}
	nanAbove := func(x Array) Array {
		return x.each(func(v float64) float64 {
			if v > 1.5 {
				return math.NaN()
			}
			return v
		})
	}
	positions := [][][]int{{{4}}, {{3, 5}}, {{2, 30, 4}}}
	return []ValueCase{
		one1("sum", append(singles, [][]int{{40, 70}}), true, func(x tensor.Tensor) tensor.Tensor { return x.Sum() },
			func(x Array) Array { return Array{nil, []float64{sumOf(x.V)}} }),
		one1("sum of none", [][][]int{{{0}}, {{3, 0}}}, true, func(x tensor.Tensor) tensor.Tensor { return x.Sum(-1) },
			func(x Array) Array { return last(x, to1(sumOf)).drop(len(x.Dims) - 1) }),
		one1("sum first", cubes, true, func(x tensor.Tensor) tensor.Tensor { return x.Sum(0) },
			func(x Array) Array { return x.along(0, to1(sumOf)).drop(0) }),
		one1("sum outer and inner", cubes, true, func(x tensor.Tensor) tensor.Tensor { return x.Sum(2, 0) }, func(x Array) Array {
			return x.along(2, to1(sumOf)).along(0, to1(sumOf)).drop(2).drop(0)
		}),
		one1("mean", cubes, false, func(x tensor.Tensor) tensor.Tensor { return x.Mean(1) }, func(x Array) Array {
			return x.along(1, to1(func(l []float64) float64 { return sumOf(l) / float64(len(l)) })).drop(1)
		}),
		one1("max", positions, true, func(x tensor.Tensor) tensor.Tensor { v, _ := ops.Max(x, 0); return v },
			func(x Array) Array { return x.along(0, to1(slices.Max[[]float64])).drop(0) }),
		one1("min", positions, true, func(x tensor.Tensor) tensor.Tensor { v, _ := ops.Min(x, -1); return v },
			func(x Array) Array { return last(x, to1(slices.Min[[]float64])).drop(len(x.Dims) - 1) }),
		one1("argmax", positions, true, func(x tensor.Tensor) tensor.Tensor { return ops.ArgMax(x, -1) },
			func(x Array) Array { return last(x, to1(argmaxOf)).drop(len(x.Dims) - 1) }),
		one1("argmax with NaN", positions, false, func(x tensor.Tensor) tensor.Tensor { return ops.ArgMax(withNaN(x), -1) },
			func(x Array) Array { return last(nanAbove(x), to1(argmaxOf)).drop(len(x.Dims) - 1) }),
		one1("top_k values", positions, true, func(x tensor.Tensor) tensor.Tensor { v, _ := ops.TopK(x, 3); return v },
			func(x Array) Array { return last(x, topOf(3, true)) }),
		one1("top_k", positions, true, func(x tensor.Tensor) tensor.Tensor { _, at := ops.TopK(x, 3); return at },
			func(x Array) Array { return last(x, topOf(3, false)) }),
		one1("top_k with NaN", positions, false, func(x tensor.Tensor) tensor.Tensor { _, at := ops.TopK(withNaN(x), 2); return at },
			func(x Array) Array { return last(nanAbove(x), topOf(2, false)) }),
		one1("softmax", rows, false, ops.Softmax, func(x Array) Array { return last(x, softmaxOf) }),
		one1("log_softmax", rows, false, ops.LogSoftmax, func(x Array) Array {
			return last(x, func(l []float64) []float64 { return mapLine(softmaxOf(l), math.Log) })
		}),
		one1("logsumexp", append(rows, [][]int{{3, 0}}), false, ops.LogSumExp,
			func(x Array) Array { return last(x, to1(logSumExpOf)).drop(len(x.Dims) - 1) }),
		one1("softmax_causal", [][][]int{{{2, 3, 3}}, {{2, 5}}}, false, ops.SoftmaxCausal, func(x Array) Array {
			q, k := x.matrix()
			return build(x.Dims, func(i []int) float64 {
				n := len(i)
				seen := i[n-2] + k - q + 1
				if i[n-1] >= seen {
					return 0
				}
				at, line := slices.Clone(i), make([]float64, seen)
				for j := range line {
					at[n-1] = j
					line[j] = x.at(at...)
				}
				return softmaxOf(line)[i[n-1]]
			})
		}),
	}
}

// scalar returns v in x's type.
func scalar(v float64, x tensor.Tensor) tensor.Tensor { return Of(x.DType(), []float64{v}) }

func matrixCases() []ValueCase {
	mm := func(name string, ta, tb bool, dims ...[][]int) ValueCase {
		return ValueCase{Name: "matmul " + name, Dims: dims,
			F:    func(x []tensor.Tensor) tensor.Tensor { return tensor.MatMul(x[0], x[1], ta, tb) },
			Want: func(x []Array) Array { return x[0].matmul(x[1], ta, tb) }}
	}
	norm := func(name string, dims [][]int, f func(x []tensor.Tensor) tensor.Tensor, line func(l []float64) []float64) ValueCase {
		return ValueCase{Name: name, Dims: [][][]int{dims}, F: f, Want: func(x []Array) Array {
			y := x[0].along(len(x[0].Dims)-1, line)
			if len(x) > 1 {
				y = y.with(x[1], func(a, b float64) float64 { return a * b })
			}
			if len(x) > 2 {
				y = y.with(x[2], func(a, b float64) float64 { return a + b })
			}
			return y
		}}
	}
	return []ValueCase{
		mm("nn", false, false, [][]int{{3, 4}, {4, 5}}, [][]int{{33, 65}, {65, 17}}, [][]int{{2, 0}, {0, 3}}, [][]int{{0, 2}, {2, 3}}),
		mm("nt", false, true, [][]int{{3, 4}, {5, 4}}, [][]int{{2, 3, 4}, {5, 4}}),
		mm("tn", true, false, [][]int{{4, 3}, {4, 5}}, [][]int{{2, 4, 3}, {2, 4, 5}}),
		mm("tt", true, true, [][]int{{4, 3}, {5, 4}}, [][]int{{2, 3, 4, 3}, {2, 3, 5, 4}}),
		{Name: "linear", Dims: [][][]int{{{3, 4}, {2, 4}, {2}}, {{4}, {3, 4}, {3}}, {{2, 3, 4}, {2, 4}, {2}}, {{0, 4}, {2, 4}, {2}}},
			F: func(x []tensor.Tensor) tensor.Tensor { return tensor.Linear(x[0], x[1], x[2]) },
			Want: func(x []Array) Array {
				a := x[0]
				if len(a.Dims) == 1 {
					a = Array{[]int{1, a.Dims[0]}, a.V}
				}
				y := a.matmul(x[1], false, true).with(x[2], func(u, v float64) float64 { return u + v })
				if len(x[0].Dims) == 1 {
					return y.drop(0)
				}
				return y
			}},
		norm("layer_norm", [][]int{{3, 5}, {5}, {5}}, func(x []tensor.Tensor) tensor.Tensor { return ops.LayerNorm(x[0], x[1], x[2], 1e-3) },
			layerNormOf(1e-3)),
		norm("layer_norm plain", [][]int{{2, 2, 6}}, func(x []tensor.Tensor) tensor.Tensor {
			return ops.LayerNorm(x[0], tensor.Tensor{}, tensor.Tensor{}, 1e-3)
		}, layerNormOf(1e-3)),
		norm("rms_norm", [][]int{{3, 5}, {5}}, func(x []tensor.Tensor) tensor.Tensor { return ops.RMSNorm(x[0], x[1], 1e-3) },
			rmsNormOf(1e-3)),
	}
}

func lossCases() []ValueCase {
	mean := func(f func(x, y float64) float64) func(x []Array) Array {
		return func(x []Array) Array {
			y := x[0].with(x[1], f)
			return Array{nil, []float64{sumOf(y.V) / float64(len(y.V))}}
		}
	}
	same := [][][]int{{{7}, {7}}, {{3, 5}, {3, 5}}}
	crossEntropy := func(smoothing float64, ignore int64) ValueCase {
		return ValueCase{Name: "cross_entropy", Loss: true, Dims: [][][]int{{{5, 4}}, {{5, 40}}},
			F: func(x []tensor.Tensor) tensor.Tensor {
				return ops.CrossEntropy(x[0], tensor.FromSlice([]int64{1, 3, 0, 1, 2}, 5),
					ops.CrossEntropyOptions{Smoothing: smoothing, Ignore: &ignore})
			},
			Want: func(x []Array) Array {
				sum, n := 0.0, 0.0
				for r, l := range []int64{1, 3, 0, 1, 2} {
					line := x[0].V[r*x[0].Dims[1]:][:x[0].Dims[1]]
					if l != ignore {
						lse := logSumExpOf(line)
						sum += (1-smoothing)*(lse-line[l]) + smoothing*(lse-sumOf(line)/float64(len(line)))
						n++
					}
				}
				return Array{nil, []float64{sum / n}}
			}}
	}
	return []ValueCase{
		{Name: "mse", Loss: true, Dims: same, F: func(x []tensor.Tensor) tensor.Tensor { return ops.MSE(x[0], x[1]) },
			Want: mean(func(x, y float64) float64 { return (x - y) * (x - y) })},
		{Name: "bce_with_logits", Loss: true, Dims: same, F: func(x []tensor.Tensor) tensor.Tensor { return ops.BCEWithLogits(x[0], x[1]) },
			Want: mean(bceOf)},
		crossEntropy(0, -1), crossEntropy(0.1, -1), crossEntropy(0.1, 1),
	}
}

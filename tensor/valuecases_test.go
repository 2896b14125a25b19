package tensor

import (
	"math"
	"slices"
)

// valueCase compares an operation with plain loops.
type valueCase struct {
	name    string
	dims    [][][]int // shapes of the inputs, several times
	ints    bool      // also for integer types
	special bool      // also for NaN, infinities and zeros
	loss    bool      // Float32 for 16-bit inputs
	lo      float64   // smallest input; 0: −2
	f       func(x []Tensor) Tensor
	want    func(x []arr) arr
}

var (
	singles = [][][]int{{{}}, {{7}}, {{0}}, {{3, 5}}, {{2, 1, 300}}}
	rows    = [][][]int{{{6}}, {{3, 5}}, {{2, 3, 40}}, {{0, 4}}}
	pairs   = [][][]int{{{}, {}}, {{5}, {}}, {{3, 1}, {4}}, {{2, 3, 4}, {2, 3, 4}}, {{2, 1, 300}, {3, 1}}, {{1, 0}, {3, 1}}, {{2, 3, 1, 4}, {2, 1, 5, 1}}}
	cubes   = [][][]int{{{2, 3, 4}}, {{1, 2, 3}}, {{3, 1, 40}}}
)

func each(name string, lo float64, f func(x Tensor) Tensor, want func(v float64) float64) valueCase {
	return valueCase{name: name, dims: singles, special: true, lo: lo,
		f: func(x []Tensor) Tensor { return f(x[0]) }, want: func(x []arr) arr { return x[0].each(want) }}
}

func two(name string, lo float64, ints bool, f func(x, y Tensor) Tensor, want func(x, y float64) float64) valueCase {
	return valueCase{name: name, dims: pairs, special: true, lo: lo, ints: ints,
		f: func(x []Tensor) Tensor { return f(x[0], x[1]) }, want: func(x []arr) arr { return x[0].with(x[1], want) }}
}

func one1(name string, dims [][][]int, ints bool, f func(x Tensor) Tensor, want func(x arr) arr) valueCase {
	return valueCase{name: name, dims: dims, ints: ints, f: func(x []Tensor) Tensor { return f(x[0]) }, want: func(x []arr) arr { return want(x[0]) }}
}

func valueCases() []valueCase {
	return slices.Concat(elementCases(), movingCases(), reducingCases(), matrixCases(), lossCases())
}

func elementCases() []valueCase {
	compare := func(name string, f func(x, y Tensor) Tensor, want func(x, y float64) bool) valueCase {
		return two(name, 0, true, f, func(x, y float64) float64 { return truth(want(x, y)) })
	}
	return []valueCase{
		each("neg", 0, Tensor.Neg, func(v float64) float64 { return -v }),
		each("abs", 0, Tensor.Abs, math.Abs),
		each("exp", 0, Tensor.Exp, math.Exp),
		each("log", 0.1, Tensor.Log, math.Log),
		each("sqrt", 0.1, Tensor.Sqrt, math.Sqrt),
		each("square", 0, Tensor.Square, func(v float64) float64 { return v * v }),
		each("recip", 0.1, Tensor.Recip, func(v float64) float64 { return 1 / v }),
		each("sin", 0, Tensor.Sin, math.Sin),
		each("cos", 0, Tensor.Cos, math.Cos),
		each("tanh", 0, Tensor.Tanh, math.Tanh),
		each("sigmoid", 0, Tensor.Sigmoid, sigmoidOf),
		each("relu", 0, Tensor.ReLU, func(v float64) float64 { return maxOf(v, 0) }),
		{name: "gelu", dims: singles, f: func(x []Tensor) Tensor { return x[0].GELU() }, want: func(x []arr) arr { return x[0].each(geluOf) }},
		{name: "gelu_tanh", dims: singles, f: func(x []Tensor) Tensor { return x[0].GELUTanh() }, want: func(x []arr) arr { return x[0].each(geluTanhOf) }},
		{name: "silu", dims: singles, f: func(x []Tensor) Tensor { return x[0].SiLU() }, want: func(x []arr) arr { return x[0].each(func(v float64) float64 { return v * sigmoidOf(v) }) }},
		each("affine", 0, func(x Tensor) Tensor { return x.Affine(-2, 0.5) }, func(v float64) float64 { return -2*v + 0.5 }),
		two("add", 0, true, Tensor.Add, func(x, y float64) float64 { return x + y }),
		two("sub", 0, true, Tensor.Sub, func(x, y float64) float64 { return x - y }),
		two("mul", 0, true, Tensor.Mul, func(x, y float64) float64 { return x * y }),
		two("div", 0, false, Tensor.Div, func(x, y float64) float64 { return x / y }),
		two("maximum", 0, true, Tensor.Maximum, maxOf),
		two("minimum", 0, true, Tensor.Minimum, minOf),
		two("pow", 0.1, false, Tensor.Pow, math.Pow),
		compare("eq", Tensor.Eq, func(x, y float64) bool { return x == y }),
		compare("ne", Tensor.Ne, func(x, y float64) bool { return x != y }),
		compare("lt", Tensor.Lt, func(x, y float64) bool { return x < y }),
		compare("le", Tensor.Le, func(x, y float64) bool { return x <= y }),
		compare("gt", Tensor.Gt, func(x, y float64) bool { return x > y }),
		compare("ge", Tensor.Ge, func(x, y float64) bool { return x >= y }),
		two("where", 0, true, func(x, y Tensor) Tensor { return Where(x.Lt(y), x, y) }, func(x, y float64) float64 {
			if x < y {
				return x
			}
			return y
		}),
	}
}

func movingCases() []valueCase {
	span := func(a arr, d, lo, hi int) arr {
		return a.along(d, func(l []float64) []float64 { return slices.Clone(l[lo:hi]) })
	}
	return []valueCase{
		one1("reshape", cubes, true, func(x Tensor) Tensor { return x.Reshape(x.Dim(1), -1) }, func(x arr) arr { return arr{[]int{x.dims[1], len(x.v) / x.dims[1]}, x.v} }),
		one1("permute", cubes, true, func(x Tensor) Tensor { return x.Permute(2, 0, 1) }, func(x arr) arr {
			return build([]int{x.dims[2], x.dims[0], x.dims[1]}, func(i []int) float64 { return x.at(i[1], i[2], i[0]) })
		}),
		one1("transpose", [][][]int{{{70, 33}}, {{1, 5}}, {{0, 3}}}, true, func(x Tensor) Tensor { return x.Transpose(0, 1) }, func(x arr) arr {
			return build([]int{x.dims[1], x.dims[0]}, func(i []int) float64 { return x.at(i[1], i[0]) })
		}),
		one1("slice rows", cubes, true, func(x Tensor) Tensor { return x.Slice(0, 1, x.Dim(0)) }, func(x arr) arr { return span(x, 0, 1, x.dims[0]) }),
		one1("slice columns", [][][]int{{{3, 5}}, {{1, 4}}, {{4, 2}}}, true, func(x Tensor) Tensor { return x.Slice(1, 1, x.Dim(1)).Slice(0, 0, x.Dim(0)) },
			func(x arr) arr { return span(x, 1, 1, x.dims[1]) }),
		one1("slice last", cubes, true, func(x Tensor) Tensor { return x.Slice(-1, 1, 3) }, func(x arr) arr { return span(x, 2, 1, 3) }),
		one1("split and concat", cubes, true, func(x Tensor) Tensor { p := x.Split(-1, 1, x.Dim(-1)-1); return Concat(2, p[1], p[0], p[1]) }, func(x arr) arr {
			return x.along(2, func(l []float64) []float64 { return slices.Concat(l[1:], l[:1], l[1:]) })
		}),
		one1("pad", cubes, true, func(x Tensor) Tensor { return x.Pad(1, 2, 1) }, func(x arr) arr {
			return x.along(1, func(l []float64) []float64 { return slices.Concat([]float64{0, 0}, l, []float64{0}) })
		}),
		one1("broadcast", [][][]int{{{3, 1}}, {{1, 1}}, {{3, 4}}}, true, func(x Tensor) Tensor { return x.Broadcast(2, 3, 4) }, func(x arr) arr {
			return build([]int{2, 3, 4}, func(i []int) float64 { return x.at(i...) })
		}),
		one1("gather", [][][]int{{{3, 5}}}, true, func(x Tensor) Tensor { return x.Gather(1, FromSlice([]int64{4, 0, 1, 1, 2, 3}, 3, 2)) },
			func(x arr) arr {
				return arr{[]int{3, 2}, []float64{x.at(0, 4), x.at(0, 0), x.at(1, 1), x.at(1, 1), x.at(2, 2), x.at(2, 3)}}
			}),
		one1("embedding", [][][]int{{{4, 3}}}, true, func(x Tensor) Tensor { return Embedding(x, FromSlice([]int64{3, 3, 0}, 3)) },
			func(x arr) arr {
				return build([]int{3, 3}, func(i []int) float64 { return x.at([]int{3, 3, 0}[i[0]], i[1]) })
			}),
		{name: "scatter_add", dims: [][][]int{{{2, 3, 2}, {2, 4, 2}}}, ints: true,
			f: func(x []Tensor) Tensor { return x[0].ScatterAdd(1, randomInts(3, 2, 4, 2), x[1]) },
			want: func(x []arr) arr {
				out, idx := arr{x[0].dims, slices.Clone(x[0].v)}, Floats(randomInts(3, 2, 4, 2))
				for k, v := range x[1].v {
					out.v[k/8*6+int(idx[k])*2+k%2] += v
				}
				return out
			}},
	}
}

func reducingCases() []valueCase {
	to1 := func(f func(l []float64) float64) func(l []float64) []float64 {
		return func(l []float64) []float64 { return []float64{f(l)} }
	}
	last := func(x arr, f func(l []float64) []float64) arr { return x.along(len(x.dims)-1, f) }
	withNaN := func(x Tensor) Tensor { return Where(x.Gt(x.Scale(0).Add(scalar(1.5, x))), scalar(math.NaN(), x), x) }
	nanAbove := func(x arr) arr {
		return x.each(func(v float64) float64 {
			if v > 1.5 {
				return math.NaN()
			}
			return v
		})
	}
	positions := [][][]int{{{4}}, {{3, 5}}, {{2, 30, 4}}}
	return []valueCase{
		one1("sum", append(singles, [][]int{{40, 70}}), true, func(x Tensor) Tensor { return x.Sum() }, func(x arr) arr { return arr{nil, []float64{sumOf(x.v)}} }),
		one1("sum of none", [][][]int{{{0}}, {{3, 0}}}, true, func(x Tensor) Tensor { return x.Sum(-1) }, func(x arr) arr { return last(x, to1(sumOf)).drop(len(x.dims) - 1) }),
		one1("sum first", cubes, true, func(x Tensor) Tensor { return x.Sum(0) }, func(x arr) arr { return x.along(0, to1(sumOf)).drop(0) }),
		one1("sum outer and inner", cubes, true, func(x Tensor) Tensor { return x.Sum(2, 0) }, func(x arr) arr {
			return x.along(2, to1(sumOf)).along(0, to1(sumOf)).drop(2).drop(0)
		}),
		one1("mean", cubes, false, func(x Tensor) Tensor { return x.Mean(1) }, func(x arr) arr {
			return x.along(1, to1(func(l []float64) float64 { return sumOf(l) / float64(len(l)) })).drop(1)
		}),
		one1("max", positions, true, func(x Tensor) Tensor { v, _ := x.Max(0); return v }, func(x arr) arr { return x.along(0, to1(slices.Max[[]float64])).drop(0) }),
		one1("min", positions, true, func(x Tensor) Tensor { v, _ := x.Min(-1); return v }, func(x arr) arr { return last(x, to1(slices.Min[[]float64])).drop(len(x.dims) - 1) }),
		one1("argmax", positions, true, func(x Tensor) Tensor { return x.ArgMax(-1) }, func(x arr) arr { return last(x, to1(argmaxOf)).drop(len(x.dims) - 1) }),
		one1("argmax with NaN", positions, false, func(x Tensor) Tensor { return withNaN(x).ArgMax(-1) }, func(x arr) arr { return last(nanAbove(x), to1(argmaxOf)).drop(len(x.dims) - 1) }),
		one1("softmax", rows, false, Tensor.Softmax, func(x arr) arr { return last(x, softmaxOf) }),
		one1("log_softmax", rows, false, Tensor.LogSoftmax, func(x arr) arr {
			return last(x, func(l []float64) []float64 { return mapLine(softmaxOf(l), math.Log) })
		}),
		one1("logsumexp", append(rows, [][]int{{3, 0}}), false, Tensor.LogSumExp, func(x arr) arr { return last(x, to1(logSumExpOf)).drop(len(x.dims) - 1) }),
		one1("softmax_causal", [][][]int{{{2, 3, 3}}, {{2, 5}}}, false, Tensor.SoftmaxCausal, func(x arr) arr {
			q, k := x.matrix()
			return build(x.dims, func(i []int) float64 {
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
func scalar(v float64, x Tensor) Tensor {
	s := New(hostDevice, x.DType())
	storeFloat(s.Ptr(), x.DType(), 0, v)
	return s
}

func matrixCases() []valueCase {
	mm := func(name string, ta, tb bool, dims ...[][]int) valueCase {
		return valueCase{name: "matmul " + name, dims: dims, f: func(x []Tensor) Tensor { return MatMul(x[0], x[1], ta, tb) },
			want: func(x []arr) arr { return x[0].matmul(x[1], ta, tb) }}
	}
	norm := func(name string, dims [][]int, f func(x []Tensor) Tensor, line func(l []float64) []float64) valueCase {
		return valueCase{name: name, dims: [][][]int{dims}, f: f, want: func(x []arr) arr {
			y := x[0].along(len(x[0].dims)-1, line)
			if len(x) > 1 {
				y = y.with(x[1], func(a, b float64) float64 { return a * b })
			}
			if len(x) > 2 {
				y = y.with(x[2], func(a, b float64) float64 { return a + b })
			}
			return y
		}}
	}
	return []valueCase{
		mm("nn", false, false, [][]int{{3, 4}, {4, 5}}, [][]int{{33, 65}, {65, 17}}, [][]int{{2, 0}, {0, 3}}, [][]int{{0, 2}, {2, 3}}),
		mm("nt", false, true, [][]int{{3, 4}, {5, 4}}, [][]int{{2, 3, 4}, {5, 4}}),
		mm("tn", true, false, [][]int{{4, 3}, {4, 5}}, [][]int{{2, 4, 3}, {2, 4, 5}}),
		mm("tt", true, true, [][]int{{4, 3}, {5, 4}}, [][]int{{2, 3, 4, 3}, {2, 3, 5, 4}}),
		{name: "linear", dims: [][][]int{{{3, 4}, {2, 4}, {2}}, {{4}, {3, 4}, {3}}, {{2, 3, 4}, {2, 4}, {2}}, {{0, 4}, {2, 4}, {2}}},
			f: func(x []Tensor) Tensor { return Linear(x[0], x[1], x[2]) },
			want: func(x []arr) arr {
				a := x[0]
				if len(a.dims) == 1 {
					a = arr{[]int{1, a.dims[0]}, a.v}
				}
				y := a.matmul(x[1], false, true).with(x[2], func(u, v float64) float64 { return u + v })
				if len(x[0].dims) == 1 {
					return y.drop(0)
				}
				return y
			}},
		norm("layer_norm", [][]int{{3, 5}, {5}, {5}}, func(x []Tensor) Tensor { return LayerNorm(x[0], x[1], x[2], 1e-3) }, layerNormOf(1e-3)),
		norm("layer_norm plain", [][]int{{2, 2, 6}}, func(x []Tensor) Tensor { return LayerNorm(x[0], Tensor{}, Tensor{}, 1e-3) }, layerNormOf(1e-3)),
		norm("rms_norm", [][]int{{3, 5}, {5}}, func(x []Tensor) Tensor { return RMSNorm(x[0], x[1], 1e-3) }, rmsNormOf(1e-3)),
	}
}

func lossCases() []valueCase {
	mean := func(f func(x, y float64) float64) func(x []arr) arr {
		return func(x []arr) arr {
			y := x[0].with(x[1], f)
			return arr{nil, []float64{sumOf(y.v) / float64(len(y.v))}}
		}
	}
	same := [][][]int{{{7}, {7}}, {{3, 5}, {3, 5}}}
	crossEntropy := func(smoothing float64, ignore int64) valueCase {
		return valueCase{name: "cross_entropy", loss: true, dims: [][][]int{{{5, 4}}, {{5, 40}}},
			f: func(x []Tensor) Tensor {
				return CrossEntropy(x[0], FromSlice([]int64{1, 3, 0, 1, 2}, 5), CrossEntropyOptions{Smoothing: smoothing, Ignore: &ignore})
			},
			want: func(x []arr) arr {
				sum, n := 0.0, 0.0
				for r, l := range []int64{1, 3, 0, 1, 2} {
					line := x[0].v[r*x[0].dims[1]:][:x[0].dims[1]]
					if l != ignore {
						lse := logSumExpOf(line)
						sum += (1-smoothing)*(lse-line[l]) + smoothing*(lse-sumOf(line)/float64(len(line)))
						n++
					}
				}
				return arr{nil, []float64{sum / n}}
			}}
	}
	return []valueCase{
		{name: "mse", loss: true, dims: same, f: func(x []Tensor) Tensor { return MSE(x[0], x[1]) }, want: mean(func(x, y float64) float64 { return (x - y) * (x - y) })},
		{name: "bce_with_logits", loss: true, dims: same, f: func(x []Tensor) Tensor { return BCEWithLogits(x[0], x[1]) }, want: mean(bceOf)},
		crossEntropy(0, -1), crossEntropy(0.1, -1), crossEntropy(0.1, 1),
	}
}

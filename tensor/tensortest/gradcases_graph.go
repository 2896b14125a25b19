package tensortest

import (
	"fmt"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// matmulCase multiplies matrices whose stored dimensions are dims(m, k, n).
func matmulCase(name string, ta, tb bool, dims func(b, m, k, n int) [][]int) GradCase {
	return GradCase{Name: name,
		Shapes: func(r *rand.Rand) [][]int { return dims(1+r.IntN(2), 1+r.IntN(3), size(r), 1+r.IntN(3)) },
		F:      func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return tensor.MatMul(x[0], x[1], ta, tb) }}
}

func linearShapes(bias bool) func(r *rand.Rand) [][]int {
	return func(r *rand.Rand) [][]int {
		in, out := 1+r.IntN(4), 1+r.IntN(4)
		s := [][]int{append(dimsOf(r, r.IntN(3)), in), {out, in}}
		if bias {
			s = append(s, []int{out})
		}
		return s
	}
}

func linearActCase(name string, act tensor.Activation, bias bool) GradCase {
	return GradCase{Name: name, Shapes: linearShapes(bias), F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
		return tensor.LinearAct(x[0], x[1], append(x, tensor.Tensor{})[2], act)
	}}
}

func productCases() map[tensor.Op][]GradCase {
	return map[tensor.Op][]GradCase{
		tensor.OpMatMul: {
			matmulCase("nn", false, false, func(_, m, k, n int) [][]int { return [][]int{{m, k}, {k, n}} }),
			matmulCase("nt", false, true, func(_, m, k, n int) [][]int { return [][]int{{m, k}, {n, k}} }),
			matmulCase("tn", true, false, func(_, m, k, n int) [][]int { return [][]int{{k, m}, {k, n}} }),
			matmulCase("tt", true, true, func(_, m, k, n int) [][]int { return [][]int{{k, m}, {n, k}} }),
			matmulCase("batch nt", false, true, func(b, m, k, n int) [][]int { return [][]int{{b, 2, m, k}, {b, 2, n, k}} }),
			matmulCase("batch tn", true, false, func(b, m, k, n int) [][]int { return [][]int{{b, k, m}, {b, k, n}} }),
			matmulCase("batch tt", true, true, func(b, m, k, n int) [][]int { return [][]int{{b, k, m}, {b, n, k}} }),
			matmulCase("batch and matrix", false, false, func(b, m, k, n int) [][]int { return [][]int{{b, m, k}, {k, n}} }),
			matmulCase("batch and transposed matrix", false, true, func(b, m, k, n int) [][]int { return [][]int{{b, 3, m, k}, {n, k}} }),
			{Name: "twice", Shapes: matrix,
				F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return tensor.MatMul(x[0], x[0], false, true) }},
		},
		tensor.OpLinear: {
			{Name: "bias", Shapes: linearShapes(true),
				F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return tensor.Linear(x[0], x[1], x[2]) }},
			{Name: "no bias", Shapes: linearShapes(false), F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return tensor.Linear(x[0], x[1], tensor.Tensor{})
			}},
			{Name: "input and weight are one", Shapes: matrix, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return tensor.Linear(x[0], x[0], tensor.Tensor{})
			}},
		},
		tensor.OpLinearAdd: {
			{Name: "bias", Shapes: addShapes, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return tensor.LinearAdd(x[1], x[2], x[3], x[0])
			}},
			{Name: "no bias", Shapes: func(r *rand.Rand) [][]int {
				return addShapes(r)[:3]
			}, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return tensor.LinearAdd(x[1], x[2], tensor.Tensor{}, x[0])
			}},
			{Name: "all are one", Shapes: func(r *rand.Rand) [][]int { n := 1 + r.IntN(4); return [][]int{{n, n}} },
				F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
					return tensor.LinearAdd(x[0], x[0], tensor.Tensor{}, x[0])
				}},
		},
		ops.OpGroupedLinear: {{Name: "groups",
			Shapes: func(r *rand.Rand) [][]int { d := dimsOf(r, 3); return [][]int{{5, d[1]}, {3, d[0], d[1]}} },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.GroupedLinear(x[0], x[1], tensor.FromSlice([]int64{3, 0, 2}, 3))
			}}},
		tensor.OpLinearAct: {linearActCase("relu", tensor.ActReLU, true), linearActCase("gelu", tensor.ActGELU, true),
			linearActCase("gelu_tanh", tensor.ActGELUTanh, false), linearActCase("silu", tensor.ActSiLU, true),
			{Name: "input and weight are one", Shapes: matrix, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return tensor.LinearAct(x[0], x[0], tensor.Tensor{}, tensor.ActGELU)
			}},
		},
	}
}

// addShapes makes the shapes of r, x, w and b of LinearAdd.
func addShapes(r *rand.Rand) [][]int {
	rows, in, out := 1+r.IntN(5), 1+r.IntN(5), 1+r.IntN(5)
	return [][]int{{2, rows, out}, {2, rows, in}, {out, in}, {out}}
}

// normShapes makes the shapes of rows, and of n vectors of a row's size.
func normShapes(n int) func(r *rand.Rand) [][]int {
	return func(r *rand.Rand) [][]int {
		cols := 2 + r.IntN(4)
		s := [][]int{append(dimsOf(r, r.IntN(3)), cols)}
		for range n {
			s = append(s, []int{cols})
		}
		return s
	}
}

func rowCases() map[tensor.Op][]GradCase {
	rows := normShapes(0)
	row := func(name string, shapes func(r *rand.Rand) [][]int, f func(x []tensor.Tensor) tensor.Tensor) GradCase {
		return GradCase{Name: name, Shapes: shapes, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return f(x) }}
	}
	labels := func(x tensor.Tensor, o ops.CrossEntropyOptions) tensor.Tensor {
		y := randomInts(x.Dim(-1), x.Shape().Dims[:x.NDim()-1]...)
		if o.Ignore != nil && y.Len() > 1 {
			tensor.Data[int64](y)[0] = *o.Ignore
		}
		return ops.CrossEntropy(x, y, o)
	}
	attention := func(o ops.AttentionOptions) GradCase {
		return row(fmt.Sprintf("causal %v, drop %v", o.Causal, o.Drop),
			func(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(2), 1 + r.IntN(5), 6 * (1 + r.IntN(2))}} },
			func(x []tensor.Tensor) tensor.Tensor { return ops.Attention(x[0], 2, o) })
	}
	ignore := int64(-100)
	return map[tensor.Op][]GradCase{
		ops.OpAttention: {attention(ops.AttentionOptions{}), attention(ops.AttentionOptions{Causal: true}),
			attention(ops.AttentionOptions{Drop: 0.4, Layer: 3})},
		ops.OpSoftmax:    {row("rows", rows, func(x []tensor.Tensor) tensor.Tensor { return ops.Softmax(x[0]) })},
		ops.OpLogSoftmax: {row("rows", rows, func(x []tensor.Tensor) tensor.Tensor { return ops.LogSoftmax(x[0]) })},
		ops.OpLogSumExp:  {row("rows", rows, func(x []tensor.Tensor) tensor.Tensor { return ops.LogSumExp(x[0]) })},
		ops.OpSoftmaxCausal: {row("square", func(r *rand.Rand) [][]int { n := 1 + r.IntN(4); return [][]int{{2, n, n}} },
			func(x []tensor.Tensor) tensor.Tensor { return ops.SoftmaxCausal(x[0]) }),
			row("more keys", func(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(3), 3 + r.IntN(3)}} },
				func(x []tensor.Tensor) tensor.Tensor { return ops.SoftmaxCausal(x[0]) })},
		ops.OpLayerNorm: {row("weight and bias", normShapes(2),
			func(x []tensor.Tensor) tensor.Tensor { return ops.LayerNorm(x[0], x[1], x[2], 1e-2) }),
			row("plain", rows, func(x []tensor.Tensor) tensor.Tensor {
				return ops.LayerNorm(x[0], tensor.Tensor{}, tensor.Tensor{}, 1e-2)
			}),
			row("bias", normShapes(1), func(x []tensor.Tensor) tensor.Tensor { return ops.LayerNorm(x[0], tensor.Tensor{}, x[1], 1e-2) })},
		ops.OpRMSNorm: {row("weight", normShapes(1), func(x []tensor.Tensor) tensor.Tensor { return ops.RMSNorm(x[0], x[1], 1e-2) }),
			row("plain", rows, func(x []tensor.Tensor) tensor.Tensor { return ops.RMSNorm(x[0], tensor.Tensor{}, 1e-2) })},
		ops.OpCrossEntropy: {row("plain", rows, func(x []tensor.Tensor) tensor.Tensor { return labels(x[0], ops.CrossEntropyOptions{}) }),
			row("smoothing", rows, func(x []tensor.Tensor) tensor.Tensor { return labels(x[0], ops.CrossEntropyOptions{Smoothing: 0.2}) }),
			row("ignored, not counted", rows, func(x []tensor.Tensor) tensor.Tensor {
				return labels(x[0], ops.CrossEntropyOptions{Ignore: &ignore})
			}),
			row("ignored", rows, func(x []tensor.Tensor) tensor.Tensor {
				return labels(x[0], ops.CrossEntropyOptions{Ignore: &ignore, Count: 7})
			})},
		ops.OpMSE: {row("pair", pair, func(x []tensor.Tensor) tensor.Tensor { return ops.MSE(x[0], x[1]) })},
		ops.OpBCE: {row("pair", pair, func(x []tensor.Tensor) tensor.Tensor { return ops.BCEWithLogits(x[0], x[1]) })},
	}
}

func indexCases() map[tensor.Op][]GradCase {
	// indices along dimension 1 of a tensor like x.
	along := func(x tensor.Tensor, n int) tensor.Tensor { return randomInts(x.Dim(1), x.Dim(0), n, x.Dim(2)) }
	return map[tensor.Op][]GradCase{
		ops.OpEmbedding: {{Name: "repeated", Shapes: matrix, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			return ops.Embedding(x[0], randomInts(x[0].Dim(0), 2, 4))
		}},
			{Name: "none", Shapes: matrix, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.Embedding(x[0], randomInts(x[0].Dim(0), 0))
			}}},
		ops.OpGather: {{Name: "middle", Shapes: func(r *rand.Rand) [][]int { return [][]int{dimsOf(r, 3)} },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return ops.Gather(x[0], 1, along(x[0], 3)) }}},
		ops.OpScatterAdd: {{Name: "middle", Shapes: func(r *rand.Rand) [][]int { d := dimsOf(r, 3); return [][]int{d, {d[0], 3, d[2]}} },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.ScatterAdd(x[0], 1, along(x[0], 3), x[1])
			}}},
		ops.OpDropout: {{Name: "half", Shapes: anyShape,
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return ops.Dropout(x[0], 0.5, 9) }}},
	}
}

func linearLossCase(name string, f ops.LinearCrossEntropy) GradCase {
	return GradCase{Name: name, Shapes: func(r *rand.Rand) [][]int { n := 3 + r.IntN(3); return [][]int{{4, n}, {5, n}} },
		F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			return f.Loss(x[0], x[1], tensor.FromSlice([]int64{1, 4, 0, 1}, 4))
		}}
}

// graphCases are the operations of the tape itself.
func graphCases() map[tensor.Op][]GradCase {
	block := func(t *tensor.Tape) func(in ...tensor.Tensor) tensor.Tensor {
		return func(in ...tensor.Tensor) tensor.Tensor {
			return ops.Dropout(in[0].Mul(in[1]).Tanh(), 0.3, 4).Add(in[0].Square())
		}
	}
	vectors := func(n int) func(r *rand.Rand) [][]int {
		return func(r *rand.Rand) (s [][]int) {
			d := dimsOf(r, 1+r.IntN(2))
			for range n {
				s = append(s, d)
			}
			return s
		}
	}
	return map[tensor.Op][]GradCase{
		tensor.OpApply: {
			{Name: "two outputs", Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				f := &twoOut{}
				y := t.Apply(f, x...)
				return y.Add(f.sum.Square())
			}},
			{Name: "only the further output", Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				f := &twoOut{}
				t.Apply(f, x...)
				return f.sum.Exp()
			}},
			{Name: "twice the same input", Shapes: vectors(1),
				F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return t.Apply(&twoOut{}, x[0], x[0]) }},
			{Name: "identity", Shapes: vectors(1), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return t.Apply(identity{}, x[0]).Square().Add(x[0])
			}},
			{Name: "one gradient for both", Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return t.Apply(plus{}, x...).Square().Add(x[0].Mul(x[1]))
			}},
			linearLossCase("loss without logits", ops.LinearCrossEntropy{Smoothing: 0.1}),
			linearLossCase("loss without logits that are capped", ops.LinearCrossEntropy{SoftCap: 0.7}),
		},
		tensor.OpAux: {{Name: "seed", Shapes: vectors(2), F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			return tensor.WithAux(x[0].Mul(x[1]), x[0].Square().Sum(), 0.7)
		}, Extra: func(x []tensor.Tensor) tensor.Tensor { return x[0].Square().Sum().Scale(0.7) }}},
		tensor.OpCheckpoint: {
			{Name: "block", Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return t.Checkpoint(block(t), x...) }},
			{Name: "shared input", Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return t.Checkpoint(block(t), x...).Add(x[0]).Mul(x[1])
			}},
			{Name: "captured", Alone: true, Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return t.Checkpoint(func(...tensor.Tensor) tensor.Tensor { return block(t)(x...) })
			}},
			{Name: "nested", Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return t.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor {
					return t.Checkpoint(block(t), t.Checkpoint(block(t), in...).Tanh(), in[1]).Tanh()
				}, x...)
			}},
			{Name: "function inside", Shapes: vectors(2), F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return t.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { f := &twoOut{}; y := t.Apply(f, in...); return y.Mul(f.sum) }, x...)
			}},
		},
	}
}

// twoOut returns a·b, and a+b as a second output.
type twoOut struct{ sum tensor.Tensor }

func (*twoOut) Name() string { return "two_out" }

func (f *twoOut) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	c.Save(in[0])
	c.Save(in[1])
	c.Ints(2)[1] = 5
	f.sum = c.Out(in[0].Add(in[1]))
	return in[0].Mul(in[1])
}

func (f *twoOut) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if c.Ints(2)[1] != 5 {
		panic("integers were lost")
	}
	s := c.OutGrad(0)
	for i := range 2 {
		switch other := c.Saved(1 - i); {
		case g.IsZero():
			grads[i] = s
		case s.IsZero():
			grads[i] = g.Mul(other)
		default:
			grads[i] = g.Mul(other).Add(s)
		}
	}
}

// identity returns its input.
type identity struct{}

func (identity) Name() string                                            { return "identity" }
func (identity) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }
func (identity) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0] = g
}

// plus adds, and returns the gradient of the sum for both inputs.
type plus struct{}

func (plus) Name() string                                            { return "plus" }
func (plus) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0].Add(in[1]) }
func (plus) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0], grads[1] = g, g
}

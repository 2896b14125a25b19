package tensor

import (
	"fmt"
	"math/rand/v2"
)

// matmulCase multiplies matrices whose dimensions are dims(m, k, n), as they are stored.
func matmulCase(name string, ta, tb bool, dims func(b, m, k, n int) [][]int) gradCase {
	return gradCase{name: name,
		shapes: func(r *rand.Rand) [][]int { return dims(1+r.IntN(2), 1+r.IntN(3), size(r), 1+r.IntN(3)) },
		fn:     func(_ *Tape, x []Tensor) Tensor { return MatMul(x[0], x[1], ta, tb) }}
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

func linearActCase(act Activation, bias bool) gradCase {
	return gradCase{name: activationOps[act].op.String(), shapes: linearShapes(bias), fn: func(_ *Tape, x []Tensor) Tensor {
		return LinearAct(x[0], x[1], append(x, Tensor{})[2], act)
	}}
}

func productCases() map[Op][]gradCase {
	return map[Op][]gradCase{
		OpMatMul: {
			matmulCase("nn", false, false, func(_, m, k, n int) [][]int { return [][]int{{m, k}, {k, n}} }),
			matmulCase("nt", false, true, func(_, m, k, n int) [][]int { return [][]int{{m, k}, {n, k}} }),
			matmulCase("tn", true, false, func(_, m, k, n int) [][]int { return [][]int{{k, m}, {k, n}} }),
			matmulCase("tt", true, true, func(_, m, k, n int) [][]int { return [][]int{{k, m}, {n, k}} }),
			matmulCase("batch nt", false, true, func(b, m, k, n int) [][]int { return [][]int{{b, 2, m, k}, {b, 2, n, k}} }),
			matmulCase("batch tn", true, false, func(b, m, k, n int) [][]int { return [][]int{{b, k, m}, {b, k, n}} }),
			matmulCase("batch tt", true, true, func(b, m, k, n int) [][]int { return [][]int{{b, k, m}, {b, n, k}} }),
			matmulCase("batch and matrix", false, false, func(b, m, k, n int) [][]int { return [][]int{{b, m, k}, {k, n}} }),
			matmulCase("batch and transposed matrix", false, true, func(b, m, k, n int) [][]int { return [][]int{{b, 3, m, k}, {n, k}} }),
			{name: "twice", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor { return MatMul(x[0], x[0], false, true) }},
		},
		OpLinear: {
			{name: "bias", shapes: linearShapes(true), fn: func(_ *Tape, x []Tensor) Tensor { return Linear(x[0], x[1], x[2]) }},
			{name: "no bias", shapes: linearShapes(false), fn: func(_ *Tape, x []Tensor) Tensor { return Linear(x[0], x[1], Tensor{}) }},
			{name: "input and weight are one", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor { return Linear(x[0], x[0], Tensor{}) }},
		},
		OpGroupedLinear: {{name: "groups", shapes: func(r *rand.Rand) [][]int { d := dimsOf(r, 3); return [][]int{{5, d[1]}, {3, d[0], d[1]}} },
			fn: func(_ *Tape, x []Tensor) Tensor { return GroupedLinear(x[0], x[1], FromSlice([]int64{3, 0, 2}, 3)) }}},
		OpLinearAct: {linearActCase(ActReLU, true), linearActCase(ActGELU, true), linearActCase(ActGELUTanh, false), linearActCase(ActSiLU, true),
			{name: "input and weight are one", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor { return LinearAct(x[0], x[0], Tensor{}, ActGELU) }},
		},
	}
}

// normShapes makes rows, and n vectors of a row's size.
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

func rowCases() map[Op][]gradCase {
	rows := normShapes(0)
	row := func(name string, shapes func(r *rand.Rand) [][]int, f func(x []Tensor) Tensor) gradCase {
		return gradCase{name: name, shapes: shapes, fn: func(_ *Tape, x []Tensor) Tensor { return f(x) }}
	}
	labels := func(x Tensor, o CrossEntropyOptions) Tensor {
		y := randomInts(x.Dim(-1), x.Shape().Dims[:x.Rank()-1]...)
		if o.Ignore != nil && y.Len() > 1 {
			Data[int64](y)[0] = *o.Ignore
		}
		return CrossEntropy(x, y, o)
	}
	attention := func(o AttentionOptions) gradCase {
		return row(fmt.Sprintf("causal %v, drop %v", o.Causal, o.Drop), func(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(2), 1 + r.IntN(5), 6 * (1 + r.IntN(2))}} },
			func(x []Tensor) Tensor { return Attention(x[0], 2, o) })
	}
	ignore := int64(-100)
	return map[Op][]gradCase{
		OpAttention:  {attention(AttentionOptions{}), attention(AttentionOptions{Causal: true}), attention(AttentionOptions{Drop: 0.4, Layer: 3})},
		OpSoftmax:    {row("rows", rows, func(x []Tensor) Tensor { return x[0].Softmax() })},
		OpLogSoftmax: {row("rows", rows, func(x []Tensor) Tensor { return x[0].LogSoftmax() })},
		OpLogSumExp:  {row("rows", rows, func(x []Tensor) Tensor { return x[0].LogSumExp() })},
		OpSoftmaxCausal: {row("square", func(r *rand.Rand) [][]int { n := 1 + r.IntN(4); return [][]int{{2, n, n}} },
			func(x []Tensor) Tensor { return x[0].SoftmaxCausal() }),
			row("more keys", func(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(3), 3 + r.IntN(3)}} }, func(x []Tensor) Tensor { return x[0].SoftmaxCausal() })},
		OpLayerNorm: {row("weight and bias", normShapes(2), func(x []Tensor) Tensor { return LayerNorm(x[0], x[1], x[2], 1e-2) }),
			row("plain", rows, func(x []Tensor) Tensor { return LayerNorm(x[0], Tensor{}, Tensor{}, 1e-2) }),
			row("bias", normShapes(1), func(x []Tensor) Tensor { return LayerNorm(x[0], Tensor{}, x[1], 1e-2) })},
		OpRMSNorm: {row("weight", normShapes(1), func(x []Tensor) Tensor { return RMSNorm(x[0], x[1], 1e-2) }),
			row("plain", rows, func(x []Tensor) Tensor { return RMSNorm(x[0], Tensor{}, 1e-2) })},
		OpCrossEntropy: {row("plain", rows, func(x []Tensor) Tensor { return labels(x[0], CrossEntropyOptions{}) }),
			row("smoothing", rows, func(x []Tensor) Tensor { return labels(x[0], CrossEntropyOptions{Smoothing: 0.2}) }),
			row("ignored", rows, func(x []Tensor) Tensor { return labels(x[0], CrossEntropyOptions{Ignore: &ignore, Count: 7}) })},
		OpMSE: {row("pair", pair, func(x []Tensor) Tensor { return MSE(x[0], x[1]) })},
		OpBCE: {row("pair", pair, func(x []Tensor) Tensor { return BCEWithLogits(x[0], x[1]) })},
	}
}

func indexCases() map[Op][]gradCase {
	// indices along dimension 1 of a tensor like x.
	along := func(x Tensor, n int) Tensor { return randomInts(x.Dim(1), x.Dim(0), n, x.Dim(2)) }
	return map[Op][]gradCase{
		OpEmbedding: {{name: "repeated", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor { return Embedding(x[0], randomInts(x[0].Dim(0), 2, 4)) }},
			{name: "none", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor { return Embedding(x[0], randomInts(x[0].Dim(0), 0)) }}},
		OpGather: {{name: "middle", shapes: func(r *rand.Rand) [][]int { return [][]int{dimsOf(r, 3)} }, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Gather(1, along(x[0], 3)) }}},
		OpScatterAdd: {{name: "middle", shapes: func(r *rand.Rand) [][]int { d := dimsOf(r, 3); return [][]int{d, {d[0], 3, d[2]}} },
			fn: func(_ *Tape, x []Tensor) Tensor { return x[0].ScatterAdd(1, along(x[0], 3), x[1]) }}},
		OpDropout: {{name: "half", shapes: anyShape, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Dropout(0.5, 9) }}},
	}
}

// graphCases are the operations of the tape itself.
func graphCases() map[Op][]gradCase {
	block := func(t *Tape) func(in ...Tensor) Tensor {
		return func(in ...Tensor) Tensor { return in[0].Mul(in[1]).Tanh().Dropout(0.3, 4).Add(in[0].Square()) }
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
	return map[Op][]gradCase{
		OpApply: {
			{name: "two outputs", shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor { f := &twoOut{}; y := t.Apply(f, x...); return y.Add(f.sum.Square()) }},
			{name: "only the further output", shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor { f := &twoOut{}; t.Apply(f, x...); return f.sum.Exp() }},
			{name: "twice the same input", shapes: vectors(1), fn: func(t *Tape, x []Tensor) Tensor { return t.Apply(&twoOut{}, x[0], x[0]) }},
			{name: "identity", shapes: vectors(1), fn: func(t *Tape, x []Tensor) Tensor { return t.Apply(identity{}, x[0]).Square().Add(x[0]) }},
			{name: "one gradient for both", shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor { return t.Apply(plus{}, x...).Square().Add(x[0].Mul(x[1])) }},
		},
		OpAux: {{name: "seed", shapes: vectors(2), fn: func(_ *Tape, x []Tensor) Tensor {
			return WithAux(x[0].Mul(x[1]), x[0].Square().Sum(), 0.7)
		}, extra: func(x []Tensor) Tensor { return x[0].Square().Sum().Scale(0.7) }}},
		OpCheckpoint: {
			{name: "block", shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor { return t.Checkpoint(block(t), x...) }},
			{name: "shared input", shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor { return t.Checkpoint(block(t), x...).Add(x[0]).Mul(x[1]) }},
			{name: "captured", alone: true, shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor {
				return t.Checkpoint(func(...Tensor) Tensor { return block(t)(x...) })
			}},
			{name: "nested", shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor {
				return t.Checkpoint(func(in ...Tensor) Tensor {
					return t.Checkpoint(block(t), t.Checkpoint(block(t), in...).Tanh(), in[1]).Tanh()
				}, x...)
			}},
			{name: "function inside", shapes: vectors(2), fn: func(t *Tape, x []Tensor) Tensor {
				return t.Checkpoint(func(in ...Tensor) Tensor { f := &twoOut{}; y := t.Apply(f, in...); return y.Mul(f.sum) }, x...)
			}},
		},
	}
}

// twoOut returns a·b and declares a+b as a further output.
type twoOut struct{ sum Tensor }

func (*twoOut) Name() string { return "two_out" }

func (f *twoOut) Forward(c *Ctx, in []Tensor) Tensor {
	c.Save(in[0])
	c.Save(in[1])
	c.Ints(2)[1] = 5
	f.sum = c.Out(in[0].Add(in[1]))
	return in[0].Mul(in[1])
}

func (f *twoOut) Backward(c *Ctx, g Tensor, grads []Tensor) Pending {
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
	return Pending{}
}

// identity hands everything on.
type identity struct{}

func (identity) Name() string                       { return "identity" }
func (identity) Forward(_ *Ctx, in []Tensor) Tensor { return in[0] }
func (identity) Backward(_ *Ctx, g Tensor, grads []Tensor) Pending {
	grads[0] = g
	return Pending{}
}

// plus adds, and gives the gradient of the sum to both.
type plus struct{}

func (plus) Name() string                       { return "plus" }
func (plus) Forward(_ *Ctx, in []Tensor) Tensor { return in[0].Add(in[1]) }
func (plus) Backward(_ *Ctx, g Tensor, grads []Tensor) Pending {
	grads[0], grads[1] = g, g
	return Pending{}
}

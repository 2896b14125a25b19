package tensortest

import (
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Shapes of the cases. Each call gives others, also with sizes 0 and 1.

func size(r *rand.Rand) int { return []int{0, 1, 2, 3, 4, 5}[r.IntN(6)] }

func dimsOf(r *rand.Rand, rank int) []int {
	d := make([]int, rank)
	for i := range d {
		d[i] = 1 + r.IntN(4)
	}
	return d
}

// one input of any rank.
func anyShape(r *rand.Rand) [][]int {
	d := dimsOf(r, r.IntN(4))
	if len(d) > 0 && r.IntN(4) == 0 {
		d[r.IntN(len(d))] = size(r)
	}
	return [][]int{d}
}

func matrix(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(4), 1 + r.IntN(5)}} }

// broadcast makes two inputs whose shapes broadcast.
func broadcast(r *rand.Rand) [][]int {
	a := dimsOf(r, r.IntN(4))
	b := append([]int(nil), a[r.IntN(len(a)+1):]...)
	for _, d := range [][]int{a, b} {
		for i := range d {
			if r.IntN(3) == 0 {
				d[i] = 1
			}
		}
	}
	if r.IntN(6) == 0 && len(b) > 0 {
		a[len(a)-1], b[len(b)-1] = 0, r.IntN(2)
	}
	if r.IntN(2) == 0 {
		a, b = b, a
	}
	return [][]int{a, b}
}

func pair(r *rand.Rand) [][]int {
	d := dimsOf(r, 1+r.IntN(2))
	return [][]int{d, d}
}

// randomInts returns indices below n, in host memory.
func randomInts(n int, dims ...int) tensor.Tensor {
	x := make([]int64, count(dims))
	for i := range x {
		x[i] = int64(tensor.RandomBits(5, uint64(i)) % uint64(n))
	}
	return tensor.FromSlice(x, dims...)
}

func unary(f func(x tensor.Tensor) tensor.Tensor) []GradCase {
	return []GradCase{{Name: "any", Shapes: anyShape, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return f(x[0]) }}}
}

// within makes cases of a function of one input between lo and hi.
func within(lo, hi float64, f func(x tensor.Tensor) tensor.Tensor) []GradCase {
	return []GradCase{
		{Name: "any", Shapes: anyShape, Lo: lo, Hi: hi, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return f(x[0]) }},
	}
}

func binary(lo, hi float64, f func(x, y tensor.Tensor) tensor.Tensor) []GradCase {
	fn := func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return f(x[0], x[1]) }
	return []GradCase{
		{Name: "broadcast", Shapes: broadcast, Lo: lo, Hi: hi, F: fn},
		{Name: "pair", Shapes: pair, Lo: lo, Hi: hi, F: fn},
	}
}

// twice makes cases of a function of two inputs with the same tensor for both.
func twice(lo, hi float64, f func(x, y tensor.Tensor) tensor.Tensor) []GradCase {
	return append(binary(lo, hi, f), GradCase{Name: "twice", Shapes: anyShape, Lo: lo, Hi: hi,
		F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return f(x[0], x[0]) }})
}

// GradCases is the table: every operation that has a gradient rule.
func GradCases() map[tensor.Op][]GradCase {
	all := map[tensor.Op][]GradCase{
		tensor.OpAdd:  twice(0, 0, tensor.Tensor.Add),
		tensor.OpSub:  twice(0, 0, tensor.Tensor.Sub),
		tensor.OpMul:  twice(0, 0, tensor.Tensor.Mul),
		tensor.OpDiv:  twice(0.5, 2, tensor.Tensor.Div),
		ops.OpMaximum: binary(0, 0, ops.Maximum),
		ops.OpMinimum: binary(0, 0, ops.Minimum),
		ops.OpPow:     twice(0.5, 2, ops.Pow),

		tensor.OpNeg:      unary(tensor.Tensor.Neg),
		tensor.OpAbs:      unary(tensor.Tensor.Abs),
		tensor.OpExp:      unary(tensor.Tensor.Exp),
		tensor.OpLog:      within(0.5, 3, tensor.Tensor.Log),
		tensor.OpSqrt:     within(0.5, 3, tensor.Tensor.Sqrt),
		tensor.OpSquare:   unary(tensor.Tensor.Square),
		tensor.OpRecip:    within(-3, -0.5, tensor.Tensor.Recip),
		tensor.OpSin:      unary(tensor.Tensor.Sin),
		tensor.OpCos:      unary(tensor.Tensor.Cos),
		tensor.OpTanh:     unary(tensor.Tensor.Tanh),
		tensor.OpSigmoid:  unary(tensor.Tensor.Sigmoid),
		tensor.OpReLU:     unary(tensor.Tensor.ReLU),
		tensor.OpGELU:     unary(tensor.Tensor.GELU),
		tensor.OpGELUTanh: unary(tensor.Tensor.GELUTanh),
		tensor.OpSiLU:     unary(tensor.Tensor.SiLU),
		tensor.OpAffine:   unary(func(x tensor.Tensor) tensor.Tensor { return x.Affine(-1.5, 2) }),
	}
	all[tensor.OpAdd] = append(all[tensor.OpAdd],
		GradCase{Name: "both operands get one gradient", Shapes: pair, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			a, b := x[0].Affine(1, 0), x[1].Sin()
			return a.Exp().Sum().Add(a.Add(b))
		}})
	for _, more := range []map[tensor.Op][]GradCase{shapeCases(), productCases(), rowCases(), indexCases(), graphCases(), sortingGrads(),
		generalLossGrads(), rotaryGrads(), attentionGrads(), pictureGrads()} {
		for op, c := range more {
			all[op] = append(all[op], c...)
		}
	}
	return all
}

// shapeCases are operations that move, copy and sum elements.
func shapeCases() map[tensor.Op][]GradCase {
	last := func(x tensor.Tensor) int { return x.NDim() - 1 }
	cube := func(r *rand.Rand) [][]int { return [][]int{dimsOf(r, 3)} }
	return map[tensor.Op][]GradCase{
		// An operation that needs contiguous input copies a view with gaps.
		tensor.OpCopy: {{Name: "view", Shapes: func(r *rand.Rand) [][]int { return [][]int{{2 + r.IntN(3), 2 + r.IntN(3)}} },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Slice(1, 0, x[0].Dim(1)-1).Exp() }}},
		tensor.OpCast: {{Name: "float32", Shapes: anyShape, Step: 0.25, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			return x[0].Cast(tensor.Float32).Cast(tensor.Float64)
		}}},
		tensor.OpReshape: append(unary(func(x tensor.Tensor) tensor.Tensor { return x.Reshape(x.Len(), 1) }),
			GradCase{Name: "flat", Shapes: cube, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Reshape(-1).Square() }}),
		tensor.OpPermute: {{Name: "3", Shapes: cube, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Permute(2, 0, 1) }},
			{Name: "transpose", Shapes: matrix, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Transpose(0, -1) }}},
		tensor.OpSlice: {{Name: "rows", Shapes: cube,
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Slice(0, 0, x[0].Dim(0)/2+1) }},
			{Name: "columns, rows of them", Shapes: matrix, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return x[0].Slice(1, x[0].Dim(1)/2, x[0].Dim(1)).Slice(0, 0, (x[0].Dim(0)+1)/2)
			}},
			{Name: "last of three", Shapes: cube, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Slice(2, 1, x[0].Dim(2)) }},
			{Name: "of a tensor whose gradient is another's too", Shapes: pair, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				a, b := x[0].Affine(1, 0), x[1].Sin()
				return a.Slice(0, 0, 1).Square().Sum().Add(a.Add(b))
			}},
			{Name: "overlapping", Shapes: matrix, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				n := x[0].Dim(1)
				return x[0].Slice(1, 0, (n+1)/2).Sum().Add(x[0].Slice(1, n/2, n).Square().Sum()).Add(x[0].Sum())
			}}},
		tensor.OpConcat: {{Name: "rows",
			Shapes: func(r *rand.Rand) [][]int { n := 1 + r.IntN(4); return [][]int{{size(r), n}, {size(r), n}, {1, n}} },
			F:      func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return tensor.Concat(0, x[0], x[1], x[2], x[0]) }},
			{Name: "columns", Shapes: func(r *rand.Rand) [][]int { n := 1 + r.IntN(4); return [][]int{{n, size(r)}, {n, 1}, {n, 2}} },
				F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return tensor.Concat(-1, x...) }}},
		ops.OpPad: {{Name: "last", Shapes: cube, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			return ops.Pad(x[0], last(x[0]), 1, 2)
		}}, {Name: "first", Shapes: cube, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return ops.Pad(x[0], 0, 0, 1) }}},
		tensor.OpBroadcast: {{Name: "both", Shapes: func(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(3), 1}} },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Broadcast(2, x[0].Dim(0), 3) }}},
		tensor.OpSum: {{Name: "all", Shapes: anyShape, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Sum() }},
			{Name: "outer and inner", Shapes: cube, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Sum(0, -1) }},
			{Name: "mean", Shapes: cube, F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return x[0].Mean(1) }}},
		ops.OpMax: {{Name: "middle", Shapes: cube,
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { v, _ := ops.Max(x[0], 1); return v }}},
		ops.OpMin: {{Name: "last", Shapes: cube,
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { v, _ := ops.Min(x[0], -1); return v }}},
		ops.OpWhere: {{Name: "broadcast", Shapes: broadcast, F: func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
			return ops.Where(x[0].Lt(x[1]), x[0], x[1].Square())
		}}},
	}
}

package tensor

import (
	"math/rand/v2"
)

// Shapes of the cases. Each call gives another one; sizes 0 and 1 come up.

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

// randomInts returns indices below n.
func randomInts(n int, dims ...int) Tensor {
	x := New(hostDevice, Int64, dims...)
	for i := range Data[int64](x) {
		Data[int64](x)[i] = int64(RandomBits(5, uint64(i)) % uint64(n))
	}
	return x
}

func unary(f func(x Tensor) Tensor) []gradCase {
	return []gradCase{{name: "any", shapes: anyShape, fn: func(_ *Tape, x []Tensor) Tensor { return f(x[0]) }}}
}

// within is unary for positive inputs.
func within(lo, hi float64, f func(x Tensor) Tensor) []gradCase {
	return []gradCase{{name: "any", shapes: anyShape, lo: lo, hi: hi, fn: func(_ *Tape, x []Tensor) Tensor { return f(x[0]) }}}
}

func binary(lo, hi float64, f func(x, y Tensor) Tensor) []gradCase {
	fn := func(_ *Tape, x []Tensor) Tensor { return f(x[0], x[1]) }
	return []gradCase{
		{name: "broadcast", shapes: broadcast, lo: lo, hi: hi, fn: fn},
		{name: "pair", shapes: pair, lo: lo, hi: hi, fn: fn},
	}
}

// twice is binary with the same tensor as both operands.
func twice(lo, hi float64, f func(x, y Tensor) Tensor) []gradCase {
	return append(binary(lo, hi, f), gradCase{name: "twice", shapes: anyShape, lo: lo, hi: hi,
		fn: func(_ *Tape, x []Tensor) Tensor { return f(x[0], x[0]) }})
}

// gradCases is the table: every operation that has a gradient rule.
func gradCases() map[Op][]gradCase {
	all := map[Op][]gradCase{
		OpAdd:     twice(0, 0, Tensor.Add),
		OpSub:     twice(0, 0, Tensor.Sub),
		OpMul:     twice(0, 0, Tensor.Mul),
		OpDiv:     twice(0.5, 2, Tensor.Div),
		OpMaximum: binary(0, 0, Tensor.Maximum),
		OpMinimum: binary(0, 0, Tensor.Minimum),
		OpPow:     twice(0.5, 2, Tensor.Pow),

		OpNeg:      unary(Tensor.Neg),
		OpAbs:      unary(Tensor.Abs),
		OpExp:      unary(Tensor.Exp),
		OpLog:      within(0.5, 3, Tensor.Log),
		OpSqrt:     within(0.5, 3, Tensor.Sqrt),
		OpSquare:   unary(Tensor.Square),
		OpRecip:    within(-3, -0.5, Tensor.Recip),
		OpSin:      unary(Tensor.Sin),
		OpCos:      unary(Tensor.Cos),
		OpTanh:     unary(Tensor.Tanh),
		OpSigmoid:  unary(Tensor.Sigmoid),
		OpReLU:     unary(Tensor.ReLU),
		OpGELU:     unary(Tensor.GELU),
		OpGELUTanh: unary(Tensor.GELUTanh),
		OpSiLU:     unary(Tensor.SiLU),
		OpAffine:   unary(func(x Tensor) Tensor { return x.Affine(-1.5, 2) }),
	}
	all[OpAdd] = append(all[OpAdd], gradCase{name: "both operands get one gradient", shapes: pair, fn: func(_ *Tape, x []Tensor) Tensor {
		a, b := x[0].Affine(1, 0), x[1].Sin()
		return a.Exp().Sum().Add(a.Add(b))
	}})
	for _, more := range []map[Op][]gradCase{shapeCases(), productCases(), rowCases(), indexCases(), graphCases()} {
		for op, c := range more {
			all[op] = c
		}
	}
	return all
}

// shapeCases move, copy and sum elements.
func shapeCases() map[Op][]gradCase {
	last := func(x Tensor) int { return x.Rank() - 1 }
	cube := func(r *rand.Rand) [][]int { return [][]int{dimsOf(r, 3)} }
	return map[Op][]gradCase{
		// A view with gaps is copied where an operation wants none.
		OpCopy: {{name: "view", shapes: func(r *rand.Rand) [][]int { return [][]int{{2 + r.IntN(3), 2 + r.IntN(3)}} },
			fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Slice(1, 0, x[0].Dim(1)-1).Exp() }}},
		OpCast:    {{name: "float32", shapes: anyShape, step: 0.25, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Cast(Float32).Cast(Float64) }}},
		OpReshape: append(unary(func(x Tensor) Tensor { return x.Reshape(x.Len(), 1) }), gradCase{name: "flat", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Reshape(-1).Square() }}),
		OpPermute: {{name: "3", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Permute(2, 0, 1) }},
			{name: "transpose", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Transpose(0, -1) }}},
		OpSlice: {{name: "rows", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Slice(0, 0, x[0].Dim(0)/2+1) }},
			{name: "columns, rows of them", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor {
				return x[0].Slice(1, x[0].Dim(1)/2, x[0].Dim(1)).Slice(0, 0, (x[0].Dim(0)+1)/2)
			}},
			{name: "last of three", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Slice(2, 1, x[0].Dim(2)) }},
			{name: "of a tensor whose gradient is another's too", shapes: pair, fn: func(_ *Tape, x []Tensor) Tensor {
				a, b := x[0].Affine(1, 0), x[1].Sin()
				return a.Slice(0, 0, 1).Square().Sum().Add(a.Add(b))
			}},
			{name: "overlapping", shapes: matrix, fn: func(_ *Tape, x []Tensor) Tensor {
				n := x[0].Dim(1)
				return x[0].Slice(1, 0, (n+1)/2).Sum().Add(x[0].Slice(1, n/2, n).Square().Sum()).Add(x[0].Sum())
			}}},
		OpConcat: {{name: "rows", shapes: func(r *rand.Rand) [][]int { n := 1 + r.IntN(4); return [][]int{{size(r), n}, {size(r), n}, {1, n}} },
			fn: func(_ *Tape, x []Tensor) Tensor { return Concat(0, x[0], x[1], x[2], x[0]) }},
			{name: "columns", shapes: func(r *rand.Rand) [][]int { n := 1 + r.IntN(4); return [][]int{{n, size(r)}, {n, 1}, {n, 2}} },
				fn: func(_ *Tape, x []Tensor) Tensor { return Concat(-1, x...) }}},
		OpPad:       {{name: "last", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Pad(last(x[0]), 1, 2) }}, {name: "first", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Pad(0, 0, 1) }}},
		OpBroadcast: {{name: "both", shapes: func(r *rand.Rand) [][]int { return [][]int{{1 + r.IntN(3), 1}} }, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Broadcast(2, x[0].Dim(0), 3) }}},
		OpSum: {{name: "all", shapes: anyShape, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Sum() }},
			{name: "outer and inner", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Sum(0, -1) }},
			{name: "mean", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { return x[0].Mean(1) }}},
		OpMax: {{name: "middle", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { v, _ := x[0].Max(1); return v }}},
		OpMin: {{name: "last", shapes: cube, fn: func(_ *Tape, x []Tensor) Tensor { v, _ := x[0].Min(-1); return v }}},
		OpWhere: {{name: "broadcast", shapes: broadcast, fn: func(t *Tape, x []Tensor) Tensor {
			return Where(x[0].Lt(x[1]), x[0], x[1].Square())
		}}},
	}
}

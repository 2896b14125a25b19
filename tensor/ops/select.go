package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// The operations of Where, Maximum, Minimum and Pow.
var OpWhere, OpMaximum, OpMinimum, OpPow tensor.Op

func init() {
	OpWhere = registerAll(tensor.OpSpec{Name: "where", Class: typing.Selects, Saves: 1, VJP: whereVJP},
		cpu.BySize(whereKernel[uint8](), whereKernel[tensor.BF16](), whereKernel[int32](), whereKernel[int64]()))
	OpMaximum = registerAll(tensor.OpSpec{Name: "maximum", Saves: 3, VJP: winnerVJP(tensor.OpGt)},
		cpu.Binary(kernel.Max[float32], kernel.Max[float64], kernel.Max[int32], kernel.Max[int64], kernel.Max[uint8]))
	OpMinimum = registerAll(tensor.OpSpec{Name: "minimum", Saves: 3, VJP: winnerVJP(tensor.OpLt)},
		cpu.Binary(kernel.Min[float32], kernel.Min[float64], kernel.Min[int32], kernel.Min[int64], kernel.Min[uint8]))
	OpPow = register(tensor.OpSpec{Name: "pow", Saves: 3 | tensor.SaveOut, VJP: powVJP},
		cpu.Zip(kernel.Pow[float32]), cpu.Zip(kernel.Pow[float64]))
}

// Where returns x where cond is true and y elsewhere, broadcast.
func Where(cond, x, y tensor.Tensor) tensor.Tensor {
	t := OpWhere.Tape(cond, x, y)
	OpWhere.SameDType(x, y)
	if cond.DType() != tensor.Bool {
		OpWhere.Fail([]tensor.Tensor{cond}, "condition must be bool")
	}
	t.BroadcastAll(OpWhere, &x, &y, &cond)
	out := t.NewLike(x)
	where(t, out, cond, x, y)
	t.Record(OpWhere, out, cond, x, y)
	return out
}

// where launches out = x where cond is true, y elsewhere, on operands of one shape.
func where(t *tensor.Tape, out, cond, x, y tensor.Tensor) {
	if out.Len() > 0 {
		t.Args(OpWhere, out.DType()).Out(out).In(cond).In(x).In(y)
		t.Launch()
	}
}

func whereVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	for i := 1; i <= 2; i++ {
		if need>>i&1 == 0 {
			continue
		}
		d := t.NewLike(n.Grad())
		t.Fill(d, 0)
		if i == 1 {
			where(t, d, n.In(0), n.Grad(), d)
		} else {
			where(t, d, n.In(0), d, n.Grad())
		}
		t.AddGrad(n, i, d)
	}
}

// Maximum returns the larger element of x and y, broadcast; NaN if one is. Ties share the gradient, as in PyTorch.
func Maximum(x, y tensor.Tensor) tensor.Tensor { return OpMaximum.Binary(x, y) }

// Minimum returns the smaller element of x and y, broadcast; NaN if one is. Ties share the gradient.
func Minimum(x, y tensor.Tensor) tensor.Tensor { return OpMinimum.Binary(x, y) }

// winnerVJP returns the rule that sends the gradient to the operand that won, half to each on a tie.
func winnerVJP(wins tensor.Op) tensor.VJP {
	return func(t *tensor.Tape, n *tensor.Node, need uint8) {
		g := n.Grad()
		for i := range 2 {
			if need>>i&1 != 0 {
				x, y := n.In(i), n.In(1-i)
				share := wins.Binary(x, y).Cast(g.DType()).Add(x.Eq(y).Cast(g.DType()).Scale(0.5))
				t.AddBroadcastGrad(n, i, g.Mul(share))
			}
		}
	}
}

// Pow returns x to the power y, element by element, broadcast.
func Pow(x, y tensor.Tensor) tensor.Tensor { return OpPow.Binary(x, y) }

// x^y has the gradients g·y·x^(y−1) for x (0 if y is 0) and g·x^y·ln x for y (0 if x is 0).
func powVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	x, y := n.In(0), n.In(1)
	if need&1 != 0 {
		d := Pow(x, y.Affine(1, -1)).Mul(y)
		t.AddBroadcastGrad(n, 0, unlessZero(t, y, d).Mul(n.Grad()))
	}
	if need&2 != 0 {
		d := n.Out().Mul(x.Log())
		t.AddBroadcastGrad(n, 1, unlessZero(t, x, d).Mul(n.Grad()))
	}
}

// unlessZero returns d, but 0 where x, after broadcasting, is 0.
func unlessZero(t *tensor.Tape, x, d tensor.Tensor) tensor.Tensor {
	zero := t.NewLike(d)
	t.Fill(zero, 0)
	return Where(x.Eq(zero), zero, d)
}

func whereKernel[T tensor.Elem]() tensor.Kernel {
	return aligned(outLen, one, func(a *tensor.Args, lo, hi int) {
		out, x, y := tensor.Operand[T](a, 0), tensor.Operand[T](a, 2), tensor.Operand[T](a, 3)
		kernel.Where(out[lo:hi], tensor.Operand[bool](a, 1)[lo:hi], x[lo:hi], y[lo:hi])
	})
}

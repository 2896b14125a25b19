package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// OpRotary is the operation of Rotary, and of its gradient.
var OpRotary tensor.Op

func init() {
	OpRotary = register(tensor.OpSpec{Name: "rotary", Class: typing.Indexed, Rows: tensor.RowsTurned, Saves: 2, VJP: rotaryVJP},
		rotaryKernel[float32](), rotaryKernel[float64]())
}

// RotaryOptions says at which position x begins, and which two features form a pair.
type RotaryOptions struct {
	// First is the position of x's first token: the number of tokens in a cache. If the step has a part of each sequence, that of each
	// position in it (Rows.Seq) is added.
	First int
	// Interleaved pairs features 2i and 2i+1 of a head, as in the paper. Otherwise i and i+headDim/2 are a pair, as in Llama's files.
	Interleaved bool
}

// Rotary rotates pairs of features by angles that are proportional to the position. Then the product of a query and a key depends only on
// their distance (Su et al., "RoFormer", 2021). x is [batch, time, heads·headDim], and so is the result. Row p of table [positions,
// headDim] has the cosines of the headDim/2 angles of position p, then their sines. The table is Float64 if x is, else Float32, and gets no
// gradient: see nn.Rotary.
func Rotary(x, table tensor.Tensor, o RotaryOptions) tensor.Tensor {
	t := OpRotary.Tape(x)
	x, table = t.Packed(x), t.Packed(table)
	o.check(x, table)
	at := t.Spans(x)
	first, end := o.First+at.First, o.First+at.First+x.Dim(1)+at.Skip
	if first < 0 || end > table.Dim(0) {
		OpRotary.Fail([]tensor.Tensor{x}, "positions %d to %d of %d", first, end-1, table.Dim(0))
	}
	out := t.NewLike(x)
	i := [8]int{first, b2i(o.Interleaved), 1, at.Break, at.Skip}
	rotary(t, out, x, table, i)
	if n := t.Record(OpRotary, out, x, table); n != nil {
		n.I = i
	}
	return out
}

func (o RotaryOptions) check(x, table tensor.Tensor) {
	if x.NDim() != 3 || table.NDim() != 2 {
		OpRotary.Fail([]tensor.Tensor{x, table}, "wants an input [batch, time, heads·headDim] and a table [positions, headDim]")
	}
	if d := table.Dim(1); d == 0 || d%2 != 0 || x.Dim(2)%d != 0 {
		OpRotary.Fail([]tensor.Tensor{x, table}, "the input's %d features are not heads of the table's %d, which must be even", x.Dim(2), d)
	}
	if d := statType(x.DType()); table.DType() != d || table.NeedsGrad() {
		OpRotary.Fail([]tensor.Tensor{x, table}, "the table has to be a %v without a gradient", d)
	}
}

// rotary launches the rotation by table. i holds the first row of the table, whether neighbours are a pair, the sign of the angles, and
// from which position on the rows are how many later.
func rotary(t *tensor.Tape, out, x, table tensor.Tensor, i [8]int) {
	if x.Len() == 0 {
		return
	}
	a := t.Args(OpRotary, x.DType()).Out(out).In(x).In(table)
	a.Dim = [tensor.MaxNDim]int{x.Dim(0) * x.Dim(1), x.Dim(1), x.Dim(2), table.Dim(1)}
	a.I = i
	t.Launch()
}

// The gradient is rotated by the negative angles.
func rotaryVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	g, d := t.GradInPlace(n)
	i := n.I
	i[2] = -1
	rotary(t, d, g, n.In(1), i)
	t.AddGrad(n, 0, d)
}

func dim2(a *tensor.Args) int { return a.Dim[2] }

func rotaryKernel[T float]() tensor.Kernel {
	return cpu.Parallel(dim0, dim2, func(a *tensor.Args, lo, hi int) {
		y, x, table := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[T](a, 2)
		time, width, head := a.Dim[1], a.Dim[2], a.Dim[3]
		far, step, sign := head/2, 1, T(a.I[2])
		if a.I[1] != 0 {
			far, step = 1, 2
		}
		for row := lo; row < hi; row++ {
			position := row % time
			if position >= a.I[3] {
				position += a.I[4]
			}
			angles := table[(a.I[0]+position)*head:][:head]
			cos, sin := angles[:head/2], angles[head/2:]
			for at := row * width; at < (row+1)*width; at += head {
				for i, c := range cos {
					k, s := at+i*step, sign*sin[i]
					u, v := x[k], x[k+far]
					y[k], y[k+far] = T(u*c)-T(v*s), T(v*c)+T(u*s)
				}
			}
		}
	})
}

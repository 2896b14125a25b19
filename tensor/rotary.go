package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

func init() {
	define(OpRotary, OpSpec{Name: "rotary", Class: ClassIndexed, Saves: 2, VJP: rotaryVJP,
		CPU: floats(rotaryKernel[float32](), rotaryKernel[float64]())})
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
func Rotary(x, table Tensor, o RotaryOptions) Tensor {
	t := tapeOf("rotary", x)
	in, tab := t.contiguous(t.arg(x)), t.contiguous(t.arg(table))
	mustShape("rotary", in.ndim == 3 && tab.ndim == 2, "wants an input [batch, time, heads·headDim] and a table [positions, headDim]", in, tab)
	if d := tab.dims[1]; d == 0 || d%2 != 0 || in.dims[2]%d != 0 {
		fail("rotary", these(in, tab), "the input's %d features are not heads of the table's %d, which must be even", in.dims[2], d)
	}
	if st := statType(in.dtype); tab.dtype != st || tab.needs {
		fail("rotary", these(in, tab), "the table has to be a %v without a gradient", st)
	}
	at := t.spansOf("rotary", in)
	first, end := o.First+at.First, o.First+at.First+in.dims[1]+at.Skip
	if first < 0 || end > tab.dims[0] {
		fail("rotary", these(in), "positions %d to %d of %d", first, end-1, tab.dims[0])
	}
	out := t.newLike(in)
	i := [8]int{first, b2i(o.Interleaved), 1, at.Break, at.Skip}
	t.rotary(out, in, tab, i)
	if n := t.rec(OpRotary, out, in, tab); n != nil {
		n.I = i
	}
	return out.tensor()
}

// rotary launches the rotation by table. i holds the first row of the table, whether neighbours are a pair, the sign of the angles, and
// from which position on the rows are how many later.
func (t *Tape) rotary(out, x, table *header, i [8]int) {
	if x.n == 0 {
		return
	}
	a := t.Args(OpRotary, x.dtype)
	a.out(out).in(x).in(table)
	a.Dim[0], a.Dim[1], a.Dim[2] = x.dims[0]*x.dims[1], x.dims[1], x.dims[2]
	a.Dim[3] = table.dims[1]
	a.I = i
	t.Launch()
}

// The gradient is rotated by the negative angles.
func rotaryVJP(t *Tape, n *Node, _ uint8) {
	g, d := t.inPlace(n)
	i := n.I
	i[2] = -1
	t.rotary(d, g, n.in[1], i)
	t.addGrad(n.in[0], d)
}

func dim2(a *Args) int { return a.Dim[2] }

func rotaryKernel[T kernel.Float]() Kernel {
	return Parallel(dim0, dim2, func(a *Args, lo, hi int) {
		y, x, table := slice[T](a, 0), slice[T](a, 1), slice[T](a, 2)
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

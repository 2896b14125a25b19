package ops

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The steps of Float8Linear. Devices with 8-bit matrix products compute with the codes, which OpQuantize8 makes and OpScaledMM multiplies.
var OpRound8, OpQuantize8, OpScaledMM tensor.Op

func init() {
	OpRound8 = register(tensor.OpSpec{Name: "round8", Const: true, Optional: true},
		cpu.Parallel(outLen, one, func(a *tensor.Args, lo, hi int) {
			kernel.Round8(tensor.Operand[float32](a, 0)[lo:hi], tensor.Operand[float32](a, 1)[lo:hi], kernel.Float8(a.I[0]))
		}), nil)
	OpQuantize8 = register(tensor.OpSpec{Name: "quantize8", Const: true, Optional: true}, nil, nil)
	OpScaledMM = register(tensor.OpSpec{Name: "scaled_mm", Const: true, Optional: true}, nil, nil)
}

// Float8 says how the operands of a product are scaled before they are rounded to 8-bit floats.
type Float8 uint8

// The scalings. In both, inputs and weights become float8_e4m3fn and gradients float8_e5m2. Scales come from the largest magnitude of the
// data itself (torchao's dynamic scaling). A CPU sums in float32, and so do tensor cores for gradients. In the forward product they use
// fast accumulation, as torchao's Float8Linear does (use_fast_accum): Hopper's keep 14 bits of each term and sum, cut and not rounded. On
// an H100, with 4096 terms, sums whose terms have one sign were 5% too small (0.17% off without it, as bfloat16 rounds), and torch's were
// the same. Where signs are mixed, errors are those of the rounding to 8 bits, 4%: so it stays, though the gradients' products, without
// it, were only 4 to 6% slower. Leave out a Linear whose inputs and weights are mostly positive.
const (
	NoFloat8 Float8 = iota // no 8-bit floats
	// PerTensor has one scale for each operand. All three products (Forward and the two gradients) are of 8-bit floats. A rank uses the
	// scale of its own rows: with ddp and fsdp, N ranks do not compute exactly the result of one rank.
	PerTensor
	// PerRow has a scale for each row or column that is summed over. The gradient of the weight sums over the rows of the batch: it is
	// computed in the model's type. So the result of a row does not depend on other rows, and N ranks compute the result of one rank.
	PerRow
)

// Float8Multiple is what the widths of a product of 8-bit floats must be multiples of: cuBLASLt needs it.
const Float8Multiple = 16

// float8Smallest is the least magnitude from which a scale is made, torchao's EPS.
const float8Smallest = 1e-12

// Float8Linear returns x·wᵀ for x [..., in] and w [out, in]. Both are rounded to scaled 8-bit floats, in the gradients, too. in and out
// must be multiples of 16; for PerTensor and a w with a gradient, also the number of rows. On the CPU the product is computed in float32
// from the rounded numbers. It differs from a product of 8-bit floats only in the order of its sums.
func Float8Linear(x, w tensor.Tensor, s Float8) tensor.Tensor {
	t := tensor.OpLinear.Tape(x, w)
	checkLinear(x, w)
	fail := func(format string, a ...any) {
		panic(&tensor.Failure{Op: "float8_linear", Shapes: []tensor.Shape{x.Shape(), w.Shape()},
			Params: []string{x.NameOr(""), w.NameOr("")}, Err: fmt.Errorf(format, a...)})
	}
	rows := x.Len() / max(w.Dim(1), 1)
	switch {
	case s != PerTensor && s != PerRow:
		fail("the scaling %d is neither PerTensor nor PerRow", s)
	case x.DType() == tensor.Float64:
		fail("8-bit floats are for models of bfloat16, float16 and float32")
	case w.Dim(0)%Float8Multiple != 0 || w.Dim(1)%Float8Multiple != 0:
		fail("products of 8-bit floats want widths that are multiples of %d", Float8Multiple)
	case s == PerTensor && w.NeedsGrad() && t.Records() && rows%Float8Multiple != 0:
		fail("the gradient of the weight wants a number of rows that is a multiple of %d, not %d: change the batch, or take PerRow",
			Float8Multiple, rows)
	case x.Len() == 0 || w.Len() == 0:
		return tensor.Linear(x, w, tensor.Tensor{})
	}
	if s == PerTensor && t.Has(OpScaledMM, x.DType()) {
		return t.Apply(codedLinear{}, x, w)
	}
	return t.Apply(float8Linears[s], x, w)
}

// float8Linear is the Function of a scaling.
type float8Linear struct{ s Float8 }

var float8Linears = [...]*float8Linear{PerTensor: {PerTensor}, PerRow: {PerRow}}

func (*float8Linear) Name() string { return "float8_linear" }

func (f *float8Linear) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x, w := in[0], in[1]
	if c.Need(0) {
		c.Save(w)
	}
	if c.Need(1) {
		c.Save(x)
	}
	rows := matrix(x)
	y := product8(c.Tape(), operand8{rows, kernel.E4M3, f.s == PerRow, false}, operand8{w, kernel.E4M3, f.s == PerRow, true}, true)
	return withLast(y, x, w.Dim(0))
}

func (f *float8Linear) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if g.IsZero() {
		return
	}
	rows, perRow := matrix(g), f.s == PerRow
	if c.Need(0) {
		dx := product8(c.Tape(), operand8{rows, kernel.E5M2, perRow, false}, operand8{c.Saved(0), kernel.E4M3, perRow, false}, false)
		grads[0] = withLast(dx, g, dx.Dim(1))
	}
	if !c.Need(1) {
		return
	}
	x := matrix(c.Saved(b2i(c.Need(0))))
	if perRow {
		grads[1] = tensor.MatMul(rows, x, true, false)
	} else {
		grads[1] = product8(c.Tape(), operand8{rows, kernel.E5M2, false, true}, operand8{x, kernel.E4M3, false, false}, false)
	}
}

// codedLinear is the Function of PerTensor on a device with 8-bit products. The gradient of the weight multiplies the codes of x that the
// forward pass has made, transposed. Those of w are made again: w may be sharded, or shared by microbatches, and its codes would stay.
type codedLinear struct{}

func (codedLinear) Name() string { return "float8_linear" }

func (codedLinear) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	t, x, w := c.Tape(), in[0], in[1]
	cx, cw := quantize8(t, matrix(x), kernel.E4M3, false, true, c.Need(1)), quantize8(t, w, kernel.E4M3, false, true, false)
	if c.Need(0) {
		c.Save(w)
	}
	if c.Need(1) {
		c.Save(cx.transposed)
		c.Save(cx.inverse)
	}
	return withLast(scaledMM(t, x.DType(), cx, cw, cx.codes, cw.codes, true), x, w.Dim(0))
}

func (codedLinear) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if g.IsZero() {
		return
	}
	t, next := c.Tape(), b2i(c.Need(0))
	cg := quantize8(t, matrix(g), kernel.E5M2, false, c.Need(0), c.Need(1))
	if c.Need(0) {
		cw := quantize8(t, c.Saved(0), kernel.E4M3, false, false, true)
		dx := scaledMM(t, g.DType(), cg, cw, cg.codes, cw.transposed, false)
		grads[0] = withLast(dx, g, dx.Dim(1))
	}
	if c.Need(1) {
		cx := codes8{format: kernel.E4M3, transposed: c.Saved(next), inverse: c.Saved(next + 1)}
		grads[1] = scaledMM(t, g.DType(), cg, cx, cg.transposed, cx.transposed, false)
	}
}

// matrix returns x [..., n] as rows of n.
func matrix(x tensor.Tensor) tensor.Tensor {
	n := x.Dim(-1)
	return x.Reshape(x.Len()/max(n, 1), n)
}

// withLast returns rows y in the shape of x, but for the last dimension, which is n.
func withLast(y, x tensor.Tensor, n int) tensor.Tensor {
	d, rank := dimsOf(x)
	d[rank-1] = n
	return y.Reshape(d[:rank]...)
}

// operand8 is a factor of a product: the matrix, whether it is transposed, its format, and whether each row of the left factor, or column
// of the right one, has its own scale.
type operand8 struct {
	x          tensor.Tensor
	format     kernel.Float8
	perRow     bool
	transposed bool
}

// product8 returns a·b in a's type. If fast, a device may sum with fewer bits, as torchao lets it in the forward pass but not in gradients.
func product8(t *tensor.Tape, a, b operand8, fast bool) tensor.Tensor {
	a.x, b.x = matrix(a.x), matrix(b.x)
	if t.Has(OpScaledMM, a.x.DType()) {
		// Sums go over the last dimension of both.
		x := quantize8(t, a.x, a.format, a.perRow, !a.transposed, a.transposed)
		y := quantize8(t, b.x, b.format, b.perRow, b.transposed, !b.transposed)
		return scaledMM(t, a.x.DType(), x, y, x.only(), y.only(), fast)
	}
	x, xs := round8(t, a, a.transposed)
	y, ys := round8(t, b, !b.transposed)
	c := tensor.MatMul(x, y, a.transposed, b.transposed)
	rows, cols := 1, 1
	if a.perRow {
		rows = xs.Len()
	}
	if b.perRow {
		cols = ys.Len()
	}
	return c.Mul(xs.Reshape(rows, 1)).Mul(ys.Reshape(1, cols)).Cast(a.x.DType())
}

// codes8 are the codes of a matrix, those of the transposed matrix, and the inverse scales: one, or one for each line.
type codes8 struct {
	format                     kernel.Float8
	perLine                    bool
	codes, transposed, inverse tensor.Tensor
}

// quantize8 makes the codes of x, and those of the transposed matrix, if they are wanted. With perLine, codes have a scale for each row,
// transposed ones for each column: then only one of the two is made.
func quantize8(t *tensor.Tape, x tensor.Tensor, format kernel.Float8, perLine, plain, transposed bool) codes8 {
	c, scales := codes8{format: format, perLine: perLine}, 1
	if perLine {
		scales = x.Dim(b2i(transposed))
	}
	if plain {
		c.codes = t.New(tensor.Uint8, x.Dim(0), x.Dim(1))
	}
	if transposed {
		c.transposed = t.New(tensor.Uint8, x.Dim(1), x.Dim(0))
	}
	c.inverse = t.New(tensor.Float32, scales)
	args := t.Args(OpQuantize8, x.DType())
	maybeOut(args, c.codes)
	maybeOut(args, c.transposed)
	args.Out(c.inverse).In(x)
	args.Dim[0], args.Dim[1] = x.Dim(0), x.Dim(1)
	args.I[0], args.I[1] = int(format), b2i(perLine)
	t.Launch()
	return c
}

// only returns the codes of which there is one kind.
func (c codes8) only() tensor.Tensor {
	if c.codes.IsZero() {
		return c.transposed
	}
	return c.codes
}

// scaledMM returns the product of x, codes of a, and of y, codes of b, both with the summed dimension last, in type d. If fast, a device
// may sum with fewer bits, as torchao lets it in the forward pass but not in gradients.
func scaledMM(t *tensor.Tape, d tensor.DType, a, b codes8, x, y tensor.Tensor, fast bool) tensor.Tensor {
	c := t.New(d, x.Dim(0), y.Dim(0))
	args := t.Args(OpScaledMM, d).Out(c).In(x).In(y).In(a.inverse).In(b.inverse)
	args.Dim[0], args.Dim[1], args.Dim[2] = x.Dim(0), y.Dim(0), x.Dim(1)
	args.I[0], args.I[1], args.I[2], args.I[3] = int(a.format), int(b.format), b2i(a.perLine), b2i(fast)
	t.Launch()
	return c
}

// scale8 returns the scales of o, for each row, for each column or for the whole, and the shape in which they broadcast to o. OpQuantize8
// makes the same.
func scale8(t *tensor.Tape, o operand8, columns bool) (scale tensor.Tensor, shape [2]int) {
	magnitudes := o.x.Abs()
	shape = [2]int{1, 1}
	switch {
	case !o.perRow:
		magnitudes, _ = Max(magnitudes.Reshape(1, o.x.Len()), 1)
	case columns:
		magnitudes, _ = Max(magnitudes, 0)
		shape[1] = magnitudes.Len()
	default:
		magnitudes, _ = Max(magnitudes, 1)
		shape[0] = magnitudes.Len()
	}
	amax := Clamp(magnitudes.Cast(tensor.Float32), float8Smallest, math.Inf(1))
	most := t.NewLike(amax)
	t.Args(tensor.OpFill, tensor.Float32).Out(most).F[0] = float64(o.format.Max())
	t.Launch()
	return most.Div(amax), shape
}

// round8 returns the rounded numbers of o, multiplied by the scales, and the inverse scales. If columns is set, each column has a scale,
// not each row.
func round8(t *tensor.Tape, o operand8, columns bool) (y, inverse tensor.Tensor) {
	scale, shape := scale8(t, o, columns)
	scaled := o.x.Cast(tensor.Float32).Mul(scale.Reshape(shape[:]...))
	y = t.NewLike(scaled)
	args := t.Args(OpRound8, tensor.Float32).Out(y).In(scaled)
	args.I[0] = int(o.format)
	t.Launch()
	return y, scale.Recip()
}

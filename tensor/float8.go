package tensor

import (
	"math"

	"github.com/ringo-ml/ringo/internal/kernel"
)

func init() {
	define(OpRound8, OpSpec{Name: "round8", Const: true, optional: true, CPU: [NumDTypes]Kernel{Float32: spread(outLen, one, 16,
		func(_ *CPUQueue, a *Args, lo, hi, _ int) {
			kernel.Round8(slice[float32](a, 0)[lo:hi], slice[float32](a, 1)[lo:hi], kernel.Float8(a.I[0]))
		})}})
	// Devices with 8-bit matrix products compute with the codes.
	define(OpQuantize8, OpSpec{Name: "quantize8", Const: true, optional: true})
	define(OpScaledMM, OpSpec{Name: "scaled_mm", Const: true, optional: true})
}

// Float8 says how the operands of a product are scaled before they are rounded to 8-bit floats.
type Float8 uint8

// The scalings. In both, inputs and weights become float8_e4m3fn and gradients float8_e5m2. Scales come from the largest magnitude of the
// data itself (torchao's dynamic scaling). Sums are float32. As with torchao's Float8Linear (use_fast_accum), tensor cores may keep fewer
// bits of the sums of the forward product, but not of the gradients'.
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
func Float8Linear(x, w Tensor, s Float8) Tensor {
	t := tapeOfOp(OpLinear, x, w)
	xh, wh := t.arg(x), t.arg(w)
	t.checkLinear(xh, wh, nil)
	switch {
	case s != PerTensor && s != PerRow:
		fail("float8_linear", these(xh, wh), "the scaling %d is neither PerTensor nor PerRow", s)
	case xh.dtype == Float64:
		fail("float8_linear", these(xh, wh), "8-bit floats are for models of bfloat16, float16 and float32")
	case wh.dims[0]%Float8Multiple != 0 || wh.dims[1]%Float8Multiple != 0:
		fail("float8_linear", these(xh, wh), "products of 8-bit floats want widths that are multiples of %d", Float8Multiple)
	case s == PerTensor && wh.needs && t.recording() && xh.rowCount()%Float8Multiple != 0:
		fail("float8_linear", these(xh, wh),
			"the gradient of the weight wants a number of rows that is a multiple of %d, not %d: change the batch, or take PerRow",
			Float8Multiple, xh.rowCount())
	case xh.n == 0:
		return Linear(x, w, Tensor{})
	}
	return t.Apply(float8Linears[s], x, w)
}

// float8Linear is the Function of a scaling.
type float8Linear struct{ s Float8 }

var float8Linears = [...]*float8Linear{PerTensor: {PerTensor}, PerRow: {PerRow}}

func (*float8Linear) Name() string { return "float8_linear" }

func (f *float8Linear) Forward(c *Ctx, in []Tensor) Tensor {
	x, w := in[0], in[1]
	if c.Need(0) {
		c.Save(w)
	}
	if c.Need(1) {
		c.Save(x)
	}
	rows := matrix(x)
	y := c.t.product8(operand8{rows, kernel.E4M3, f.s == PerRow, false}, operand8{w, kernel.E4M3, f.s == PerRow, true}, true)
	var dims [MaxRank]int
	n := copy(dims[:], x.hdr().dims[:x.hdr().rank])
	dims[n-1] = w.hdr().dims[0]
	return y.Reshape(dims[:n]...)
}

func (f *float8Linear) Backward(c *Ctx, g Tensor, grads []Tensor) {
	if g.IsZero() {
		return
	}
	rows, perRow := matrix(g), f.s == PerRow
	if c.Need(0) {
		dx := c.t.product8(operand8{rows, kernel.E5M2, perRow, false}, operand8{c.Saved(0), kernel.E4M3, perRow, false}, false)
		h := c.in[0].hdr()
		grads[0] = dx.Reshape(h.dims[:h.rank]...)
	}
	if !c.Need(1) {
		return
	}
	x := matrix(c.Saved(b2i(c.Need(0))))
	if perRow {
		grads[1] = MatMul(rows, x, true, false)
	} else {
		grads[1] = c.t.product8(operand8{rows, kernel.E5M2, false, true}, operand8{x, kernel.E4M3, false, false}, false)
	}
}

// matrix returns x [..., n] as rows of n.
func matrix(x Tensor) Tensor {
	h := x.hdr()
	return x.Reshape(h.rowCount(), h.dims[h.rank-1])
}

// operand8 is a factor of a product: the matrix, whether it is transposed, its format, and whether each row of the left factor, or column
// of the right one, has its own scale.
type operand8 struct {
	x          Tensor
	format     kernel.Float8
	perRow     bool
	transposed bool
}

// product8 returns a·b in a's type. If fast, a device may sum with fewer bits, as torchao lets it in the forward pass but not in gradients.
func (t *Tape) product8(a, b operand8, fast bool) Tensor {
	a.x, b.x = matrix(a.x), matrix(b.x)
	if t.table[OpScaledMM][a.x.DType()] != nil {
		return t.scaledMM(a, b, fast)
	}
	x, xs := t.round8(a, a.transposed)
	y, ys := t.round8(b, !b.transposed)
	c := MatMul(x, y, a.transposed, b.transposed)
	rows, cols := 1, 1
	if a.perRow {
		rows = xs.Len()
	}
	if b.perRow {
		cols = ys.Len()
	}
	return c.Mul(xs.Reshape(rows, 1)).Mul(ys.Reshape(1, cols)).Cast(a.x.DType())
}

// scaledMM is product8 by OpScaledMM, which needs both matrices with the summed dimension last.
func (t *Tape) scaledMM(a, b operand8, fast bool) Tensor {
	x, xs := t.quantize8(a, a.transposed)
	y, ys := t.quantize8(b, !b.transposed)
	c := t.New(a.x.DType(), x.Dim(0), y.Dim(0))
	args := t.Args(OpScaledMM, c.DType()).Out(c).In(x).In(y).In(xs).In(ys)
	args.Dim[0], args.Dim[1], args.Dim[2] = x.Dim(0), y.Dim(0), x.Dim(1)
	args.I[0], args.I[1], args.I[2], args.I[3] = int(a.format), int(b.format), b2i(a.perRow), b2i(fast)
	t.Launch()
	return c
}

// quantize8 returns the codes of o, multiplied by the scales, and the inverse scales. If columns is set, each column has a scale, not each
// row, and the codes are transposed.
func (t *Tape) quantize8(o operand8, columns bool) (codes, inverse Tensor) {
	scale, shape := t.scale8(o, columns)
	codes = t.New(Uint8, o.x.Dim(0), o.x.Dim(1))
	args := t.Args(OpQuantize8, o.x.DType()).Out(codes).In(o.x).In(scale)
	args.Dim[0], args.Dim[1] = o.x.Dim(0), o.x.Dim(1)
	args.I[0], args.I[1], args.I[2] = int(o.format), b2i(shape[0] > 1), b2i(shape[1] > 1)
	t.Launch()
	if columns {
		codes = codes.Permute(1, 0).Reshape(o.x.Dim(1), o.x.Dim(0))
	}
	return codes, scale.Recip()
}

// scale8 returns the scales of o, for each row, for each column or for the whole, and the shape in which they broadcast to o. The codes
// need another pass over o: the first of them depends on the last element. One kernel could keep a row, but not a column or the whole,
// between the two. torch.compile has two passes, too; the magnitudes that are written and read here are a third.
func (t *Tape) scale8(o operand8, columns bool) (scale Tensor, shape [2]int) {
	magnitudes := o.x.Abs()
	shape = [2]int{1, 1}
	switch {
	case !o.perRow:
		magnitudes, _ = magnitudes.Reshape(1, o.x.Len()).Max(1)
	case columns:
		magnitudes, _ = magnitudes.Max(0)
		shape[1] = magnitudes.Len()
	default:
		magnitudes, _ = magnitudes.Max(1)
		shape[0] = magnitudes.Len()
	}
	amax := magnitudes.Cast(Float32).Clamp(float8Smallest, math.Inf(1))
	return t.full(amax.hdr(), float64(o.format.Max())).tensor().Div(amax), shape
}

// round8 returns the rounded numbers of o, multiplied by the scales, and the inverse scales. If columns is set, each column has a scale,
// not each row.
func (t *Tape) round8(o operand8, columns bool) (y, inverse Tensor) {
	scale, shape := t.scale8(o, columns)
	scaled := o.x.Cast(Float32).Mul(scale.Reshape(shape[:]...))
	y = t.NewLike(scaled)
	args := t.Args(OpRound8, Float32).Out(y).In(scaled)
	args.I[0] = int(o.format)
	t.Launch()
	return y, scale.Recip()
}

package ops

import (
	"math"

	"github.com/ringo-ml/ringo/tensor"
)

// LinearCrossEntropy is the cross-entropy of logits x·wᵀ, which are never whole in memory: those of some rows are computed, and Backward
// computes gradients from them at once (as in Liger Kernel, Hsu et al. 2024). If the loss is read before Backward, the logits are computed
// twice. It is a tensor.Function of x [n, in], w [classes, in] and labels [n]; Loss applies it.
//
// Gradients of 16-bit floats are rounded once for each part of the rows, of which there are at most linearParts, or twice as many with
// SoftCap.
type LinearCrossEntropy struct {
	Smoothing float64 // label smoothing, 0 to 1; 0 where ranks divide the classes
	// Ignore and Count are those of CrossEntropyOptions. On devices with their own memory, Ignore needs Count.
	Ignore *int64
	Count  float64
	// SoftCap, if not 0, makes of a logit z SoftCap·tanh(z/SoftCap), as AttentionScores does of scores.
	SoftCap float64

	Classes Classes // nil: each rank has all classes
}

// Classes says which classes this rank has, where ranks divide them.
type Classes interface {
	tensor.Typed // of a loss of the logits
	// Range returns the first class of this rank, and the number of classes of all ranks.
	Range() (first, all int)
	// Join returns, for rows whose logits this rank has a part of, the logarithm of the sum of all exponentials, where lse has that of its
	// own, and the label's logit, which one rank has, and others have 0.
	Join(t *tensor.Tape, lse, logit tensor.Tensor) (allLSE, allLogit tensor.Tensor)
}

// The rows of a batch are divided into so many parts, but none has fewer rows: a product of few rows is slow.
const (
	linearParts    = 16
	fewestPartRows = 256
)

const noLabel = math.MinInt64

// Loss returns what CrossEntropy returns for logits Linear(x, w), for x [..., in], w [classes, in] and labels [...], Int64 or Int32.
// With Classes, w has those of this rank.
func (f *LinearCrossEntropy) Loss(x, w, labels tensor.Tensor) tensor.Tensor {
	op := OpCrossEntropy
	t := op.Tape(x, w)
	checkLinear(x, w)
	t.CheckTarget(op.String(), x, labels)
	y := t.TargetsOf(x, t.Integers(labels))
	if !(f.Smoothing >= 0 && f.Smoothing <= 1) || f.Classes != nil && f.Smoothing != 0 {
		op.Fail(nil, "label smoothing %v is not in [0,1], or ranks divide the classes", f.Smoothing)
	}
	if !(f.SoftCap >= 0 && f.SoftCap < math.MaxFloat32) {
		op.Fail(nil, "a soft cap of %v must be positive, or 0 for none", f.SoftCap)
	}
	if f.Count != 0 {
		t.Agree(f.Count)
	}
	f.checkLabels(x, w, y)
	x, w = t.Packed(x), t.Packed(w)
	f.count(t, x, y)
	out := t.Apply(f, x, w, y)
	var split tensor.Typed
	if f.Classes != nil {
		split = f.Classes
	}
	t.LinearLossTypes(op, out, x, w, y, split)
	return out
}

// checkLabels fails unless there is a label for each row, and, where the host sees them, each is a class or ignored.
func (f *LinearCrossEntropy) checkLabels(x, w, y tensor.Tensor) {
	op := OpCrossEntropy
	fits := y.Len() == x.Len()/max(x.Dim(-1), 1) && y.DType() == tensor.Int64
	if y.NDim() == x.NDim()-1 {
		for i := range y.NDim() {
			fits = fits && y.Dim(i) == x.Dim(i)
		}
	}
	if !fits {
		op.Fail([]tensor.Tensor{x, w, y}, "wants rows [..., in], weights [classes, in] and labels [...], int64 or int32")
	}
	if !y.Device().Host() {
		return
	}
	all := w.Dim(0)
	if f.Classes != nil {
		_, all = f.Classes.Range()
	}
	for i, l := range tensor.Data[int64](y) {
		if (l < 0 || l >= int64(all)) && (f.Ignore == nil || l != *f.Ignore) {
			op.Fail([]tensor.Tensor{x, w, y}, "label %d is %d, of %d classes", i, l, all)
		}
	}
}

// Name returns "linear_cross_entropy".
func (*LinearCrossEntropy) Name() string { return "linear_cross_entropy" }

// Types is replaced by what Loss sets: the types of a loss of the logits.
func (f *LinearCrossEntropy) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return in[:1], nil
}

// Forward keeps the inputs, and leaves the loss to Compute or Backward.
func (f *LinearCrossEntropy) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	for _, x := range in {
		c.Save(x)
	}
	ints := c.Ints(4) // f may be another one in Backward
	ints[0], ints[1], ints[2] = noLabel, int(math.Float64bits(f.Smoothing)), int(math.Float64bits(f.count(c.Tape(), in[0], in[2])))
	ints[3] = int(math.Float64bits(f.SoftCap))
	if f.Ignore != nil {
		ints[0] = int(*f.Ignore)
	}
	return c.New(statType(in[0].DType()))
}

// count returns the divisor of the sum of losses. Loss calls it, because nothing is refused in Forward.
func (f *LinearCrossEntropy) count(t *tensor.Tape, x, y tensor.Tensor) float64 {
	if f.Count != 0 {
		return f.Count
	}
	all := t.GlobalCount(OpCrossEntropy, x, y)
	if f.Ignore == nil {
		return float64(all)
	}
	if all > y.Len() || !y.Device().Host() || f.Classes != nil {
		OpCrossEntropy.Fail([]tensor.Tensor{y},
			"labels may be ignored, and the batch is shared between ranks, or not in host memory: give Count, and 1 if none counts")
	}
	counted := 0
	for _, l := range tensor.Data[int64](y) {
		if l != *f.Ignore {
			counted++
		}
	}
	return float64(counted)
}

// Compute computes the loss alone.
func (f *LinearCrossEntropy) Compute(c *tensor.Ctx, y tensor.Tensor) {
	l := f.rows(c)
	l.lse = c.New(y.DType(), l.n)
	for l.next() {
		l.forward()
	}
	l.finish(y)
	c.Save(l.lse)
}

// Backward computes the gradients, and the loss, if nobody has read it.
func (f *LinearCrossEntropy) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	if g.IsZero() {
		return
	}
	l, y := f.rows(c), c.Result()
	if y.IsZero() {
		l.lse = c.Saved(3)
	} else {
		l.lse = c.New(y.DType(), l.n)
	}
	l.g = g.Scale(1 / l.count)
	if l.softCap != 0 {
		l.tanhMemory = l.t.NewLike(l.memory)
	}
	var dx, dw tensor.Tensor
	var beta float64
	if c.Need(0) {
		dx = c.New(l.x.DType(), l.n, l.x.Dim(1))
		grads[0] = withLast(dx, c.Saved(0), l.x.Dim(1))
	}
	if c.Need(1) {
		if dw, beta = c.GradTarget(1); l.n == 0 && beta == 0 {
			c.Tape().Args(tensor.OpFill, dw.DType()).Out(dw)
			c.Tape().Launch()
		}
	}
	for l.next() {
		l.multiply()
		if !y.IsZero() {
			l.losses()
		}
		l.gradient()
		if c.Need(0) {
			c.Tape().MatMulTo(dx.Slice(0, l.lo, l.hi), l.logits, l.w, false, false, 0)
		}
		if c.Need(1) {
			c.Tape().MatMulTo(dw, l.logits, l.part(l.x), true, false, beta)
			beta = 1
		}
	}
	if c.Need(1) {
		c.GradDone(1, dw)
	}
	if !y.IsZero() {
		l.finish(y)
	}
}

// linearRows computes with some rows at a time.
type linearRows struct {
	t              *tensor.Tape
	classes        Classes
	x, w, y        tensor.Tensor // [n, in], [classes, in], [n]
	n, lo, hi      int           // rows lo to hi of n
	memory, logits tensor.Tensor // of these rows
	tanhMemory     tensor.Tensor // of the logits that are capped, for Backward
	loss, lse      tensor.Tensor // of all rows
	g              tensor.Tensor // the gradient of a row's loss
	ignore         int
	smoothing      float64
	softCap        float64
	count          float64
	// Where ranks divide the classes, for all rows: the label among the classes of this rank, or −1, and 1 or 0 for whether it counts.
	own, counts tensor.Tensor
}

func (f *LinearCrossEntropy) rows(c *tensor.Ctx) linearRows {
	t, x, w, ints := c.Tape(), matrix(c.Saved(0)), c.Saved(1), c.Ints(4)
	n := x.Dim(0)
	l := linearRows{t: t, classes: f.Classes, x: x, w: w, y: c.Saved(2).Reshape(n), n: n, ignore: ints[0],
		smoothing: math.Float64frombits(uint64(ints[1])), count: math.Float64frombits(uint64(ints[2])),
		softCap: math.Float64frombits(uint64(ints[3]))}
	l.memory = c.New(x.DType(), l.partRows(), w.Dim(0))
	l.loss = c.New(statType(x.DType()), n)
	if f.Classes != nil {
		number := func(v int) tensor.Tensor { return Arange(t, tensor.Int64, float64(v), float64(v)+1, 1) }
		first, _ := f.Classes.Range()
		ignore := l.ignore
		if ignore == noLabel {
			ignore = -1
		}
		counts, at := l.y.Ne(number(ignore)), l.y.Sub(number(first))
		mine := And(And(counts, at.Ge(number(0))), at.Lt(number(w.Dim(0))))
		l.own, l.counts = Where(mine, at, number(-1)), counts.Cast(l.loss.DType())
	}
	return l
}

// partRows returns how many rows are computed at a time. Those whose logits are capped take twice as much memory.
func (l *linearRows) partRows() int {
	rows := max((l.n+linearParts-1)/linearParts, fewestPartRows)
	if l.softCap != 0 {
		rows = (rows + 1) / 2
	}
	return min(l.n, rows)
}

// next goes to the next rows.
func (l *linearRows) next() bool {
	l.lo, l.hi = l.hi, min(l.hi+l.partRows(), l.n)
	if l.lo < l.hi {
		l.logits = l.memory.Slice(0, 0, l.hi-l.lo)
	}
	return l.lo < l.hi
}

// part returns these rows of x.
func (l *linearRows) part(x tensor.Tensor) tensor.Tensor { return x.Slice(0, l.lo, l.hi) }

func (l *linearRows) forward() {
	l.multiply()
	l.losses()
}

// multiply computes the logits of the rows.
func (l *linearRows) multiply() {
	l.t.MatMulTo(l.logits, l.part(l.x), l.w, false, true, 0)
	if l.softCap == 0 {
		return
	}
	tanh := l.tanh()
	l.affine(tanh, l.logits, 1/l.softCap)
	l.args(tensor.OpTanh, tanh).In(tanh)
	l.t.Launch()
	l.affine(l.logits, tanh, l.softCap)
}

// tanh is memory for the hyperbolic tangents of the rows: what Backward needs of the cap.
func (l *linearRows) tanh() tensor.Tensor {
	if l.tanhMemory.IsZero() {
		return l.logits
	}
	return l.tanhMemory.Slice(0, 0, l.hi-l.lo)
}

func (l *linearRows) affine(out, in tensor.Tensor, a float64) {
	l.args(tensor.OpAffine, out).In(in).F[0] = a
	l.t.Launch()
}

// args begins a launch of op on the logits, with an output.
func (l *linearRows) args(op tensor.Op, out tensor.Tensor) *tensor.Args {
	a := l.t.Args(op, l.logits.DType()).Out(out)
	a.Dim[0], a.Dim[1] = l.hi-l.lo, l.w.Dim(0)
	return a
}

// losses computes the losses of the rows, and the logarithms of their sums of exponentials.
func (l *linearRows) losses() {
	loss, lse, y, ignore := l.part(l.loss), l.part(l.lse), l.part(l.y), l.ignore
	if l.classes != nil {
		y, ignore = l.part(l.own), -1
	}
	a := l.args(OpCrossEntropy, loss).Out(lse).In(l.logits).In(y)
	a.F[0], a.I[0] = l.smoothing, ignore
	l.t.Launch()
	if l.classes == nil {
		return
	}
	all, logit := l.classes.Join(l.t, lse, Where(l.mine(), lse.Sub(loss), l.t.Zeros(loss.DType(), 1)))
	tensor.Copy(lse, all)
	tensor.Copy(loss, all.Sub(logit).Mul(l.part(l.counts)))
}

// mine says which labels of the rows are among this rank's classes.
func (l *linearRows) mine() tensor.Tensor { return l.part(l.own).Ge(l.t.Zeros(tensor.Int64, 1)) }

// gradient replaces the logits of the rows by the gradient of what the product has computed.
func (l *linearRows) gradient() {
	if l.classes == nil {
		l.wholeGradient()
	} else {
		l.partGradient()
	}
	if l.softCap != 0 {
		l.args(tensor.OpTanhGrad, l.logits).In(l.logits).In(l.tanh())
		l.t.Launch()
	}
}

func (l *linearRows) wholeGradient() {
	a := l.args(OpCrossEntropyGrad, l.logits).In(l.logits).In(l.part(l.lse)).In(l.part(l.y)).In(l.g)
	a.F[0], a.I[0] = l.smoothing, l.ignore
	l.t.Launch()
}

// partGradient is wholeGradient where ranks divide the classes.
func (l *linearRows) partGradient() {
	g := l.part(l.counts).Mul(l.g).Cast(l.logits.DType())
	l.args(OpLogSumExpGrad, l.logits).In(l.logits).In(l.part(l.lse)).In(g)
	l.t.Launch()
	mine := l.mine()
	one, at := mine.Cast(g.DType()).Mul(g).Neg(), mine.Cast(tensor.Int64).Mul(l.part(l.own))
	a := l.args(OpScatterAdd, l.logits).In(one).In(at)
	a.Dim[2], a.Dim[3] = 1, 1
	l.t.Launch()
}

// finish writes the loss.
func (l *linearRows) finish(y tensor.Tensor) { tensor.Copy(y, l.loss.Sum().Scale(1/l.count)) }

package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The operations of CrossEntropy, and of its gradient. OpCrossEntropyBoth is optional: it computes both in one pass over the logits.
// OpCrossEntropyRows has a loss for each label.
var OpCrossEntropy, OpCrossEntropyGrad, OpCrossEntropyBoth, OpCrossEntropyRows tensor.Op

func init() {
	spec := tensor.OpSpec{Name: "cross_entropy", Saves: 3, VJP: crossEntropyVJP, Rows: tensor.RowsByCaller}
	spec.Compute = func(t *tensor.Tape, n *tensor.Node) { computeLoss(t, n, tensor.Tensor{}) }
	OpCrossEntropy = registerAll(spec, cpu.ByRows("ssxs", crossEntropyPart[float32], crossEntropyPart[float64]))
	OpCrossEntropyGrad = registerAll(tensor.OpSpec{Name: "cross_entropy_grad", Const: true},
		cpu.ByRows("oxsss", crossEntropyGradPart[float32], crossEntropyGradPart[float64]))
	OpCrossEntropyBoth = register(tensor.OpSpec{Name: "cross_entropy_both", Const: true, Optional: true}, nil, nil)
	OpCrossEntropyRows = register(tensor.OpSpec{Name: "cross_entropy_rows", Saves: 3, VJP: crossEntropyRowsVJP, Rows: tensor.RowsByCaller},
		nil, nil)
}

// CrossEntropyOptions are the options of CrossEntropy. The zero value is PyTorch's default, except that no label is ignored.
type CrossEntropyOptions struct {
	// Weights, if not none, has a weight for each class. Then the mean divides by the sum of the labels' weights, as in PyTorch; with soft
	// targets, by the number of rows. Weights get no gradient.
	Weights tensor.Tensor
	// PerRow asks for the loss of each label or row, [...], like PyTorch's reduction "none": 0 for an ignored label. It is not divided,
	// also if the batch is part of a global one: see tensor.GlobalMean.
	PerRow bool

	Smoothing float64 // label smoothing, 0 to 1
	// Ignore, if not nil, is a label whose rows do not count (PyTorch's ignore_index).
	Ignore *int64
	// Count is the divisor of the sum of losses; 0: the number of labels of the global batch. If labels are ignored and the batch is shared
	// with other ranks, it must be given: the number of labels that count, over all ranks. With Weights it is the sum of the weights of all
	// labels.
	Count float64
}

// ignored returns the label that does not count; if there is none, a number that is never a label.
func (o *CrossEntropyOptions) ignored() int64 {
	if o.Ignore == nil {
		return -1 << 63
	}
	return *o.Ignore
}

// CrossEntropy returns the mean over labels of −log softmax(logits)[label], for logits [..., classes] and labels [...], Int64 or Int32;
// either may be flattened. Labels of the shape of logits and of a float type are soft targets: probabilities of the classes, with the loss
// −Σ q·log softmax(logits). They get gradients. On a tape whose input is part of a global batch (Rows.Total), it returns this rank's part
// of the mean: the sum over ranks is the loss. The loss of 16-bit logits is Float32. Backward writes the gradient of the logits over them
// if nobody else reads them (see Tape.Keep).
func CrossEntropy(logits, labels tensor.Tensor, o CrossEntropyOptions) tensor.Tensor {
	if !(o.Smoothing >= 0 && o.Smoothing <= 1) {
		OpCrossEntropy.Fail(nil, "label smoothing %v is not in [0,1]", o.Smoothing)
	}
	t := OpCrossEntropy.Tape(logits)
	t.NoteNumber("Smoothing of CrossEntropy", logits, 0, o.Smoothing)
	if o.PerRow || !o.Weights.IsZero() || labels.DType().IsFloat() {
		return generalCrossEntropy(t, logits, labels, o)
	}
	t.CheckTarget(OpCrossEntropy.String(), logits, labels)
	if o.Count != 0 {
		t.Agree(o.Count)
	}
	x, y := t.Packed(logits), t.Integers(labels)
	mustFitLabels(x, y)
	ignore, st := o.ignored(), statType(x.DType())
	count, known := countLabels(t, x, y, &o)
	out, lse, rows := t.New(st), t.New(st, y.Len()), t.New(st, y.Len())
	n := t.Record(OpCrossEntropy, out, x, y)
	t.LossTypes(OpCrossEntropy, out, x, y)
	if n != nil {
		n.F[0], n.F[1], n.I[0] = count, o.Smoothing, int(ignore)
		if known.IsZero() && t.Has(OpCrossEntropyBoth, x.DType()) {
			t.Save(n, lse, rows)
			n.I[1] = 1
			t.Later(n)
			return out
		}
		t.Save(n, lse, known)
	}
	crossEntropy(t, rows, lse, tensor.Tensor{}, x, y, o.Smoothing, ignore, 1)
	mean(t, out, rows, count)
	if !known.IsZero() {
		scale(t, out, known)
	}
	if n == nil {
		t.Release(lse, known)
	}
	return out
}

// crossEntropy launches the losses of rows. If grad is not none, they are divided by count, and grad gets the gradient of their sum.
func crossEntropy(t *tensor.Tape, loss, lse, grad, x, y tensor.Tensor, smoothing float64, ignore int64, count float64) {
	if y.Len() == 0 {
		return
	}
	op := OpCrossEntropy
	if !grad.IsZero() {
		op = OpCrossEntropyBoth
	}
	a := t.Args(op, x.DType()).Out(loss).Out(lse)
	if !grad.IsZero() {
		a.Out(grad).F[1] = 1 / count
	}
	a.In(x).In(y)
	a.Dim[0], a.Dim[1] = y.Len(), x.Dim(-1)
	a.F[0], a.I[0] = smoothing, int(ignore)
	t.Launch()
}

// countLabels returns the number of labels that count, or 1 and 1 / their number if only the device knows it. It checks labels in host
// memory; for others, see tensor.Kernel.
func countLabels(t *tensor.Tape, x, y tensor.Tensor, o *CrossEntropyOptions) (count float64, known tensor.Tensor) {
	counted := checkLabels(t, x, y, o.ignored())
	switch {
	case o.Count != 0:
		return o.Count, tensor.Tensor{}
	case o.Ignore == nil:
		return float64(t.GlobalCount(OpCrossEntropy, x, y)), tensor.Tensor{}
	case t.SharesBatch():
		OpCrossEntropy.Fail([]tensor.Tensor{x, y},
			"labels may be ignored and the batch is shared between ranks: give Count, and 1 if none counts")
	case t.Device().Host():
		return float64(counted), tensor.Tensor{}
	}
	st := statType(x.DType())
	v, counts, each, n := t.New(tensor.Int64), t.New(tensor.Bool, y.Len()), t.New(st, y.Len()), t.New(st)
	fill(t, v, float64(*o.Ignore))
	binary(t, tensor.OpNe, counts, y, v)
	unary(t, tensor.OpCast, each, counts)
	mean(t, n, each, 1)
	unary(t, tensor.OpRecip, n, n)
	t.Release(v, counts)
	return 1, n
}

func fill(t *tensor.Tape, x tensor.Tensor, v float64) {
	t.Args(tensor.OpFill, x.DType()).Out(x).F[0] = v
	t.Launch()
}

// mustFitLabels fails unless there is a label for each row of x. Either may be flattened. Labels with the dimensions of x in another order
// ([time, batch] for [batch, time]) are an error.
func mustFitLabels(x, y tensor.Tensor) {
	in := []tensor.Tensor{x, y}
	switch {
	case x.NDim() == 0:
		OpCrossEntropy.Fail(in, "wants logits [..., classes]")
	case y.DType() != tensor.Int64:
		OpCrossEntropy.Fail(in, "labels must be int64 or int32, or probabilities of the logits' shape")
	case y.NDim() == x.NDim()-1:
		for i := range y.NDim() {
			mustMatch(OpCrossEntropy, x, i, "the logits", y, i, "the labels", in...)
		}
	case y.Len() != rowCount(x):
		OpCrossEntropy.Fail(in, "%d rows of logits, %d labels", rowCount(x), y.Len())
	}
}

// checkLabels returns the number of labels that are not ignore, if they are in host memory.
func checkLabels(t *tensor.Tape, x, y tensor.Tensor, ignore int64) int {
	if !t.Device().Host() {
		return y.Len()
	}
	counted, classes := 0, x.Dim(-1)
	for i, l := range tensor.Data[int64](y) {
		if l == ignore {
			continue
		}
		if l < 0 || l >= int64(classes) {
			hint := ""
			if x.Types().On(tensor.Cut) != 0 {
				hint = "; ranks have parts of the logits: if these are the classes, as behind Columns, the loss is tp.CrossEntropy"
			}
			OpCrossEntropy.Fail([]tensor.Tensor{x, y}, "label %d is %d, of %d classes%s", i, l, classes, hint)
		}
		counted++
	}
	return counted
}

// computeLoss computes the loss of n, which was put off. If grad is not none, it becomes the gradient of the logits where that of the loss
// is 1.
func computeLoss(t *tensor.Tape, n *tensor.Node, grad tensor.Tensor) {
	lse, rows, count, out := n.Saved(0), n.Saved(1), n.F[0], t.Now(n)
	t.Save(n, lse, tensor.Tensor{})
	n.I[1] = 0
	crossEntropy(t, rows, lse, grad, n.In(0), n.In(1), n.F[1], int64(n.I[0]), count)
	if !grad.IsZero() {
		count = 1 // the kernel divided
	}
	if out.IsZero() {
		t.Release(rows)
		return
	}
	mean(t, out, rows, count)
	t.Release(out)
}

func crossEntropyVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	if n.I[1] != 0 { // not computed yet
		if t.IsLoss(n) {
			d, over := t.GradOver(n, 0)
			computeLoss(t, n, d)
			t.AddGradOver(n, 0, d, over)
			return
		}
		computeLoss(t, n, tensor.Tensor{})
	}
	d, over := t.GradOver(n, 0)
	if d.Len() > 0 {
		g := upstream(t, n)
		if known := n.Saved(1); !known.IsZero() {
			scale(t, g, known)
		}
		crossEntropyGrad(t, d, n, g)
	}
	t.AddGradOver(n, 0, d, over)
}

// crossEntropyGrad launches d = the gradient of the logits of n. g has one element, or one for each row.
func crossEntropyGrad(t *tensor.Tape, d tensor.Tensor, n *tensor.Node, g tensor.Tensor) {
	x := n.In(0)
	a := t.Args(OpCrossEntropyGrad, x.DType()).Out(d).In(x).In(n.Saved(0)).In(n.In(1)).In(g)
	a.Dim[0], a.Dim[1] = rowCount(x), x.Dim(-1)
	a.F[0], a.I[0] = n.F[1], n.I[0]
	t.Launch()
}

func crossEntropyPart[T float](_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
	kernel.CrossEntropy(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[T](a, 2), tensor.Operand[int64](a, 3), a.Dim[1], lo,
		hi, a.F[0], int64(a.I[0]))
}

func crossEntropyGradPart[T float](_ *cpu.Queue, a *tensor.Args, lo, hi, _ int) {
	kernel.CrossEntropyGrad(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[T](a, 2), tensor.Operand[int64](a, 3),
		tensor.Operand[T](a, 4), a.Dim[1], lo, hi, a.F[0], int64(a.I[0]))
}

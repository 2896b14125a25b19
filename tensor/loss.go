package tensor

// meanLoss returns Σ rows / count, of one element, and records nothing. The caller must not use rows after it. A loss of 16-bit floats is
// Float32, like the rows.
func (t *Tape) meanLoss(rows *header, count float64) *header {
	sum := t.newTensor(rows.dtype)
	t.meanTo(sum, rows, count)
	return sum
}

// meanTo is meanLoss with the memory of the result.
func (t *Tape) meanTo(sum, rows *header, count float64) {
	t.reduce(OpSum, sum, nil, rows, 0, int(rows.ndim))
	if count != 1 {
		t.affine(sum, sum, 1/count, 0)
	}
	t.release(rows)
}

// upstream returns the loss's gradient divided by count, of one element.
func (t *Tape) upstream(n *Node) *header {
	g := t.newTensor(n.out.dtype)
	t.cast(g, n.out.grad)
	t.affine(g, g, 1/n.F[0], 0)
	return g
}

// CrossEntropyOptions are the options of CrossEntropy. The zero value is PyTorch's default, except that no label is ignored.
type CrossEntropyOptions struct {
	// Weights, if not none, has a weight for each class. Then the mean divides by the sum of the labels' weights, as in PyTorch; with soft
	// targets, by the number of rows. Weights get no gradient.
	Weights Tensor
	// PerRow asks for the loss of each label or row, [...], like PyTorch's reduction "none": 0 for an ignored label. It is not divided,
	// also if the batch is part of a global one: see GlobalMean.
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
func CrossEntropy(logits, labels Tensor, o CrossEntropyOptions) Tensor {
	if !(o.Smoothing >= 0 && o.Smoothing <= 1) {
		fail("cross_entropy", nil, "label smoothing %v is not in [0,1]", o.Smoothing)
	}
	t := tapeOf("cross_entropy", logits)
	t.NoteNumber("Smoothing of CrossEntropy", logits, 0, o.Smoothing)
	if o.PerRow || !o.Weights.IsZero() || labels.DType().IsFloat() {
		return generalCrossEntropy(logits, labels, o)
	}
	t.checkTarget("cross_entropy", logits, labels)
	if o.Count != 0 {
		t.Agree(o.Count)
	}
	x, y := t.contiguous(t.arg(logits)), t.integers(labels)
	mustFitLabels(x, y)
	cols, ignore, count := x.dims[x.ndim-1], o.ignored(), o.Count
	counted, st := t.checkLabels(x, y, cols, ignore), statType(x.dtype)
	var known *header // 1 / number of labels that count, if only the device knows it
	switch {
	case count != 0:
	case o.Ignore == nil:
		count = float64(t.globalCount("cross_entropy", y, x))
	case t.rows.Total > t.rows.N || t.rows.Seq.Total > t.rows.Positions:
		fail("cross_entropy", these(x, y), "labels may be ignored and the batch is shared between ranks: give Count, and 1 if none counts")
	case t.dev.Host():
		count = float64(counted)
	default:
		count, known = 1, t.countLabels(y, ignore, st)
	}
	out, lse, rows := t.newTensor(st), t.newTensor(st, y.n), t.newTensor(st, y.n)
	n := t.rec(OpCrossEntropy, out, x, y)
	t.compared("cross_entropy", out, x, y, true)
	t.lossType(out, x)
	if n != nil {
		n.aux[0], n.aux[1] = lse, known
		n.F[0], n.F[1], n.I[0] = count, o.Smoothing, int(ignore)
		if known == nil && t.table[OpCrossEntropyBoth][x.dtype] != nil {
			t.computeLater(n, rows)
			return out.tensor()
		}
	}
	t.crossEntropy(rows, lse, nil, x, y, o.Smoothing, ignore, 1)
	t.meanTo(out, rows, count)
	if known != nil {
		t.binary(OpMul, out, out, known)
	}
	if n == nil {
		t.keepStats(n, lse)
		if known != nil {
			t.release(known)
		}
	}
	return out.tensor()
}

// crossEntropy launches the losses of rows. If grad is not nil, they are divided by count, and grad gets the gradient of their sum.
func (t *Tape) crossEntropy(loss, lse, grad, x, y *header, smoothing float64, ignore int64, count float64) {
	if y.n == 0 {
		return
	}
	cols := x.dims[x.ndim-1]
	var a *Args
	if grad != nil {
		a = t.Args(OpCrossEntropyBoth, x.dtype)
		a.out(loss).out(lse).out(grad).in(x).in(y)
		a.Dim[0], a.Dim[1], a.F[1] = y.n, cols, 1/count
	} else {
		a = t.byRow(OpCrossEntropy, cols, x.dtype, []*header{loss, lse}, []*header{x, y})
	}
	a.F[0], a.I[0] = smoothing, int(ignore)
	t.Launch()
}

// countLabels returns 1 / the number of labels that are not ignore, as one element.
func (t *Tape) countLabels(y *header, ignore int64, d DType) *header {
	dims := y.dims[:y.ndim]
	v, counts, each, n := t.newTensor(Int64), t.newTensor(Bool, dims...), t.newTensor(d, dims...), t.newTensor(d)
	t.fill(v, float64(ignore))
	t.binary(OpNe, counts, y, v)
	t.cast(each, counts)
	t.reduce(OpSum, n, nil, each, 0, int(y.ndim))
	t.unary(OpRecip, n, n)
	t.release(v)
	t.release(counts)
	t.release(each)
	return n
}

// mustFitLabels fails unless there is a label for each row of x. Either may be flattened. Labels with the dimensions of x in another order
// ([time, batch] for [batch, time]) are an error.
func mustFitLabels(x, y *header) {
	const op = "cross_entropy"
	switch {
	case x.ndim == 0:
		fail(op, these(x, y), "wants logits [..., classes]")
	case y.dtype != Int64:
		fail(op, these(x, y), "labels must be int64 or int32, or probabilities of the logits' shape")
	case y.ndim == x.ndim-1:
		for i := range int(y.ndim) {
			mustMatch(op, x, i, "the logits", y, i, "the labels", x, y)
		}
	case y.n != x.rowCount():
		fail(op, these(x, y), "%d rows of logits, %d labels", x.rowCount(), y.n)
	}
}

// checkLabels returns the number of labels that count. Labels in device memory are not checked here: see Kernel.
func (t *Tape) checkLabels(x, y *header, cols int, ignore int64) int {
	if !t.dev.Host() {
		return y.n
	}
	counted := 0
	for i, l := range Data[int64](y.tensor()) {
		if l == ignore {
			continue
		}
		if l < 0 || l >= int64(cols) {
			fail("cross_entropy", these(x, y), "label %d is %d, of %d classes", i, l, cols)
		}
		counted++
	}
	return counted
}

func crossEntropyVJP(t *Tape, n *Node, _ uint8) {
	x, known := n.in[0], n.aux[1]
	if n.I[1] != 0 { // not computed yet: see computeLater
		known = nil
		if n.out == t.root && t.scale == 1 {
			d, over := t.gradOver(x)
			t.computeLoss(n, d)
			t.addGradOver(x, d, over)
			return
		}
		t.computeLoss(n, nil)
	}
	d, over := t.gradOver(x)
	if x.n > 0 {
		g := t.upstream(n)
		if known != nil {
			t.binary(OpMul, g, g, known)
		}
		t.crossEntropyGrad(d, n, g)
		t.release(g)
	}
	t.addGradOver(x, d, over)
}

// crossEntropyGrad launches d = the gradient of the logits of n. g has one element, or one for each row.
func (t *Tape) crossEntropyGrad(d *header, n *Node, g *header) {
	x := n.in[0]
	a := t.byRow(OpCrossEntropyGrad, x.dims[x.ndim-1], x.dtype, []*header{d}, []*header{x, n.aux[0], n.in[1], g})
	a.F[0], a.I[0] = n.F[1], n.I[0]
	t.Launch()
}

func pointLoss(op Op, x, y Tensor) Tensor {
	t := tapeOf(op.String(), x, y)
	t.checkTarget(op.String(), x, y)
	a, b := t.contiguous(t.arg(x)), t.contiguous(t.arg(y))
	t.sameDType(op.String(), a, b)
	mustBeAlike(op.String(), a, "the input", b, "the target", a, b)
	each := t.newTensor(statType(a.dtype), a.dims[:a.ndim]...)
	t.unary(op, each, a, b)
	count := float64(t.globalCount(op.String(), b, a))
	out := t.meanLoss(each, count)
	n := t.rec(op, out, a, b)
	t.compared(op.String(), out, a, b, false)
	t.lossType(out, a)
	if n != nil {
		n.F[0] = count
	}
	return out.tensor()
}

// MSE returns the mean of (x−y)², of this rank's part of the global batch (see CrossEntropy), in Float32 for 16-bit x.
func MSE(x, y Tensor) Tensor { return pointLoss(OpMSE, x, y) }

// BCEWithLogits returns the mean binary cross-entropy of logits x and targets y in [0,1], of this rank's part of the
// global batch (see CrossEntropy).
func BCEWithLogits(x, y Tensor) Tensor { return pointLoss(OpBCE, x, y) }

func pointLossGrad(t *Tape, n *Node, op Op, x, y *header) *header {
	d := t.newLike(x)
	if x.n > 0 {
		g := t.upstream(n)
		t.unary(op, d, x, y, g)
		t.release(g)
	}
	return d
}

func mseVJP(t *Tape, n *Node, need uint8) {
	for i := range 2 {
		if need&(1<<i) != 0 {
			t.addGrad(n.in[i], pointLossGrad(t, n, OpMSEGrad, n.in[i], n.in[1-i]))
		}
	}
}

func bceVJP(t *Tape, n *Node, need uint8) {
	if need&1 != 0 {
		t.addGrad(n.in[0], pointLossGrad(t, n, OpBCEGrad, n.in[0], n.in[1]))
	}
	if need&2 != 0 { // the gradient of −y·x + … for y is −x
		x, g := n.in[0], t.upstream(n)
		d := t.newTensor(g.dtype, x.dims[:x.ndim]...) // the type of the loss; for 16-bit logits this is Float32
		t.cast(d, x)
		t.binary(OpMul, d, d, g)
		t.affine(d, d, -1, 0)
		t.release(g)
		y := t.newLike(n.in[1])
		t.cast(y, d)
		t.release(d)
		t.addGrad(n.in[1], y)
	}
}

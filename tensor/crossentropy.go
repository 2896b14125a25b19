package tensor

func init() {
	define(OpCrossEntropyRows, OpSpec{Name: "cross_entropy_rows", Saves: 3, VJP: crossEntropyRowsVJP})
}

// generalCrossEntropy is CrossEntropy with soft targets, class weights or a loss for each row.
func generalCrossEntropy(logits, targets Tensor, o CrossEntropyOptions) Tensor {
	t := tapeOf("cross_entropy", logits)
	t.checkTarget("cross_entropy", logits, targets)
	mustBeWhole("cross_entropy", t.arg(logits))
	x, y := t.contiguous(t.arg(logits)), t.integers(targets)
	if y.tape == nil {
		y = t.alias(y)
	}
	soft := y.dtype.IsFloat()
	if soft {
		if y.at.Of == 0 { // targets belong to the rows, also if they do not say so
			y.ty, y.at = y.ty.With(x.ty.On(Varying), Varying), x.at
		}
		mustShape("cross_entropy", x.ndim > 0, "wants logits [..., classes]", x, y)
		mustBeAlike("cross_entropy", x, "the logits", y, "the soft targets", x, y)
	} else if mustFitLabels(x, y); y.at.Of == 0 && x.at.Of != 0 && y.ndim == x.ndim-1 {
		y = t.alias(y)
		y.ty = y.ty.With(x.ty.On(Varying), Varying)
		y.at, _, _, _ = x.at.Reduce(1<<y.ndim, int(x.ndim))
	}
	if o.PerRow && o.Count != 0 || soft && o.Ignore != nil {
		fail("cross_entropy", these(x, y), "Count has no meaning with PerRow, Ignore none with soft targets")
	}
	var w Tensor
	if !o.Weights.IsZero() {
		h := t.arg(o.Weights)
		mustShape("cross_entropy", h.ndim == 1, "wants weights [classes]", x, y, h)
		mustMatch("cross_entropy", x, int(x.ndim)-1, "the logits", h, 0, "the weights", x, y, h)
		w = t.alias(h).tensor().Cast(statType(x.dtype))
	}
	if soft {
		return t.reduceRows(softRows(x.tensor(), y.tensor(), w, o.Smoothing), Tensor{}, o)
	}
	rows, weight := t.hardRows(x, y, w, o)
	return t.reduceRows(rows, weight, o)
}

// reduceRows returns the losses of rows, or their sum divided by Count, by the sum of their weights, or by their number.
func (t *Tape) reduceRows(rows, weight Tensor, o CrossEntropyOptions) Tensor {
	switch {
	case o.PerRow:
		return rows
	case o.Count != 0:
		t.Agree(o.Count)
		return rows.Sum().Scale(1 / o.Count)
	case weight.IsZero():
		return GlobalMean(rows)
	case t.rows.Total > t.rows.N || t.rows.Seq.Total > t.rows.Positions:
		fail("cross_entropy", these(rows.h),
			"classes have weights and the batch is shared between ranks: give Count, the sum of all labels' weights, and 1 if that is 0")
	}
	return rows.Sum().Div(weight.Sum())
}

// softRows returns −Σ w·q·log softmax(x) of each row, for probabilities q, which are smoothed first.
func softRows(x, q, w Tensor, smoothing float64) Tensor {
	st, classes := statType(x.DType()), x.Dim(-1)
	q = q.Cast(st)
	if smoothing != 0 {
		q = q.Affine(1-smoothing, smoothing/float64(max(classes, 1)))
	}
	if !w.IsZero() {
		q = q.Mul(w)
	}
	return x.Cast(st).LogSoftmax().Mul(q).Sum(-1).Neg()
}

// hardRows returns the losses of labels y, each multiplied by the weight of its class, and these weights.
func (t *Tape) hardRows(x, y *header, w Tensor, o CrossEntropyOptions) (rows, weight Tensor) {
	ignore, classes := o.ignored(), x.dims[x.ndim-1]
	t.checkLabels(x, y, classes, ignore)
	if w.IsZero() {
		return t.crossEntropyRows(x, y, o.Smoothing, ignore), Tensor{}
	}
	labels, kept := y.tensor(), Tensor{}
	if o.Ignore != nil { // use label 0 instead, with weight 0
		v, zero := t.newTensor(Int64), t.newTensor(Int64)
		t.fill(v, float64(ignore))
		t.fill(zero, 0)
		mask := labels.Ne(v.tensor())
		kept, labels = mask.Cast(w.DType()), Where(mask, labels, zero.tensor())
	}
	weight = Embedding(w.Reshape(classes, 1), labels).Reshape(y.dims[:y.ndim]...)
	if !kept.IsZero() {
		weight = weight.Mul(kept)
	}
	if o.Smoothing == 0 {
		return t.crossEntropyRows(x, y, 0, ignore).Mul(weight), weight
	}
	rows = softRows(x.tensor().Reshape(y.n, classes), OneHot(labels.Reshape(y.n), classes, w.DType()), w,
		o.Smoothing).Reshape(y.dims[:y.ndim]...)
	if !kept.IsZero() {
		rows = rows.Mul(kept)
	}
	return rows, weight
}

// crossEntropyRows returns the loss of each label.
func (t *Tape) crossEntropyRows(x, y *header, smoothing float64, ignore int64) Tensor {
	st := statType(x.dtype)
	loss, lse := t.newTensor(st, y.dims[:y.ndim]...), t.newTensor(st, y.n)
	t.crossEntropy(loss, lse, nil, x, y, smoothing, ignore, 1)
	n := t.rec(OpCrossEntropyRows, loss, x, y)
	if t.typing() {
		t.compared("cross_entropy", loss, x, y, true)
		t.notAlong("cross_entropy", loss, x, int(x.ndim)-1, true)
		if lead := *x; lead.ndim-1 != y.ndim {
			lead.ndim, lead.at = lead.ndim-1, loss.at
			t.reshaped(loss, &lead, -1)
		}
	}
	t.keepStats(n, lse)
	if n != nil {
		n.F[1], n.I[0] = smoothing, int(ignore)
	}
	return loss.tensor()
}

func crossEntropyRowsVJP(t *Tape, n *Node, _ uint8) {
	x := n.in[0]
	d, over := t.gradOver(x)
	if x.n > 0 {
		t.crossEntropyGrad(d, n, t.contiguous(n.out.grad))
	}
	t.addGradOver(x, d, over)
}

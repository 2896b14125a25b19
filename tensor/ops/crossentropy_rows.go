package ops

import "github.com/ringo-ml/ringo/tensor"

// generalCrossEntropy is CrossEntropy with soft targets, class weights or a loss for each row.
func generalCrossEntropy(t *tensor.Tape, logits, targets tensor.Tensor, o CrossEntropyOptions) tensor.Tensor {
	t.CheckTarget(OpCrossEntropy.String(), logits, targets)
	t.MustBeWhole(OpCrossEntropy, logits)
	x, y := t.Packed(logits), t.Integers(targets)
	in, soft := []tensor.Tensor{x, y}, y.DType().IsFloat()
	if soft {
		if x.NDim() == 0 {
			OpCrossEntropy.Fail(in, "wants logits [..., classes]")
		}
		mustBeAlike(OpCrossEntropy, x, "the logits", y, "the soft targets", x, y)
	} else {
		mustFitLabels(x, y)
	}
	y = t.TargetsOf(x, y)
	if o.PerRow && o.Count != 0 || soft && o.Ignore != nil {
		OpCrossEntropy.Fail(in, "Count has no meaning with PerRow, Ignore none with soft targets")
	}
	var w tensor.Tensor
	if !o.Weights.IsZero() {
		in := []tensor.Tensor{x, y, o.Weights}
		if o.Weights.NDim() != 1 {
			OpCrossEntropy.Fail(in, "wants weights [classes]")
		}
		mustMatch(OpCrossEntropy, x, x.NDim()-1, "the logits", o.Weights, 0, "the weights", in...)
		w = t.Input(o.Weights).Detach().Cast(statType(x.DType()))
	}
	if soft {
		return reduceRows(t, softRows(x, y, w, o.Smoothing), tensor.Tensor{}, o)
	}
	rows, weight := hardRows(t, x, y, w, o)
	return reduceRows(t, rows, weight, o)
}

// reduceRows returns the losses of rows, or their sum divided by Count, by the sum of their weights, or by their number.
func reduceRows(t *tensor.Tape, rows, weight tensor.Tensor, o CrossEntropyOptions) tensor.Tensor {
	switch {
	case o.PerRow:
		return rows
	case o.Count != 0:
		t.Agree(o.Count)
		return rows.Sum().Scale(1 / o.Count)
	case weight.IsZero():
		return tensor.GlobalMean(rows)
	case t.SharesBatch():
		OpCrossEntropy.Fail([]tensor.Tensor{rows},
			"classes have weights and the batch is shared between ranks: give Count, the sum of all labels' weights, and 1 if that is 0")
	}
	return rows.Sum().Div(weight.Sum())
}

// softRows returns −Σ w·q·log softmax(x) of each row, for probabilities q, which are smoothed first.
func softRows(x, q, w tensor.Tensor, smoothing float64) tensor.Tensor {
	st, classes := statType(x.DType()), x.Dim(-1)
	q = q.Cast(st)
	if smoothing != 0 {
		q = q.Affine(1-smoothing, smoothing/float64(max(classes, 1)))
	}
	if !w.IsZero() {
		q = q.Mul(w)
	}
	return LogSoftmax(x.Cast(st)).Mul(q).Sum(-1).Neg()
}

// hardRows returns the losses of labels y, each multiplied by the weight of its class, and these weights.
func hardRows(t *tensor.Tape, x, y, w tensor.Tensor, o CrossEntropyOptions) (rows, weight tensor.Tensor) {
	ignore, classes := o.ignored(), x.Dim(-1)
	checkLabels(t, x, y, ignore)
	if w.IsZero() {
		return crossEntropyRows(t, x, y, o.Smoothing, ignore), tensor.Tensor{}
	}
	dims, rank := dimsOf(y)
	labels, kept := y, tensor.Tensor{}
	if o.Ignore != nil { // use label 0 instead, with weight 0
		v, zero := t.New(tensor.Int64), t.New(tensor.Int64)
		fill(t, v, float64(ignore))
		fill(t, zero, 0)
		mask := labels.Ne(v)
		kept, labels = mask.Cast(w.DType()), Where(mask, labels, zero)
	}
	weight = Embedding(w.Reshape(classes, 1), labels).Reshape(dims[:rank]...)
	if !kept.IsZero() {
		weight = weight.Mul(kept)
	}
	if o.Smoothing == 0 {
		return crossEntropyRows(t, x, y, 0, ignore).Mul(weight), weight
	}
	rows = softRows(x.Reshape(y.Len(), classes), OneHot(labels.Reshape(y.Len()), classes, w.DType()), w, o.Smoothing).Reshape(dims[:rank]...)
	if !kept.IsZero() {
		rows = rows.Mul(kept)
	}
	return rows, weight
}

// crossEntropyRows returns the loss of each label.
func crossEntropyRows(t *tensor.Tape, x, y tensor.Tensor, smoothing float64, ignore int64) tensor.Tensor {
	st := statType(x.DType())
	dims, rank := dimsOf(y)
	loss, lse := t.New(st, dims[:rank]...), t.New(st, y.Len())
	crossEntropy(t, loss, lse, tensor.Tensor{}, x, y, smoothing, ignore, 1)
	n := t.Record(OpCrossEntropyRows, loss, x, y)
	t.RowLossTypes(OpCrossEntropy, loss, x, y)
	t.Save(n, lse)
	if n != nil {
		n.F[1], n.I[0] = smoothing, int(ignore)
	}
	return loss
}

func crossEntropyRowsVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	d, over := t.GradOver(n, 0)
	if d.Len() > 0 {
		crossEntropyGrad(t, d, n, t.Packed(n.Grad()))
	}
	t.AddGradOver(n, 0, d, over)
}

package nn

import (
	"math"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Losses are means over the global batch: on a tape whose input is a part of one (tensor.Rows), a loss is this rank's
// part of the mean, and the sum over ranks is what one rank would compute. A loss of your own ends with GlobalMean for the
// same reason: x.Mean() is the mean over this rank's rows, and gradients that are summed over ranks would be too large.

// CrossEntropy returns the mean over labels of −log softmax(logits)[label], for logits [..., classes] and labels [...], Int64 or
// Int32, or probabilities of labels (soft targets) of logits' shape. Options, at most one, set label smoothing, an ignored label,
// weights of classes, or ask for the loss of each row.
func CrossEntropy(logits, labels T, options ...tensor.CrossEntropyOptions) T {
	switch len(options) {
	case 0:
		return tensor.CrossEntropy(logits, labels, tensor.CrossEntropyOptions{})
	case 1:
		return tensor.CrossEntropy(logits, labels, options[0])
	}
	fail("CrossEntropy", "%d options, at most one", len(options))
	return T{}
}

var linearCrossEntropy ops.LinearCrossEntropy

// LinearCrossEntropy returns CrossEntropy(head.Forward(x), labels, options...) without making the logits, which are the largest tensor
// of a language model's step: they are computed for some rows at a time, and Backward computes gradients from them at once. Read the loss
// after Backward: if it is read before, the logits are computed twice. A head with more than a weight has logits; so has a loss of each
// row, with weights of classes, or of soft targets.
func LinearCrossEntropy(head *Linear, x, labels T, options ...tensor.CrossEntropyOptions) T {
	f := &linearCrossEntropy
	if len(options) == 1 {
		o := &options[0]
		f = &ops.LinearCrossEntropy{Smoothing: o.Smoothing, Ignore: o.Ignore, Count: o.Count}
		if o.PerRow || !o.Weights.IsZero() {
			f = nil
		}
	}
	if f == nil || len(options) > 1 || labels.DType().IsFloat() || !head.IsProduct() {
		return CrossEntropy(head.Forward(x), labels, options...)
	}
	x, w := head.Operands(x)
	return f.Loss(x, w, labels)
}

// GlobalMean returns this rank's part of the mean of x's elements over the global batch (tensor.GlobalMean): the end of a loss
// of your own. nn.MSE(x, y) is GlobalMean(x.Sub(y).Square()).
func GlobalMean(x T) T { return tensor.GlobalMean(x) }

// MSE returns the mean of (x−y)², for tensors of one shape.
func MSE(x, y T) T { return tensor.MSE(x, y) }

// BCEWithLogits returns the mean of −y·log σ(x) − (1−y)·log(1−σ(x)) for logits x and targets y in [0, 1] of one shape.
func BCEWithLogits(x, y T) T { return tensor.BCEWithLogits(x, y) }

// Hits returns how many of logits [..., classes] are largest at their label, an element of labels [...], Int64 or Int32. It reads
// the result on the host.
func Hits(logits, labels T) float64 {
	best := tensor.Data[int64](tensor.ToHost(logits.ArgMax(-1)))
	if d := labels.DType(); d != tensor.Int64 && d != tensor.Int32 {
		fail("Hits", "labels %v must be int64 or int32", labels.Shape())
	}
	want := tensor.Floats(labels)
	if len(best) != len(want) {
		fail("Hits", "logits %v do not fit labels %v", logits.Shape(), labels.Shape())
	}
	hits := 0
	for i, w := range want {
		if float64(best[i]) == w {
			hits++
		}
	}
	return float64(hits)
}

// InfoNCE returns the contrastive loss of vectors x and y [rows, d], such as those of questions and of their answers (van den Oord et al.
// 2018; sentence-transformers' MultipleNegativesRankingLoss, where scale is 20): the mean over rows of the cross-entropy of
// scale·cos(x, Y), whose label is the row's own y. Y are the y of all rows of the batch. Ranks that have other rows give an
// autograd.AllGather of their group as gather; on one rank, it is nil. A rank may have more rows than another.
func InfoNCE(x, y T, scale float64, gather tensor.Function) T {
	if x.NDim() != 2 || y.NDim() != 2 || x.Dim(0) != y.Dim(0) || x.Dim(1) != y.Dim(1) {
		fail("InfoNCE", "%v and %v are not both [rows, d]", x.Shape(), y.Shape())
	}
	t := tapeOf(x)
	rows := t.Rows()
	places := make([]int64, y.Dim(0))
	for i := range places {
		places[i] = int64(rows.First + i)
	}
	own := t.Input(tensor.FromSlice(places, len(places)).WithRows(rows))
	all := own
	x, y = Normalize(x), Normalize(y)
	if gather != nil {
		y, all = t.Apply(gather, y), t.Apply(gather, own)
	}
	scores := tensor.RowsLike(tensor.MatMul(x, y, false, true), x).Scale(scale) // on one rank, columns are rows, too
	return CrossEntropy(scores, own.Sub(all.Slice(0, 0, 1)))                    // a microbatch does not begin at row 0
}

// Normalize returns x divided by its length along the last dimension; zeros stay zeros.
func Normalize(x T) T {
	n := float64(x.Dim(-1))
	return tensor.RMSNorm(x, T{}, 1e-24/n).Scale(1 / math.Sqrt(n))
}

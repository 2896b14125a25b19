package nn

import (
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Losses are means over the global batch: on a tape whose input is a part of one (tensor.Rows), a loss is this rank's
// part of the mean, and the sum over ranks is what one rank would compute. A loss of your own ends with GlobalMean for the
// same reason: x.Mean() is the mean over this rank's rows, and gradients that are summed over ranks would be too large.

// CrossEntropy returns the mean over labels of −log softmax(logits)[label], for logits [..., classes] and labels [...], Int64 or
// Int32, or probabilities of labels (soft targets) of logits' shape. Options, at most one, set label smoothing, an ignored label,
// weights of classes, or ask for the loss of each row.
func CrossEntropy(logits, labels T, options ...ops.CrossEntropyOptions) T {
	return ops.CrossEntropy(logits, labels, only(options))
}

// only returns the options, or none.
func only(options []ops.CrossEntropyOptions) (o ops.CrossEntropyOptions) {
	if len(options) > 1 {
		fail("CrossEntropy", "%d options, at most one", len(options))
	} else if len(options) == 1 {
		o = options[0]
	}
	return o
}

var linearCrossEntropy ops.LinearCrossEntropy

// LinearCrossEntropy returns CrossEntropy(head.Forward(x), labels, options...) without making the logits, which are the largest tensor
// of a language model's step: they are computed for some rows at a time, and Backward computes gradients from them at once. Read the loss
// after Backward: if it is read before, the logits are computed twice. A head with more than a weight has logits; so has a loss of each
// row, with weights of classes, or of soft targets.
func LinearCrossEntropy(head *Linear, x, labels T, options ...ops.CrossEntropyOptions) T {
	o, f := only(options), &linearCrossEntropy
	if len(options) == 1 || head.SoftCap != 0 {
		f = &ops.LinearCrossEntropy{Smoothing: o.Smoothing, Ignore: o.Ignore, Count: o.Count, SoftCap: head.SoftCap}
	}
	if o.PerRow || !o.Weights.IsZero() || labels.DType().IsFloat() || !head.IsProduct() {
		return CrossEntropy(head.Forward(x), labels, options...)
	}
	x, w := head.Operands(x)
	return f.Loss(x, w, labels)
}

// GlobalMean returns this rank's part of the mean of x's elements over the global batch (tensor.GlobalMean): the end of a loss
// of your own. nn.MSE(x, y) is GlobalMean(x.Sub(y).Square()).
func GlobalMean(x T) T { return tensor.GlobalMean(x) }

// MSE returns the mean of (x−y)², for tensors of one shape.
func MSE(x, y T) T { return ops.MSE(x, y) }

// BCEWithLogits returns the mean of −y·log σ(x) − (1−y)·log(1−σ(x)) for logits x and targets y in [0, 1] of one shape.
func BCEWithLogits(x, y T) T { return ops.BCEWithLogits(x, y) }

// pair returns the input and the target of a loss, which have one shape, on the tape; 16-bit floats become Float32.
func pair(op string, x, y T) (T, T) {
	t := tapeOf(x)
	t.CheckTarget(op, x, y)
	y = t.TargetsOf(x, y)
	if !slices.Equal(x.Shape().Dims, y.Shape().Dims) {
		fail(op, "the input is %v, the target is %v", x.Shape(), y.Shape())
	}
	return single(x), single(y)
}

// single returns x, or as Float32 if it has 16 bits.
func single(x T) T {
	if x.DType().IsHalf() {
		return x.Cast(tensor.Float32)
	}
	return x
}

// L1 returns the mean of |x−y|, for tensors of one shape.
func L1(x, y T) T {
	x, y = pair("L1", x, y)
	return GlobalMean(x.Sub(y).Abs())
}

// Huber returns the mean of ½(x−y)² where |x−y| < delta, and of delta·(|x−y| − ½delta) elsewhere, for tensors of one shape (Huber 1964).
func Huber(x, y T, delta float64) T {
	if !(delta > 0) {
		fail("Huber", "delta is %v, and must be above 0", delta)
	}
	x, y = pair("Huber", x, y)
	far := x.Sub(y).Abs()
	near := ops.Clamp(far, 0, delta)
	return GlobalMean(near.Mul(far.Sub(near.Scale(0.5))))
}

// SmoothL1 returns Huber's loss divided by beta, as torch.nn.functional.smooth_l1_loss.
func SmoothL1(x, y T, beta float64) T {
	if !(beta > 0) {
		fail("SmoothL1", "beta is %v, and must be above 0", beta)
	}
	return Huber(x, y, beta).Scale(1 / beta)
}

// KLDiv returns the mean over rows of Σ y·(log y − x), the Kullback-Leibler divergence, for x [..., classes], logarithms of probabilities
// such as ops.LogSoftmax(x), and y of probabilities, of one shape. For two dimensions it is PyTorch's kl_div with reduction="batchmean".
func KLDiv(x, y T) T {
	x, y = pair("KLDiv", x, y)
	log := ops.Clamp(y, 1e-37, math.Inf(1)).Log() // 0·log 0 is 0
	return GlobalMean(y.Mul(log.Sub(x)).Sum(-1))
}

// Hits returns how many of logits [..., classes] are largest at their label, an element of labels [...], Int64 or Int32. It reads
// the result on the host.
func Hits(logits, labels T) float64 {
	best := tensor.Data[int64](tensor.ToHost(ops.ArgMax(logits, -1)))
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
// autograd.AllGather of their group as gather, which may be a group of one; nil: this rank has all rows. A rank may have more rows than
// another.
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
	return ops.RMSNorm(x, T{}, 1e-24/n).Scale(1 / math.Sqrt(n))
}

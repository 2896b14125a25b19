package tp

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// CrossEntropy computes what nn.CrossEntropy does, of logits of which each rank has a part of the words. No rank has all logits of a
// token: the ranks exchange the largest one, and then the sum of exponentials and the label's, three numbers a token.
type CrossEntropy struct {
	group             *dist.Group
	first, end, words int
	linear            ops.LinearCrossEntropy
	options           ops.CrossEntropyOptions // of one call
}

// CrossEntropy returns the loss of a vocabulary of so many words.
func (p *Parallel) CrossEntropy(words int) *CrossEntropy {
	first, end := layout.Share(words, p.Group.Rank(), p.Group.Size())
	f := &CrossEntropy{group: p.Group, first: first, end: end, words: words}
	f.linear.Classes = &classes{f}
	return f
}

// LinearLoss returns Loss(head.Forward(x), labels, options...) without making the logits, as nn.LinearCrossEntropy does. The numbers of
// some tokens are exchanged at a time.
func (f *CrossEntropy) LinearLoss(head *nn.Linear, x, labels nn.T, options ...ops.CrossEntropyOptions) nn.T {
	if !head.IsProduct() {
		return f.Loss(head.Forward(x), labels, options...)
	}
	f = f.with(options)
	x, w := head.Operands(x)
	if w.Dim(0) != f.end-f.first {
		fail("CrossEntropy", "the weight of the head %v: this rank has words %d to %d of %d", w.Shape(), f.first, f.end, f.words)
	}
	f.linear.Ignore, f.linear.Count, f.linear.SoftCap = f.options.Ignore, f.options.Count, head.SoftCap
	return f.linear.Loss(x, w, labels)
}

// with returns f for a call with these options.
func (f *CrossEntropy) with(options []ops.CrossEntropyOptions) *CrossEntropy {
	if len(options) == 0 {
		return f
	}
	c, o := *f, options[0]
	c.options = o
	if o.PerRow || o.Smoothing != 0 || !o.Weights.IsZero() || len(options) > 1 {
		fail("CrossEntropy", "of options, at most one, ranks that divide words take Ignore and Count, and no Weights, PerRow or Smoothing: "+
			"nn.CrossEntropy takes all, of logits behind autograd.Gather{Group: g, Dim: -1} of these ranks")
	}
	return &c
}

// classes are the words of a rank.
type classes struct{ *CrossEntropy }

// Range returns the first word of this rank, and the number of all.
func (f *classes) Range() (first, all int) { return f.first, f.words }

// Join exchanges the largest of the ranks' numbers, and adds up the others relative to it.
func (f *classes) Join(t *tensor.Tape, lse, logit tensor.Tensor) (allLSE, allLogit tensor.Tensor) {
	largest, n := t.NewLike(lse), lse.Dim(0)
	tensor.Copy(largest, lse)
	f.allReduce(largest, dist.Max.In(t))
	sums := tensor.Concat(0, lse.Sub(largest).Exp(), logit)
	f.allReduce(sums, dist.Sum.In(t))
	return sums.Slice(0, 0, n).Log().Add(largest), sums.Slice(0, n, 2*n)
}

// Loss returns this rank's part of the mean over the global batch, for logits [..., this rank's part of the words] and labels
// [...], Int64 or Int32: the sum over ranks with other rows is the loss. Options, at most one, set Ignore and Count.
func (f *CrossEntropy) Loss(logits, labels nn.T, options ...ops.CrossEntropyOptions) nn.T {
	f = f.with(options)
	if d := labels.DType(); logits.Dim(-1) != f.end-f.first || d != tensor.Int64 && d != tensor.Int32 {
		fail("CrossEntropy", "logits %v and labels %v: this rank has words %d to %d of %d, and labels are int64 or int32",
			logits.Shape(), labels.Shape(), f.first, f.end, f.words)
	}
	if f.options.Ignore != nil && f.options.Count == 0 {
		fail("CrossEntropy", "labels that do not count need Count: the number of those that do, over all ranks with other rows, or 1")
	}
	if logits.DType().IsHalf() {
		logits = logits.Cast(tensor.Float32)
	}
	t := logits.Tape()
	y := t.Input(labels).Reshape(-1)
	if y.DType() == tensor.Int32 {
		y = y.Cast(tensor.Int64)
	}
	if f.options.Count != 0 {
		t.Agree(f.options.Count)
	}
	return t.Apply(f, logits.Reshape(-1, f.end-f.first), y)
}

// Name returns "tp.CrossEntropy".
func (*CrossEntropy) Name() string { return "tp.CrossEntropy" }

// Forward returns this rank's part of the mean over rows.
func (f *CrossEntropy) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x, labels, n := in[0], in[1], in[0].Dim(0)
	f.check(labels)
	largest, _ := ops.Max(x, 1)
	f.allReduce(largest, dist.Max.In(c.Tape()))
	x = x.Sub(largest.Reshape(n, 1))
	e := x.Exp()
	at, mine := within(labels, f.first, x.Dim(1))
	hit := mine.Cast(x.DType())
	sums := tensor.Concat(0, e.Sum(1), ops.Gather(x, 1, at.Reshape(n, 1)).Reshape(n).Mul(hit))
	f.allReduce(sums, dist.Sum.In(c.Tape()))
	total, label := sums.Slice(0, 0, n), sums.Slice(0, n, 2*n)
	rows := total.Log().Sub(label)
	c.Save(e.Div(total.Reshape(n, 1)))
	c.Save(at.Reshape(n, 1))
	c.Save(hit.Reshape(n, 1))
	if f.options.Ignore != nil {
		counts := labels.Ne(number(labels, *f.options.Ignore)).Cast(x.DType())
		rows = rows.Mul(counts)
		c.Save(counts.Reshape(n, 1))
	}
	count := f.options.Count
	if count == 0 {
		count = float64(tensor.GlobalCount(labels))
	}
	c.Ints(1)[0] = int(math.Float64bits(count))
	return rows.Sum().Scale(1 / count)
}

// check refuses labels that are no words, where the host sees them.
func (f *CrossEntropy) check(labels tensor.Tensor) {
	if !labels.Device().Host() {
		return
	}
	for i, id := range tensor.Data[int64](labels) {
		if (id < 0 || id >= int64(f.words)) && (f.options.Ignore == nil || id != *f.options.Ignore) {
			fail("CrossEntropy", "label %d is %d, not in [0,%d)", i, id, f.words)
		}
	}
}

func (f *CrossEntropy) allReduce(x tensor.Tensor, op dist.Reduction) {
	if err := f.group.AllReduce(x, op).Wait(); err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
}

// Backward is softmax less one at the label, of the words that this rank has.
func (f *CrossEntropy) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	probs, at, hit, count := c.Saved(0), c.Saved(1), c.Saved(2), math.Float64frombits(uint64(c.Ints(1)[0]))
	d := ops.ScatterAdd(probs, 1, at, hit.Neg()).Mul(g.Reshape(1, 1)).Scale(1 / count)
	if f.options.Ignore != nil {
		d = d.Mul(c.Saved(3))
	}
	grads[0] = d
}

// Types wants a part of the vocabulary, and makes of it what is the same on all ranks that share it, and a part of the sum over rows.
// Labels are the same on these ranks.
func (f *CrossEntropy) Types(in []tensor.Types, rows tensor.Axes) ([]tensor.Types, error) {
	if bad := in[1].Differ() & f.group.Axes(); bad != 0 {
		return nil, fmt.Errorf("labels are %v along an axis whose ranks divide the words, and must be the same on them: what chooses among "+
			"words needs all, x = tape.Apply(gather, x) with gather Parallel.Logits(%d), before ArgMax or Max", in[1].At(bad.First()), f.words)
	}
	out, err := in[0].Convert(f.group.Axes(), tensor.Cut, tensor.Invariant)
	in[0] = out.With(out.On(tensor.Varying)&rows, tensor.Partial)
	return in[:1], err
}

// within returns where ids are among n words from first on, 0 for others, and which are there.
func within(ids nn.T, first, n int) (at, mine nn.T) {
	at = ids.Sub(number(ids, int64(first)))
	mine = ops.And(at.Ge(number(ids, 0)), at.Lt(number(ids, int64(n))))
	return at.Mul(mine.Cast(tensor.Int64)), mine
}

func number(beside nn.T, v int64) nn.T {
	return ops.Arange(beside.Tape(), tensor.Int64, float64(v), float64(v)+1, 1)
}

package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// vocabLoss is the cross-entropy of logits [tokens, this rank's part of the vocabulary] and labels [tokens]. It equals CrossEntropy, but
// no rank has all logits of a token (Shoeybi et al. 2019, "Megatron-LM"): the ranks exchange three numbers for each token.
type vocabLoss struct {
	group *dist.Group
	first int // first token of the vocabulary of this rank
}

func (*vocabLoss) Name() string { return "vocab_loss" }

func (f *vocabLoss) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	x, labels := in[0], in[1]
	n := x.Dim(0)
	most, _ := ops.Max(x, 1)
	f.allReduce(most, dist.Max)
	x = x.Sub(most.Reshape(n, 1))
	e := x.Exp()
	at, mine := within(labels, f.first, x.Dim(1))
	hit := mine.Cast(tensor.Float64)
	sums := tensor.Concat(0, e.Sum(1), ops.Gather(x, 1, at.Reshape(n, 1)).Reshape(n).Mul(hit))
	f.allReduce(sums, dist.Sum)
	total, target := sums.Slice(0, 0, n), sums.Slice(0, n, 2*n)
	c.Save(e.Div(total.Reshape(n, 1)))
	c.Save(at.Reshape(n, 1))
	c.Save(hit.Reshape(n, 1))
	c.Ints(1)[0] = tensor.GlobalCount(labels)
	return total.Log().Sub(target).Sum().Scale(1 / float64(c.Ints(1)[0]))
}

func (f *vocabLoss) allReduce(x tensor.Tensor, op dist.Reduction) {
	if err := f.group.AllReduce(x, op).Wait(); err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
}

func (f *vocabLoss) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	probs, at, hit := c.Saved(0), c.Saved(1), c.Saved(2)
	tokens := ops.ScatterAdd(probs, 1, at, hit.Neg())
	grads[0] = tokens.Mul(g.Reshape(1, 1)).Scale(1 / float64(c.Ints(1)[0]))
}

// Types takes a part of the vocabulary. The result is the same on all ranks that share the vocabulary, and a partial sum over rows.
func (f *vocabLoss) Types(in []tensor.Types, rows tensor.Axes) ([]tensor.Types, error) {
	out, err := in[0].Convert(f.group.Axes(), tensor.Cut, tensor.Invariant)
	in[0] = out.With(out.On(tensor.Varying)&rows, tensor.Partial)
	return in[:1], err
}

// Backward of this loss is its adjoint, on whichever rank the labels are.
func TestVocabLossAdjoint(t *testing.T) {
	first := []int{0, 2, 5, 9}
	for ranks := 1; ranks <= 3; ranks++ {
		logits := disttest.Operand{Kind: tensor.Cut, Dims: func(rank, _ int) []int { return []int{4, first[rank+1] - first[rank]} }}
		labels := disttest.Operand{Const: func(*dist.Rank) tensor.Tensor {
			return tensor.FromSlice([]int64{0, int64(first[ranks]) - 1, 1, int64(first[ranks]) / 2}, 4)
		}}
		disttest.Adjoint(t, ranks, func(r *dist.Rank) disttest.Communicating { return &vocabLoss{r.World, first[r.World.Rank()]} },
			logits, labels)
	}
}

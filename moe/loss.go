package moe

import (
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// addLosses adds the losses of the router to Backward, in training. They are means over the tokens of the batch; r is the routing of this
// rank's tokens. experts and counts are what the ranks of Hidden chose.
func (l *Layer) addLosses(y nn.T, r router.Routing, experts, counts nn.T, tokens int) nn.T {
	if !y.Tape().Training() {
		return y
	}
	if l.c.Balance != 0 {
		scores := r.Scores
		if l.c.Router.Scoring == router.Sigmoid {
			scores = scores.Div(scores.Sum(1).Reshape(scores.Dim(0), 1).Affine(1, 1e-20))
		}
		y = tensor.WithAux(y, scores.Mul(l.parts(r, experts, counts)).Sum().Scale(float64(counts.Len())/float64(tokens)), l.c.Balance)
	}
	if l.c.Z != 0 {
		y = tensor.WithAux(y, ops.LogSumExp(r.Logits).Square().Sum().Scale(1/float64(tokens)), l.c.Z)
	}
	return y
}

// parts returns for each expert the part of all slots that chose it, over the ranks that share the batch; or for each token that of the
// slots of its sequence.
func (l *Layer) parts(r router.Routing, experts, counts nn.T) nn.T {
	if l.c.Sequence > 0 {
		return l.partsOfSequences(r.Scores, experts)
	}
	if l.ranks.Tokens != nil {
		counts = counts.Tape().Apply(l.ranks.sumTokens, counts)
	}
	f := counts.Cast(r.Scores.DType())
	return f.Div(ops.Clamp(f.Sum(), 1, math.Inf(1)))
}

// partsOfSequences is parts where a balance loss is of each sequence [tokens, experts]. Slots of a sequence are counted over the ranks that
// have parts of it.
func (l *Layer) partsOfSequences(scores, experts nn.T) nn.T {
	t, tokens, top, n := scores.Tape(), experts.Dim(0), experts.Dim(1), scores.Dim(1)
	mine, total := l.positions(t, tokens), t.Rows().Seq.Total
	if total == 0 {
		mine = l.c.Sequence
	}
	if tokens%mine != 0 || total != 0 && total != l.c.Sequence {
		fail("Layer", "a balance loss of sequences of %d tokens: there are %d tokens, or parts of sequences of %d", l.c.Sequence, tokens, total)
	}
	chosen := ops.OneHot(experts, n, scores.DType()).Sum(1).Reshape(tokens/mine, mine, n).Sum(1)
	if total != 0 {
		chosen = through(l.ranks.sumPositions, chosen)
	}
	part := chosen.Scale(1/float64(l.c.Sequence*top)).Reshape(tokens/mine, 1, n).Broadcast(tokens/mine, mine, n).Reshape(tokens, n)
	if l.ranks.Gather != nil {
		lo, hi := layout.Share(tokens, l.ranks.Hidden.Rank(), l.ranks.Hidden.Size())
		part = tensor.RowsLike(part.Slice(0, lo, hi), scores)
	}
	return part
}

// tally sums counts over ranks with other tokens.
type tally struct {
	group *dist.Group
}

func (*tally) Name() string { return "moe.tally" }

func (f *tally) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	y := c.Tape().NewLike(in[0])
	tensor.Copy(y, in[0])
	if err := f.group.AllReduce(y, dist.Sum.In(c.Tape())).Wait(); err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
	return y
}

func (*tally) Backward(*tensor.Ctx, nn.T, []nn.T) {}

func (f *tally) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	in[0] = in[0].With(f.group.Axes(), tensor.Invariant)
	return in[:1], nil
}

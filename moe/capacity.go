package moe

import (
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// limit keeps of a plan the slots that have a place. Each expert has as many places for the tokens of all ranks: those of earlier ranks
// come first, and this rank fills those behind them. A rank without tokens does not know how many there are, 0, and waits for that number.
func (l *Layer) limit(p plan, slots nn.T, tokens int) plan {
	t, experts, top := slots.Tape(), p.counts.Len(), l.Router.c.Top
	before, all := l.before(p.counts, tokens*top)
	n := int(math.Ceil(l.capacity * float64(all) / float64(experts)))
	n = max(1, min(n, all/top)) // no token chooses an expert twice
	end := before.Add(p.counts).Minimum(t.Arange(tensor.Int64, float64(n), float64(n+1), 1))
	kept := end.Sub(before).Clamp(0, math.Inf(1))
	l.count(p.counts, p.counts.Sub(kept))

	start := p.counts.CumSum(0).Sub(p.counts).Sub(before).Reshape(experts, 1) // where place 0 would be among the sorted slots
	place := t.Arange(tensor.Int64, 0, float64(n), 1)
	mine := place.Ge(before.Reshape(experts, 1)).And(place.Lt(end.Reshape(experts, 1)))
	one := t.Arange(tensor.Int64, 1, 2, 1)
	zero := one.Sub(one)
	row := tensor.Where(mine, place.Add(start).Add(one), zero).Reshape(experts * n)
	out := plan{token: p.token.Add(one).Pad(0, 1, 0).Gather(0, row), capacity: n, counts: full(t, experts, n)}

	at := p.back.Sub(start.Reshape(experts).Gather(0, slots)) // the place of each slot
	first := t.Arange(tensor.Int64, 0, float64(experts*n), float64(n))
	out.back = tensor.Where(at.Lt(t.Arange(tensor.Int64, float64(n), float64(n+1), 1)), first.Gather(0, slots).Add(at).Add(one), zero)
	return out
}

// before returns how many slots of earlier ranks chose each expert, and how many slots there are, which this rank knows if it has some.
func (l *Layer) before(counts nn.T, all int) (nn.T, int) {
	if l.ranks.Tokens == nil {
		return counts.Sub(counts), all
	}
	f := l.ranks.places
	f.all = all
	return counts.Tape().Apply(f, counts), f.all
}

// full returns counts of n rows for each expert.
func full(t *tensor.Tape, experts, n int) nn.T {
	return t.Arange(tensor.Int64, 0, float64(experts), 1).Reshape(experts, 1).Broadcast(experts, n).Reshape(experts * n).Bincount(experts)
}

// exchangeFixed is exchange with as many rows for all experts. Ranks fill different places, so that the sum of what comes has all.
func (l *Layer) exchangeFixed(x, rows nn.T, p plan) (y, shared nn.T) {
	t, r := x.Tape(), &l.ranks
	n, d := r.Experts.Size(), x.Dim(1)
	mine := rows.Dim(0) / n
	rows = r.pack(rows)
	came := t.Apply(r.depart, rows.Detach())
	shared = l.share(x)
	came = t.Apply(r.arrive, came, rows).Cast(x.DType()).Reshape(1, n, mine, d).Sum(1).Reshape(mine, d)
	y = l.Experts.Forward(came, full(t, mine/p.capacity, p.capacity))
	return t.Apply(r.home, r.pack(y).Reshape(1, mine, d).Broadcast(n, mine, d).Reshape(n*mine, d)).Cast(x.DType()), shared
}

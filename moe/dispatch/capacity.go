package dispatch

import (
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// limit keeps of a plan the slots that have a place. Each expert has as many places for the tokens of all ranks: those of earlier ranks
// come first, and this rank fills those behind them. A rank without tokens does not know how many slots all have, 0, and waits for those
// that do.
func (d *Dispatcher) limit(p Plan, slots nn.T, all int) Plan {
	t, experts, top := slots.Tape(), p.counts.Len(), p.top
	before, all := d.before(p.counts, all)
	n := int(math.Ceil(d.c.Capacity * float64(all) / float64(experts)))
	n = max(1, min(n, all/top)) // no token chooses an expert twice
	end := before.Add(p.counts).Minimum(t.Arange(tensor.Int64, float64(n), float64(n+1), 1))
	kept := end.Sub(before).Clamp(0, math.Inf(1))

	start := p.counts.CumSum(0).Sub(p.counts).Sub(before).Reshape(experts, 1) // where place 0 would be among the sorted slots
	place := t.Arange(tensor.Int64, 0, float64(n), 1)
	mine := place.Ge(before.Reshape(experts, 1)).And(place.Lt(end.Reshape(experts, 1)))
	one := t.Arange(tensor.Int64, 1, 2, 1)
	zero := one.Sub(one)
	row := tensor.Where(mine, place.Add(start).Add(one), zero).Reshape(experts * n)
	out := Plan{Dropped: p.counts.Sub(kept), token: p.token.Add(one).Pad(0, 1, 0).Gather(0, row)}

	at := p.back.Sub(start.Reshape(experts).Gather(0, slots)) // the place of each slot
	first := t.Arange(tensor.Int64, 0, float64(experts*n), float64(n))
	out.back = tensor.Where(at.Lt(t.Arange(tensor.Int64, float64(n), float64(n+1), 1)), first.Gather(0, slots).Add(at).Add(one), zero)
	return out
}

// before returns how many slots of earlier ranks chose each expert, and how many slots there are, which a rank without tokens learns from
// the others.
func (d *Dispatcher) before(counts nn.T, all int) (nn.T, int) {
	if d.c.Tokens == nil {
		return counts.Sub(counts), all
	}
	d.places.all = all
	t, n := counts.Tape(), counts.Len()
	earlier := t.Apply(&d.places, tensor.Concat(0, counts, t.Arange(tensor.Int64, float64(all), float64(all)+1, 1)))
	return earlier.Slice(0, 0, n), d.places.all
}

// full returns counts of n rows for each expert.
func full(t *tensor.Tape, experts, n int) nn.T {
	return t.Arange(tensor.Int64, 0, float64(experts), 1).Reshape(experts, 1).Broadcast(experts, n).Reshape(experts * n).Bincount(experts)
}

// exchangeFixed is exchange with as many rows for all experts. Ranks fill different places, so that the sum of what comes has all.
func (d *Dispatcher) exchangeFixed(rows nn.T, p Plan, compute func(rows, counts nn.T) nn.T, meanwhile func(part int)) nn.T {
	t, n := rows.Tape(), d.c.Experts.Size()
	mine := rows.Dim(0) / n
	for i := range n {
		d.there.send[i], d.there.recv[i] = mine, mine
	}
	sent := d.pack(rows)
	came := t.Apply(d.functions[0], sent.Detach())
	meanwhile(0)
	came = t.Apply(d.functions[1], came, sent).Cast(rows.DType())
	all := came.Slice(0, 0, mine)
	for i := 1; i < n; i++ { // each place has the row of one rank, and zeros from the others
		all = all.Add(tensor.RowsLike(came.Slice(0, i*mine, (i+1)*mine), all))
	}
	y := d.pack(compute(all, full(t, mine/p.places, p.places)))
	d.copies = d.copies[:0]
	for range n {
		d.copies = append(d.copies, y)
	}
	return d.bring(tensor.Concat(0, d.copies...), meanwhile).Cast(rows.DType())
}

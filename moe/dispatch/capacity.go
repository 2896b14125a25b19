package dispatch

import (
	"math"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// limit drops the slots of a plan beyond the capacity of their experts, GShard's C, which is for the tokens of all ranks. A slot's position
// is the number of slots of earlier tokens of the batch that chose its expert. Three tokens that choose two of the experts A, B and C, with
// capacity 2:
//
//	token               0       1       2
//	chooses             A   B   A   C   A   B
//	position            0   0   1   0   2   1     2 is not below the capacity: this slot is dropped
//	back                1   3   2   5   0   4     the row of each slot; 0: none
//
//	rows of experts     A   A   B   B   C   C     so many as the capacity for each, on every rank
//	token               1   2   1   3   2   0     of each row, from 1; 0: none, zeros are sent
//
// A rank without tokens does not know how many slots all have, 0, and waits for those that do. Of each row of the batch (a sequence), mine
// tokens are this rank's; 0: its rows are whole.
func (d *Dispatcher) limit(p Plan, slots nn.T, all, mine int) Plan {
	t, experts, top := slots.Tape(), p.counts.Len(), p.top
	runs, run := p.counts.Reshape(1, experts), slots // slots of each expert in each run of tokens that follow each other in the batch
	if mine != 0 {
		sequences := slots.Len() / (mine * top)
		of := ops.Arange(t, tensor.Int64, 0, float64(sequences*experts), float64(experts)).Reshape(sequences, 1).Broadcast(sequences, mine*top)
		run = slots.Add(tensor.RowsLike(of.Reshape(slots.Len()), slots))
		runs = ops.Bincount(run, sequences*experts).Reshape(sequences, experts)
	}
	d.earlier.all = all
	before := d.before(p.counts, runs)
	capacity := int(math.Ceil(d.c.Capacity * float64(d.earlier.all) / float64(experts)))
	capacity = max(1, min(capacity, d.earlier.all/top)) // no token chooses an expert twice
	limit, one := ops.Arange(t, tensor.Int64, float64(capacity), float64(capacity+1), 1), ops.Arange(t, tensor.Int64, 1, 2, 1)
	kept := ops.Clamp(ops.Minimum(before.Add(runs), limit).Sub(before), 0, math.Inf(1)).Sum(0)

	start := ops.CumSum(p.counts, 0).Sub(p.counts) // of each expert, among the sorted slots
	shift := before.Sub(ops.CumSum(runs, 0).Sub(runs)).Sub(start)
	position := p.back.Add(ops.Gather(shift.Reshape(runs.Len()), 0, run))
	first := ops.Arange(t, tensor.Int64, 1, float64(experts*capacity)+1, float64(capacity)) // row of each expert, from 1
	out := Plan{Dropped: p.counts.Sub(kept)}
	out.back = ops.Where(position.Lt(limit), ops.Gather(first, 0, slots).Add(position), one.Sub(one))
	filled := ops.Bincount(out.back, experts*capacity+1).Slice(0, 1, experts*capacity+1).Reshape(experts, capacity)
	// A filled row has the next one of its expert's sorted slots, counted from 1.
	sorted := ops.CumSum(filled, 1).Add(start.Reshape(experts, 1)).Mul(filled).Reshape(experts * capacity)
	out.token = ops.Gather(ops.Pad(p.token.Add(one), 0, 1, 0), 0, sorted)
	return out
}

// before returns how many slots of earlier tokens chose each expert, for each run. A rank without tokens learns how many slots there are.
func (d *Dispatcher) before(counts, runs nn.T) nn.T {
	if d.c.Tokens == nil {
		return runs.Sub(runs)
	}
	t := counts.Tape()
	number := func(n int) nn.T { return ops.Arange(t, tensor.Int64, float64(n), float64(n)+1, 1) }
	return t.Apply(&d.earlier, tensor.Concat(0, counts, number(d.earlier.all), number(t.Rows().First)), runs)
}

// full returns counts of n rows for each of all experts.
func full(t *tensor.Tape, all, n int) nn.T {
	return ops.Bincount(ops.Arange(t, tensor.Int64, 0, float64(all), 1).Reshape(all, 1).Broadcast(all, n).Reshape(all*n), all)
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
	y := d.pack(compute(all, full(t, mine/p.capacity, p.capacity)))
	d.copies = d.copies[:0]
	for range n {
		d.copies = append(d.copies, y)
	}
	return d.bring(tensor.Concat(0, d.copies...), meanwhile).Cast(rows.DType())
}

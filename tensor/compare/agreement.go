package compare

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/layout"
)

// Agreement is what ranks must have alike in a step when they add something up: otherwise the sum is of different steps. Reductions carry
// it (dist.Reduction.In). It is zero where nothing is known.
type Agreement struct {
	Seed, Step      uint64  // of the tape
	Batch           int     // Rows.Number
	Batches         uint64  // a digest of the numbers of all batches of the step, also of earlier microbatches
	Total, SeqTotal int     // of the rows
	Count           float64 // the last one of Tape.Agree
	Counts          uint64  // a digest of all since the last Backward
	Rate            float64 // of the optimizer's step before
	Frozen          uint64  // a digest of the parameters that were frozen in it
	Inputs          uint64  // a digest of the values of inputs without Rows
	Params          uint64  // the same of parameters that nobody owns
	// Along axes on which ranks have the same rows:
	First, N int
	Seq      layout.Spans
	Values   uint64 // a digest of all inputs
	Numbers  uint64 // of the host, such as those of Scale, on which the loss depends: a digest
}

// Print returns bits that differ if Agreements do.
func (a *Agreement) Print() uint64 {
	return kernel.Key(a.Seed, a.Step, uint64(a.Batch), a.Batches, uint64(a.Total), uint64(a.SeqTotal), math.Float64bits(a.Count), a.Counts,
		math.Float64bits(a.Rate), a.Frozen, a.Inputs, a.Params, uint64(a.First), uint64(a.N), uint64(a.Seq.First), uint64(a.Seq.Break),
		uint64(a.Seq.Skip), a.Values, a.Numbers)
}

// Difference returns what differs first between two ranks, and what to do about it; "" if nothing does.
func (a *Agreement) Difference(b *Agreement) (mine, other string, advice error) {
	const skipped = "a rank has left out a step or a batch, or is in another epoch"
	for _, d := range []struct {
		differ      bool
		what        string
		mine, other any
		advice      string
	}{
		{a.outside(b) || b.outside(a), "a sum", a.origin(), b.origin(), "ranks add up other things: one a loss or gradients, the other numbers " +
			"of its own; all ranks call the same operations in the same order"},
		{a.Seed != b.Seed, "seed", a.Seed, b.Seed, "tapes of all ranks need one tensor.Seed: random numbers depend on the row, not on the rank"},
		{a.Batch != b.Batch, "batch number", a.Batch, b.Batch, skipped},
		{a.Step != b.Step, "step", a.Step, b.Step, skipped},
		{a.Batches != b.Batches, "earlier batches of the step", "some", "others", skipped},
		{a.Total != b.Total, "Rows.Total", a.Total, b.Total, "losses divide by the rows of all ranks together"},
		{a.SeqTotal != b.SeqTotal, "Rows.Seq.Total", a.SeqTotal, b.SeqTotal, "losses divide by the positions of all ranks together"},
		{a.Count != b.Count, "Count", a.Count, b.Count, "a loss divides by the count of all ranks together"},
		{a.Counts != b.Counts, "earlier counts of the step", "some", "others", "losses divide by counts of all ranks together"},
		{a.Rate != b.Rate, "learning rate of the last step", a.Rate, b.Rate, "a schedule must use what all ranks have alike, such as a loss " +
			"that was added up over them"},
		{a.Frozen != b.Frozen, "frozen parameters", "some", "others", "all ranks freeze and unfreeze the same, by what they have alike"},
		{a.Inputs != b.Inputs, "inputs without Rows", "some values", "others", "if they belong to rows, say so (WithRows); otherwise all " +
			"ranks need the same; a mask as long as a rank's own sequences is of integers or bools (Cast, ops.Where)"},
		{a.Params != b.Params, "parameters that are not attached", "some values", "others",
			"all ranks need the same: one seed, and the same changes on all ranks (those of an attached and frozen model are compared by name)"},
		{a.First != b.First || a.N != b.N, "rows", rowsFrom(a), rowsFrom(b), "ranks that share the work on a batch need the same rows"},
		{a.Seq != b.Seq, "Rows.Seq", a.Seq, b.Seq, "ranks that share the work on a batch need the same positions"},
		{a.Values != b.Values, "inputs", "some values", "others", "ranks that share the work on a batch need the same inputs and labels"},
		{a.Numbers != b.Numbers, "numbers of the host (Scale, Affine, Clamp, Dropout and others)", "some", "others", "ranks that share the " +
			"work on a batch give an operation on what they have alike the same number: draw it with one seed on all of " +
			"them, and make it of what all have, such as the whole loss"},
	} {
		if d.differ {
			return fmt.Sprintf("%s %v", d.what, d.mine), fmt.Sprint(d.other), errors.New(d.advice)
		}
	}
	return "", "", nil
}

// outside reports whether a knows nothing of a step, and b has its rows.
func (a *Agreement) outside(b *Agreement) bool {
	return *a == (Agreement{}) && b.Total != 0 && b.Batches != 0
}

func (a *Agreement) origin() string {
	if *a == (Agreement{}) {
		return "outside of a step"
	}
	return "of a step"
}

func rowsFrom(a *Agreement) string { return fmt.Sprintf("%d from %d on", a.N, a.First) }

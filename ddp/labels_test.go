package ddp_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// labeled is a step of 22 rows with labels, which have weights. weights gets the labels of all rows, and which of these are this rank's.
func labeled(label func(r *rows, row int) int64, weights func(r *rows, all []int64, lo, n int) []float64) step {
	return func(r *rows) {
		b := r.parts.split(r.tape, r.group, 22, r.step)
		all := make([]int64, b.total)
		for i := range all {
			all[i] = label(b, i)
		}
		y := b.rowed(tensor.FromSlice(all[b.lo:b.lo+b.n], b.n))
		w := weights(b, all, b.lo, b.n)
		l := ops.CrossEntropy(b.C.Forward(b.hidden()), y, ops.CrossEntropyOptions{PerRow: true}).Reshape(-1, 1)
		b.backward(nn.GlobalMean(l.Mul(b.rowed(tensor.FromSlice(w, b.n, len(w)/b.n)))))
	}
}

func mixed(r *rows, row int) int64 { return int64(row*row/4+row/5+r.step) % 3 }

// perLabel returns weights that have a value for each label, which depends on how many of the counted rows have it.
func perLabel(value func(n, rows float64, label int64) float64, all bool) func(r *rows, labels []int64, lo, n int) []float64 {
	return func(_ *rows, labels []int64, lo, n int) (w []float64) {
		own := labels[lo : lo+n]
		counted := own
		if all {
			counted = labels
		}
		for _, y := range own {
			count := 0.0
			for _, z := range counted {
				if z == y {
					count++
				}
			}
			w = append(w, value(count, float64(len(counted)), y))
		}
		return w
	}
}

// A number that a row has because of its label is the same on all ranks: weights by how often a label is among a rank's own rows are a
// warning.
func TestWeightsOfLabelsByOwnRows(t *testing.T) {
	const warning = "an input with rows depends on their label alone, and differs between ranks"
	inverse := func(n, _ float64, _ int64) float64 { return 1 / n }
	for name, w := range map[string]func(r *rows, all []int64, lo, n int) []float64{
		"inverse frequency":  perLabel(inverse, false),
		"of the square root": perLabel(func(n, rows float64, _ int64) float64 { return math.Sqrt(rows / n) }, false),
		"effective numbers":  perLabel(func(n, _ float64, _ int64) float64 { return (1 - 0.9) / (1 - math.Pow(0.9, n)) }, false),
		"log frequency":      perLabel(func(n, rows float64, y int64) float64 { return math.Log(n/rows) + 0.1*float64(y) }, false),
		"the mean of each label": func(r *rows, all []int64, lo, n int) (w []float64) {
			for _, y := range all[lo : lo+n] {
				sums := [4]float64{}
				for i, z := range all[lo : lo+n] {
					if z == y {
						sums[0], sums[1], sums[3] = sums[0]+raw(r, lo+i, 0), sums[1]+raw(r, lo+i, 1), sums[3]+1
					}
				}
				w = append(w, sums[0]/sums[3], sums[1]/sums[3], 1)
			}
			return w
		},
	} {
		assert.Contains(t, warned(t, 2, labeled(mixed, w)), warning, name)
		assert.Contains(t, warned(t, 3, labeled(mixed, w)), warning, name)
		assert.Empty(t, warned(t, 1, labeled(mixed, w)), name)
	}
	document := func(_ *rows, row int) int64 {
		return int64([]int{0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0, 0, 0, 0, 2, 2, 2, 2}[row])
	}
	for name, do := range map[string]step{
		"of all rows":   labeled(mixed, perLabel(inverse, true)),
		"whole numbers": labeled(mixed, perLabel(func(n, _ float64, _ int64) float64 { return n }, false)),
		"of each row":   labeled(mixed, func(r *rows, _ []int64, lo, n int) []float64 { return tensor.Floats(r.w)[:n] }),
		"one for all":   labeled(mixed, perLabel(func(_, rows float64, _ int64) float64 { return 1.5 / rows }, false)),
		"of other steps": labeled(mixed, func(r *rows, all []int64, lo, n int) []float64 {
			return perLabel(inverse, r.step%2 == 0)(r, all, lo, n)
		}),
		// documents that follow each other, each with one label, on one rank
		"of documents": labeled(document, perLabel(inverse, false)),
		"of few rows": func(r *rows) {
			y := func(r *rows, row int) int64 { return int64(row % 3) }
			labeled(y, func(r *rows, all []int64, lo, n int) (w []float64) { // of three rows in turn
				for i := range n {
					w = append(w, raw(r, lo+i, 0))
				}
				return w
			})(r)
		},
	} {
		assert.NotContains(t, warned(t, 2, do), warning, name)
	}
}

// Values that are no numbers say nothing of labels.
func TestLabelsOfMissingValues(t *testing.T) {
	const warning = "an input with rows depends on their label alone, and differs between ranks"
	first := func(r *rows, row int) int64 {
		if row == r.lo {
			return 3
		}
		return mixed(r, row)
	}
	of := func(less, missing float64) step { // a rank has the number missing in its first row
		return labeled(first, func(_ *rows, all []int64, lo, n int) (w []float64) {
			for _, y := range all[lo : lo+n] {
				w = append(w, []float64{0.5, 1.5, less, 2.5}[y])
			}
			if lo == 0 {
				w[0] = missing
			}
			return w
		})
	}
	assert.Contains(t, warned(t, 2, of(0.25, 3.5)), warning)
	assert.Empty(t, warned(t, 2, of(0.25, math.NaN())), "a missing value")
	assert.Empty(t, warned(t, 2, of(math.Inf(-1), 2.5)), "a mask")
	assert.Empty(t, warned(t, 2, func(r *rows) {
		b := r.parts.split(r.tape, r.group, 22, r.step)
		mask, w := make([]float64, b.n), make([]float64, b.n)
		for i := range mask {
			mask[i], w[i] = float64(mixed(b, b.lo+i)%2), 0.5
			if mask[i] == 1 {
				mask[i], w[i] = math.Inf(-1), 1.5+float64(b.lo)
			}
		}
		l := b.losses().Add(b.rowed(tensor.FromSlice(mask, b.n)))
		b.backward(nn.GlobalMean(l.Exp().Mul(b.rowed(tensor.FromSlice(w, b.n)))))
	}), "a mask as a label")
}

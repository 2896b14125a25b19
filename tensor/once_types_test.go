package tensor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// What is the same on all ranks, added to a partial sum, has its value and its gradient on the first rank alone.
func TestAddedOnFirstRank(t *testing.T) {
	for rank, want := range []float64{1, 0} {
		rows := half
		rows.Head, rows.Tail = 1, 0
		if rank > 0 {
			rows.Head, rows.Tail = 0, 1
		}
		for name, total := range map[string]func(part, w Tensor) Tensor{
			"added":      func(part, w Tensor) Tensor { return part.Add(w) },
			"in front":   func(part, w Tensor) Tensor { return w.Add(part) },
			"subtracted": func(part, w Tensor) Tensor { return part.Scale(-1).Sub(w).Scale(-1) },
			"less":       func(part, w Tensor) Tensor { return w.Sub(part.Scale(-1)) },
			"a constant": func(part, w Tensor) Tensor { return part.Affine(1, 2).Add(w.Sub(w.Detach())).Affine(1, 0) },
		} {
			for _, p := range []*Param{summedParam(2), ones(2)} { // the gradient of the other one is the same on all ranks
				tape := NewTape(hostDevice)
				part := tape.Input(upward(4, 6).WithRows(rows)).Sum()
				y := total(part, tape.Use(p).Sum())
				require.Equal(t, Partial, y.Types().At(0), name)
				assert.Equal(t, Data[float64](part)[0]+2*want, Data[float64](y)[0], name)
				tape.Backward(y)
				grad := want
				if p.Types().At(0) == Invariant {
					grad = 1
				}
				assert.Equal(t, []float64{grad, grad}, Data[float64](p.Grad), name)
				tape.Close()
			}
		}
	}
}

// A number whose gradient is added up over the ranks, and a tensor whose gradient counts once: that of the first rank counts.
func TestNumbersThatMeetWholes(t *testing.T) {
	for rank, want := range []float64{1, 0} {
		rows := half
		rows.Head, rows.Tail = Axes(1-rank), Axes(rank)
		for name, loss := range map[string]func(whole, number Tensor) Tensor{
			"a penalty":     func(whole, number Tensor) Tensor { return whole.Sum().Add(number) },
			"subtracted":    func(whole, number Tensor) Tensor { return whole.Sum().Sub(number.Neg()) },
			"a temperature": func(whole, number Tensor) Tensor { return whole.Mul(number).Sum() },
			"in front":      func(whole, number Tensor) Tensor { return number.Mul(whole).Sum() },
			"a larger one":  func(whole, number Tensor) Tensor { return ops.Maximum(whole.Sum().Scale(0), number) },
		} {
			tape, one, summed := NewTape(hostDevice), ones(3), summedParam(1)
			tape.Input(upward(4, 6).WithRows(rows))
			y := loss(tape.Use(one), tape.Use(summed).Sum())
			require.Equal(t, Invariant, y.Types().At(0), name)
			tape.Backward(y)
			times := 1.0
			if strings.HasPrefix(name, "a temp") || name == "in front" {
				times = 3
			}
			assert.Equal(t, []float64{times * want}, Data[float64](summed.Grad), name)
			tape.Close()
		}
		tape := NewTape(hostDevice)
		tape.Input(upward(4, 6).WithRows(rows))
		assert.ErrorContains(t, Try(func() { tape.Use(ones(2)).Add(tape.Use(summedParam(2))) }), "counts its gradient once", "not a number")
		tape.Close()
	}
}

// If the rows do not say which rank is the first, or the first one's gradient would be its own, it is refused.
func TestAddedIsRefused(t *testing.T) {
	named := half
	named.Head = 1
	for name, c := range map[string]struct {
		rows Rows
		add  func(tape *Tape, part Tensor)
		says string
	}{
		"rows by hand":                {half, func(tape *Tape, part Tensor) { part.Add(tape.Use(summedParam(1)).Sum()) }, "once for each rank"},
		"a constant":                  {half, func(_ *Tape, part Tensor) { part.Affine(1, 1) }, "once for each rank"},
		"activations that count once": {named, func(tape *Tape, part Tensor) { part.Add(tape.Use(ones(2))) }, "counts its gradient once"},
		"to be multiplied":            {named, func(tape *Tape, part Tensor) { ops.Maximum(part, tape.Use(summedParam(1)).Sum()) }, "not linear"},
		"this rank's own too": {named, func(tape *Tape, part Tensor) {
			part.Add(tape.Input(upward(4, 6).WithRows(named)).Mean(0).Sum())
		}, "partial sum"},
	} {
		tape := NewTape(hostDevice)
		part := tape.Input(upward(4, 6).WithRows(c.rows)).Sum()
		assert.ErrorContains(t, Try(func() { c.add(tape, part) }), c.says, name)
		tape.Close()
	}
}

package tensor_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Sums of some of a rank's rows are refused when they reach the loss, unless the rest reaches it as often: in chunks, in several Backwards.
func TestPortionsOfRowsInLosses(t *testing.T) {
	part := func(x Tensor, lo, hi int) Tensor { return x.Slice(0, lo, hi).Square().Sum() }
	for _, c := range []struct {
		says string // "": it is right
		loss func(x Tensor) Tensor
	}{
		{"rows 0 to 1 of this rank's 4", func(x Tensor) Tensor { return part(x, 0, 2) }},
		{"rows 0 to 0 of", func(x Tensor) Tensor { return part(x, 0, 1) }},
		{"rows 3 to 3 of", func(x Tensor) Tensor { return x.Sum().Add(part(x, 3, 4)) }},
		{"of this rank's 4 were summed", func(x Tensor) Tensor { return part(x, 0, 3).Add(part(x, 1, 4)) }},
		{"rows 1 to 2 of", func(x Tensor) Tensor { return x.Slice(0, 1, 3).Permute(1, 0).Sum(1).Sum() }},
		{"rows 0 to 1 of", func(x Tensor) Tensor {
			y := x.Slice(0, 0, 2)
			return MatMul(y, y, true, false).Sum()
		}},
		{"or with another weight", func(x Tensor) Tensor { return part(x, 0, 2).Add(part(x, 2, 4).Scale(0.2)) }},
		{"or with another weight", func(x Tensor) Tensor { return part(x, 0, 2).Sub(part(x, 2, 4)) }},
		{"", func(x Tensor) Tensor { return part(x, 0, 2).Add(part(x, 2, 4)) }},
		{"", func(x Tensor) Tensor { // means of chunks, times their sizes
			return part(x, 0, 3).Scale(1. / 3).Scale(3. / 8).Add(part(x, 3, 4).Scale(1. / 8))
		}},
		{"", func(x Tensor) Tensor { return part(x, 0, 1).Add(part(x, 1, 3)).Add(part(x, 3, 4)).Add(x.Sum()) }},
		{"", func(x Tensor) Tensor { return x.Sum().Add(part(x, 0, 2).Detach()) }},
		{"", func(x Tensor) Tensor { return x.Slice(1, 0, 2).Square().Sum() }},
		{"", func(x Tensor) Tensor { return Concat(0, x.Slice(0, 0, 1), x.Slice(0, 1, 4)).Square().Sum() }},
		{"", func(x Tensor) Tensor { part(x, 0, 2); return x.Square().Sum() }},
	} {
		tape, p := NewTape(hostDevice), summedParam(6)
		x := tape.Input(upward(4, 6).WithRows(half)).Mul(tape.Use(p))
		err := Try(func() { tape.Backward(c.loss(x)) })
		if c.says == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, c.says)
		}
		tape.Close()
	}

	tape, p := NewTape(hostDevice), summedParam(6)
	defer tape.Close()
	input := func(total int) Tensor {
		return tape.Input(upward(4, 6).WithRows(Rows{Stride: 1, Total: total, Over: 1}))
	}
	both := Concat(0, input(8), input(9), input(10)).Mul(tape.Use(summedParam(6)))
	assert.NoError(t, Try(func() { tape.Backward(part(both, 0, 4).Add(part(both, 8, 12))) }), "labels for some batches")
	tape.Reset()
	loss := func(lo, hi int) Tensor { return part(tape.Input(upward(4, 6).WithRows(half)).Mul(tape.Use(p)), lo, hi) }
	tape.Backward(loss(0, 3), More())
	tape.Reset()
	assert.NoError(t, Try(func() { tape.Backward(loss(3, 4), More()) }), "the rest comes in another Backward of the step")
	assert.ErrorContains(t, Try(func() { tape.Backward(loss(0, 3)) }), "rows 0 to 2 of")
}

// The same holds for parts of the features of which each rank has others.
func TestPortionsOfFeatures(t *testing.T) {
	heads := func(x Tensor) Tensor { return x.Reshape(4, 2, 3) }
	for _, c := range []struct {
		says string
		loss func(x Tensor) Tensor
	}{
		{"features 0 to 0 of this rank's 6 were sliced", func(x Tensor) Tensor { return x.Sub(x.Slice(1, 0, 1)) }},
		{"features 0 to 4 of", func(x Tensor) Tensor { return x.Slice(1, 1, 6).Sub(x.Slice(1, 0, 5)) }},
		{"features 0 to 2 of", func(x Tensor) Tensor { return x.Slice(1, 0, 3) }},
		{"features 0 to 3 of", func(x Tensor) Tensor { return x.Permute(1, 0).Slice(0, 0, 4) }},
		{"pad", func(x Tensor) Tensor { return ops.Pad(x, 1, 1, 0) }},
		{"pad", func(x Tensor) Tensor { return ops.Pad(x.Permute(1, 0), 0, 0, 2) }},
		{"", func(x Tensor) Tensor { v := x.Split(1, 4, 1, 1); return v[0].Sum(1).Add(v[1].Mul(v[2]).Sum(1)) }}, // fused q, k and v
		{"", func(x Tensor) Tensor { v := x.Split(1, 3, 3); return v[0].SiLU().Mul(v[1]) }},
		{"", func(x Tensor) Tensor { return heads(x).Slice(2, 0, 1).Mul(heads(x)) }}, // of each head alike
		{"", func(x Tensor) Tensor { return ops.Pad(x, 0, 1, 1) }},
		{"", func(x Tensor) Tensor { x.Slice(1, 0, 3).Sum(); return x.Square() }}, // for a log
	} {
		tape, w := NewTape(hostDevice), NewParam(Constant(1), 12, 4) // 6 of 12 outputs
		w.Place(layout.Axis{Axes: 2, Ranks: 2}, layout.Division{})
		w.Make(hostDevice, Float64, 1)
		w.SumOver(1)
		err := Try(func() {
			tape.Backward(c.loss(Linear(tape.Input(upward(4, 4).WithRows(half)), tape.Use(w), Tensor{})).Sum())
		})
		if c.says == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, c.says)
		}
		tape.Close()
	}
}

// After a Backward that fails, as where a rank is lost, Reset forgets what it has seen of portions and factors: the next step is like that
// of a new tape.
func TestResetForgetsFailedBackward(t *testing.T) {
	lost := false
	f := fn{func(_ *Ctx, in []Tensor) Tensor { return in[0].Scale(1) }, func(_ *Ctx, g Tensor, grads []Tensor) {
		if lost {
			panic(&Failure{Op: "all_reduce", Err: assert.AnError})
		}
		grads[0] = g
	}}
	tape := NewTape(hostDevice)
	defer tape.Close()
	p := summedParam(6)
	owner := &factorReader{fills: fills{p}}
	require.NoError(t, p.Own(owner, 0))
	for _, lost = range []bool{false, true, false} {
		err := Try(func() {
			x := tape.Input(upward(4, 6).WithRows(half))
			part := x.Mul(tape.Use(p)).Slice(0, 0, 1).Sum().Scale(3) // Backward comes to it behind f
			tape.Backward(part.Add(x.Mul(tape.Apply(f, tape.Use(p))).Slice(0, 1, 4).Sum().Scale(3)))
		})
		if lost {
			require.ErrorIs(t, err, assert.AnError)
		} else {
			require.NoError(t, err)
		}
		tape.Reset()
		p.Consume()
	}
	require.Len(t, owner.noted, 2)
	require.NotEmpty(t, owner.noted[0])
	assert.Equal(t, owner.noted[0], owner.noted[1])
}

// factorReader is an owner that reads the factors of each Backward.
type factorReader struct {
	fills
	noted [][]Factor
}

func (r *factorReader) BackwardDone(last bool) error {
	r.noted = append(r.noted, slices.Clone(r.p.Factors()))
	return r.fills.BackwardDone(last)
}

// Weights of portions are known in the first steps: in all microbatches of a step, or in none.
func TestPortionsOfManySteps(t *testing.T) {
	tape, p := NewTape(hostDevice), summedParam(6)
	defer tape.Close()
	for range 2 * FirstSteps {
		x := tape.Input(upward(4, 6).WithRows(half)).Mul(tape.Use(p))
		tape.Backward(x.Slice(0, 0, 1).Sum(), More())
		x = tape.Input(upward(4, 6).WithRows(half)).Mul(tape.Use(p))
		tape.Backward(x.Slice(0, 1, 3).Sum(), More())
		x = tape.Input(upward(4, 6).WithRows(half)).Mul(tape.Use(p))
		tape.Backward(x.Slice(0, 3, 4).Sum())
		p.Consume()
		tape.Reset()
	}
}

package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// What a stage of a pipeline gets from another rank is what it would be on the sender's tape: types, places of rows, the rows themselves
// (without an Input of them) and the number of tokens.
func TestOrigin(t *testing.T) {
	first, second := NewTape(hostDevice), NewTape(hostDevice)
	rows := Rows{First: 2, Stride: 1, Total: 7, Over: 1, Number: 5, Seq: layout.Spans{First: 1, Total: 9, Break: 2, Skip: 4}, SeqOver: 2}
	rows.Over |= 2
	p := ones(5)
	p.SumOver(3)
	x := first.Input(New(hostDevice, Float64, 4, 3, 5).WithRows(rows)).Add(first.Use(p))
	first.SetTokens(24)
	flat := x.Reshape(12, 5)
	o := flat.Origin()
	back, err := OriginOf(o.Ints())
	require.NoError(t, err)
	assert.Equal(t, o, back)
	assert.Equal(t, 4, back.N())
	in := second.LeafOf(FromSlice(Floats(flat), 12, 5), back)
	rows.Number = 0
	assert.Equal(t, rows, second.Rows())
	assert.Equal(t, 24, second.Tokens())
	assert.Equal(t, flat.Types(), in.Types())
	assert.Equal(t, o, in.Origin())
	assert.Equal(t, 7*9*5, GlobalCount(in))
	assert.Equal(t, rows.Seq, second.Spans(in.Reshape(4, 3, 5)))
	assert.Equal(t, Floats(ops.Dropout(flat, 0.5, 9)), Floats(ops.Dropout(in, 0.5, 9)), "random numbers follow the places of rows")

	o.Types = o.Types.With(1, Cut)
	third := NewTape(hostDevice)
	third.Input(New(hostDevice, Float64, 1, 2).WithRows(Rows{Stride: 1, Total: 1}))
	third.SetTokens(3)
	assert.Equal(t, Cut, third.LeafOf(flat, o).Types().At(0), "of another tape of the rank")
	assert.Equal(t, 1, third.Rows().Total, "what it has known stays")
	assert.Equal(t, 3, third.Tokens())
	third.Reset()
	assert.Zero(t, third.Tokens())
	list := o.Ints()
	list[8] = 1<<17 | 1<<9
	_, err = OriginOf(list)
	assert.ErrorContains(t, err, "are not types")
}

// A Checkpoint runs again with the tokens of its first run, whatever the tape has then.
func TestCheckpointHasItsTokens(t *testing.T) {
	tape, p := NewTape(hostDevice), ones(2)
	var seen []int
	body := func(in ...Tensor) Tensor {
		seen = append(seen, tape.Tokens())
		return in[0].Mul(tape.Use(p))
	}
	x := tape.Input(FromSlice([]float64{1, 2}, 2))
	tape.SetTokens(6)
	y := tape.Checkpoint(body, x)
	tape.SetTokens(4)
	z := tape.Checkpoint(body, x)
	tape.Backward(y.Add(z).Sum())
	assert.Equal(t, []int{6, 4, 4, 6}, seen)
}

// A step whose last Backward was on another tape counts for the checks of the first steps, too.
func TestStepsOfOtherTapes(t *testing.T) {
	tape, p := NewTape(hostDevice), ones(2)
	for step := range 3 {
		tape.SetStep(step, 0)
		assert.Equal(t, []int{min(step, ComparedSteps), step}, StepsDone(tape))
		tape.Backward(tape.Use(p).Sum(), More())
		tape.Reset()
	}
}

package compare

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
)

// What a step notes is forgotten by the Backward that ends it. With More, the numbers of batches stay, and a step that is given up then
// goes back to them.
func TestStep(t *testing.T) {
	var s Step
	b := &layout.Batch{Rows: layout.Rows{Stride: 1, Total: 6}, N: 3}
	now := func() Agreement { return s.Agreement(1, 2, b, 0) }
	none := now()
	note := func() {
		s.Batch(4)
		s.Agree(8)
		s.Input(5)
		s.Param(6)
		s.Stepped(0.1, 7)
	}
	note()
	first := now()
	assert.Equal(t, Agreement{Seed: 1, Step: 2, Batch: 4, Batches: first.Batches, Total: 6, Count: 8, Counts: first.Counts,
		Rate: 0.1, Frozen: 7, Inputs: 5, Params: 6}, first)
	s.Backward(false)
	assert.Equal(t, none, now())
	note()
	assert.Equal(t, first, now(), "the next step")
	s.Backward(true)
	more := now()
	assert.Equal(t, first.Batches, more.Batches)
	assert.Zero(t, more.Inputs)
	assert.Equal(t, 0.1, more.Rate)
	s.Batch(5)
	assert.NotEqual(t, more.Batches, now().Batches)
	s.Reset()
	assert.Equal(t, more, now(), "given up")
}

// A number counts once if it comes several times in a row.
func TestAgree(t *testing.T) {
	var s Step
	_, ok := s.Count()
	assert.False(t, ok)
	assert.True(t, s.Agree(3))
	assert.False(t, s.Agree(3))
	assert.True(t, s.Agree(4))
	assert.True(t, s.Agree(3))
	list, all := s.Agreed()
	assert.Equal(t, []float64{3, 4}, list)
	assert.True(t, all)
	n, ok := s.Count()
	assert.Equal(t, 3.0, n)
	assert.True(t, ok)
	for i := range 3 {
		s.Agree(float64(10 + i))
	}
	_, all = s.Agreed()
	assert.False(t, all)
}

// Values are compared in the first steps, and in one that is asked for.
func TestCompared(t *testing.T) {
	var s Step
	for range ComparedSteps {
		assert.True(t, s.Compared())
		s.Backward(true)
		s.Backward(false)
	}
	assert.False(t, s.Compared())
	s.CompareNext()
	assert.False(t, s.Asked())
	s.Backward(false)
	assert.True(t, s.Compared() && s.Asked())
	s.Backward(false)
	assert.False(t, s.Compared())
}

// A target that was an input is taken back, once.
func TestForget(t *testing.T) {
	var s Step
	s.Forget(func() uint64 { panic("there is no input") })
	s.Input(5)
	s.Input(9)
	of := func(sum uint64) func() uint64 { return func() uint64 { return sum } }
	s.Forget(of(5))
	s.Forget(of(5))
	s.Forget(of(1))
	assert.EqualValues(t, 9, s.Agreement(0, 0, &layout.Batch{Rows: layout.Rows{Total: 1}}, 0).Inputs)
}

func TestDigest(t *testing.T) {
	assert.Zero(t, Digest(make([]byte, 8), 4))
	assert.Equal(t, Digest([]byte{1, 2}, 2), Digest([]byte{1, 2, 1, 2, 1, 2}, 2), "the number of equal elements says nothing")
	assert.NotEqual(t, Digest([]byte{1, 2, 1, 2}, 2), Digest([]byte{1, 2, 1, 3}, 2))
}

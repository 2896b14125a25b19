package capture_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// reduction notes in Backward what ranks would compare of the numbers of a step, also where the step is replayed.
type reduction struct{ numbers []uint64 }

func (*reduction) Name() string                                            { return "reduction" }
func (*reduction) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }
func (*reduction) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	return in[:1], nil
}

func (f *reduction) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0] = g
	note := func() { f.numbers = append(f.numbers, c.Tape().Agreement(1).Numbers) }
	if note(); c.Tape().Recording() != nil {
		c.Tape().Recording().Host(note)
	}
}

// A replay has the numbers of the recorded step: where ranks divide layers, the one beside it may run its own.
func TestNumbersOfReplays(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("the function always runs")
	}
	dev := &recorder{Device: cpu.New(1)}
	defer dev.Close()
	w := tensor.NewParam(tensor.Constant(0.7), 3)
	w.Make(dev, tensor.Float64, 1)
	tape, f, ran := tensor.NewTape(dev), &reduction{}, 0
	step := capture.New(dev, func(...tensor.Tensor) error {
		ran++
		tape.Backward(tape.Apply(f, tape.Use(w)).Scale(3).Sum())
		w.Consume()
		tape.Reset()
		return nil
	})
	for range 7 {
		require.NoError(t, step.Run())
	}
	require.Less(t, ran, 7, "some are replays")
	require.Len(t, f.numbers, 7)
	for _, n := range f.numbers {
		assert.NotZero(t, n)
		assert.Equal(t, f.numbers[0], n)
	}
}

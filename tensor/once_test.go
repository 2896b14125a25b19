package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// chooser chooses rows of x by a number that grows with every choice, like a router whose scores differ in the last bit.
type chooser struct {
	w       *tensor.Param
	choices int
}

func newChooser() *chooser {
	c := &chooser{w: tensor.NewParam(tensor.Constant(0), 5, 3)}
	c.w.SetValue(tensor.FromSlice([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 5, 3))
	return c
}

func (c *chooser) forward(t *tensor.Tape, x tensor.Tensor) tensor.Tensor {
	row := t.Once(func() tensor.Tensor {
		c.choices++
		return ops.Arange(t, tensor.Int64, float64(c.choices), float64(c.choices+2), 1)
	})
	return ops.Embedding(t.Use(c.w), row).Mul(x).Tanh()
}

// step returns the gradient of a step, how often a choice was made, and the tape's memory after Backward.
func (c *chooser) step(t *testing.T, tape *tensor.Tape,
	how func(f func(...tensor.Tensor) tensor.Tensor, x tensor.Tensor) tensor.Tensor) ([]float64, int, int) {
	defer tape.Reset()
	c.choices = 0
	x := tape.Input(tensor.FromSlice([]float64{0.1, 0.2, 0.3, -0.1, 0.2, 0.1}, 2, 3))
	tape.Backward(how(func(in ...tensor.Tensor) tensor.Tensor { return c.forward(tape, c.forward(tape, in[0])) }, x).Sum())
	live, _ := tape.Memory()
	c.w.Consume()
	return append([]float64(nil), tensor.Floats(c.w.Grad)...), c.choices, live
}

// The tensor of Once is the same when a Checkpoint runs its function again, also in nested Checkpoints and Scopes. Then it is freed.
func TestOnce(t *testing.T) {
	type fn = func(...tensor.Tensor) tensor.Tensor
	tape := tensor.NewTape(cpu.New(1))
	c := newChooser()
	want, choices, live := c.step(t, tape, func(f fn, x tensor.Tensor) tensor.Tensor { return f(x) })
	require.Equal(t, 2, choices)
	require.NotZero(t, want[3])
	for name, how := range map[string]func(f fn, x tensor.Tensor) tensor.Tensor{
		"scope":      func(f fn, x tensor.Tensor) tensor.Tensor { return tape.Scope(f, x) },
		"checkpoint": func(f fn, x tensor.Tensor) tensor.Tensor { return tape.Checkpoint(f, x) },
		"checkpoints inside each other": func(f fn, x tensor.Tensor) tensor.Tensor {
			return tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return tape.Checkpoint(f, in[0]) }, x)
		},
		"a scope inside": func(f fn, x tensor.Tensor) tensor.Tensor {
			return tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return tape.Scope(f, in[0]) }, x)
		},
		"two inside one": func(_ fn, x tensor.Tensor) tensor.Tensor {
			half := func(in ...tensor.Tensor) tensor.Tensor { return c.forward(tape, in[0]) }
			return tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return tape.Checkpoint(half, tape.Checkpoint(half, in[0])) }, x)
		},
	} {
		for range 2 {
			got, choices, left := c.step(t, tape, how)
			assert.Equal(t, want, got, name)
			assert.Equal(t, 2, choices, name)
			if name != "scope" { // without a Checkpoint constants stay until Reset
				assert.Less(t, left, live, "%s: memory behind Backward", name)
			}
		}
	}
}

// What a function of a Checkpoint reads must be the same when it runs again. The first steps compare its results.
func TestCheckpointOfOtherValues(t *testing.T) {
	dev := cpu.New(1)
	w := tensor.NewParam(tensor.Constant(0.5), 3, 3)
	w.SetName("w")
	w.Make(dev, tensor.Float64, 1)
	calls, mean := 0, tensor.FromSlice(make([]float64, 3), 3)
	var tape *tensor.Tape
	scale := func() tensor.Tensor { return tensor.FromSlice([]float64{float64(calls)}, 1) }
	for name, c := range map[string]struct {
		right   bool
		f       func(x tensor.Tensor) tensor.Tensor
		between func()
	}{
		"pure":      {true, tensor.Tensor.Tanh, nil},
		"dropout":   {true, func(x tensor.Tensor) tensor.Tensor { return ops.Dropout(x, 0.5, 3) }, nil},
		"kept":      {true, func(x tensor.Tensor) tensor.Tensor { calls++; return x.Mul(tape.Once(scale)) }, nil},
		"a counter": {false, func(x tensor.Tensor) tensor.Tensor { calls++; return x.Scale(float64(calls)) }, nil},
		"a running mean": {false, func(x tensor.Tensor) tensor.Tensor {
			for i := range tensor.Data[float64](mean) {
				tensor.Data[float64](mean)[i] += 0.1
			}
			return x.Sub(mean)
		}, nil},
		"parameters that change": {false, tensor.Tensor.Exp, func() { tensor.Data[float64](w.Value)[4] += 0.25 }},
	} {
		tape = tensor.NewTape(dev)
		err := tensor.Try(func() {
			for range 3 {
				loss := tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor {
					return c.f(tensor.Linear(in[0], tape.Use(w), tensor.Tensor{}))
				}, tape.Input(tensor.FromSlice([]float64{1, 2, 3, 4, 5, 6}, 2, 3))).Sum()
				if c.between != nil {
					c.between()
				}
				tape.Backward(loss)
				w.Consume()
				tape.Reset()
			}
		})
		if c.right {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, "returned other values when it was run again", name)
		}
		w.Consume()
	}
}

// It is an error if a function calls Once more or less often when it runs again, or if the tensor has a gradient.
func TestOnceWrong(t *testing.T) {
	tape := tensor.NewTape(cpu.New(1))
	c := newChooser()
	for want, f := range map[string]func(x tensor.Tensor) tensor.Tensor{
		"asks for more when it is run again": func(x tensor.Tensor) tensor.Tensor {
			if tape.Recomputing() {
				x = c.forward(tape, x)
			}
			return c.forward(tape, x)
		},
		"did something else when it was run again": func(x tensor.Tensor) tensor.Tensor {
			if !tape.Recomputing() {
				x = c.forward(tape, x)
			}
			return c.forward(tape, x)
		},
		"has a gradient, which would be lost: Detach it": func(x tensor.Tensor) tensor.Tensor {
			return tape.Once(func() tensor.Tensor { return c.forward(tape, x) })
		},
	} {
		err := tensor.Try(func() {
			tape.Backward(tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return f(in[0]) },
				tape.Input(tensor.FromSlice([]float64{1, 2, 3, 4, 5, 6}, 2, 3))).Sum())
		})
		require.ErrorContains(t, err, want)
		tape.Reset()
		c.choices = 0
	}
}

package nn_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A model that runs twice in a microbatch, for a loss of the difference of two masks, has one mask: that is a warning.
func TestDropoutTwice(t *testing.T) {
	for name, c := range map[string]struct {
		run      func(tape *tensor.Tape, d *nn.Dropout, x tensor.Tensor)
		options  []tensor.TapeOption
		warnings int
	}{
		"twice": {func(_ *tensor.Tape, d *nn.Dropout, x tensor.Tensor) {
			assert.Equal(t, tensor.Floats(d.Forward(x)), tensor.Floats(d.Forward(x)))
			d.Forward(x)
		}, nil, 1},
		"a mean of several masks, without Backward": {func(tape *tensor.Tape, d *nn.Dropout, x tensor.Tensor) {
			first := tensor.Floats(d.Forward(x))
			tape.Reset()
			assert.Equal(t, first, tensor.Floats(d.Forward(tape.Input(ones()))))
		}, nil, 1},
		"a tape for each step": {func(_ *tensor.Tape, d *nn.Dropout, _ tensor.Tensor) {
			for range 2 {
				tape := tensor.NewTape(host)
				x := tape.Leaf(ones())
				tape.Backward(d.Forward(x).Sum())
				tape.Close()
			}
		}, nil, 1},
		"channels twice": {func(_ *tensor.Tape, d *nn.Dropout, x tensor.Tensor) {
			two := nn.Dropout2d{Dropout: d}
			two.Forward(x)
			two.Forward(x)
		}, nil, 1},
		"no gradients": {func(_ *tensor.Tape, d *nn.Dropout, x tensor.Tensor) {
			d.Forward(x)
			d.Forward(x)
		}, []tensor.TapeOption{tensor.NoGrad()}, 0},
		"evaluation": {func(_ *tensor.Tape, d *nn.Dropout, x tensor.Tensor) {
			d.Forward(x)
			d.Forward(x)
		}, []tensor.TapeOption{tensor.Eval()}, 0},
		"parts": {func(_ *tensor.Tape, d *nn.Dropout, x tensor.Tensor) {
			d.At = func(tensor.Tensor) tensor.Region { return tensor.Region{} }
			d.Forward(x)
			d.Forward(x)
		}, nil, 0},
		"microbatches, run again, and steps": {func(tape *tensor.Tape, d *nn.Dropout, _ tensor.Tensor) {
			for _, options := range [][]tensor.BackwardOption{{tensor.More()}, nil, nil} {
				x := tape.Leaf(ones())
				y := tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return d.Forward(in[0]) }, x)
				tape.Backward(y.Square().Sum(), options...)
				if options == nil {
					tape.Reset()
				}
			}
		}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log reliability.Log
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(before)
			d := nn.NewDropout(0.5)
			nn.Init(nn.Sequential{d}, host, tensor.Float32, 1)
			tape := tensor.NewTape(host, c.options...)
			defer tape.Close()
			c.run(tape, d, tape.Input(ones()))
			assert.Equal(t, c.warnings, strings.Count(log.String(), "drops the same elements again"), log.String())
		})
	}
}

func ones() tensor.Tensor {
	x := make([]float32, 64)
	for i := range x {
		x[i] = 1
	}
	return tensor.FromSlice(x, 8, 8)
}

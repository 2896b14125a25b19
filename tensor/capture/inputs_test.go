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

// recorder is a CPU device that says it records. What is launched runs at once, so its graphs are empty.
type recorder struct {
	*cpu.Device
	on *tensor.Recording
}

func (d *recorder) BeginGraph(r *tensor.Recording, _ bool) error { d.on = r; return nil }
func (d *recorder) EndGraph() (tensor.Graph, error)              { d.on = nil; return nil, nil }
func (d *recorder) Recording() *tensor.Recording                 { return d.on }
func (d *recorder) Vary(k tensor.Kernel, a *tensor.Args) func()  { k(d.Queue(0), a); return func() {} }

// runs calls a step with batches of n rows of a total, and returns the numbers of those with which the function ran.
func runs(t *testing.T, batches ...[2]int) (ran []int) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("the function always runs")
	}
	dev := &recorder{Device: cpu.New(1)}
	defer dev.Close()
	step := capture.New(dev, func(in ...tensor.Tensor) error {
		ran = append(ran, in[0].Rows().Number)
		return nil
	})
	assert.True(t, capture.On(dev))
	for i, b := range batches {
		rows := tensor.Rows{Stride: 1, Total: b[1], Number: 1 + i}
		require.NoError(t, step.Run(tensor.New(dev, tensor.Float32, b[0], 2).WithRows(rows)))
	}
	require.NoError(t, step.Close())
	assert.False(t, capture.On(dev))
	return ran
}

// A step takes its shapes from its second batch if the first was another part of as many rows: then it runs twice more, and is replayed. In
// another batch the function runs. It sees which batch it is.
func TestUnevenFirstBatch(t *testing.T) {
	usual := [2]int{4, 8}
	assert.Equal(t, []int{1, 2, 3, 4, 7}, runs(t, [2]int{3, 8}, usual, usual, usual, usual, usual, [2]int{2, 6}))
}

// It does not take them from a smaller last batch.
func TestSmallSecondBatch(t *testing.T) {
	usual := [2]int{4, 8}
	assert.Equal(t, []int{1, 2, 3, 4}, runs(t, usual, [2]int{2, 6}, usual, usual, usual, usual))
}

// A replay trains what the recorded step trained. A step may freeze a parameter for a part of its work.
func TestFrozenSinceRecorded(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("the function always runs")
	}
	dev := &recorder{Device: cpu.New(1)}
	defer dev.Close()
	a, b := tensor.NewParam(tensor.UniformInit(-1, 1), 2), tensor.NewParam(tensor.UniformInit(-1, 1), 2)
	a.Make(dev, tensor.Float32, 1)
	b.Make(dev, tensor.Float32, 1)
	tape := tensor.NewTape(dev)
	step := capture.New(dev, func(in ...tensor.Tensor) error {
		b.Freeze()
		tape.Backward(tape.Input(in[0]).Mul(tape.Use(a)).Mul(tape.Use(b)).Sum())
		b.Unfreeze()
		a.Consume()
		tape.Reset()
		return nil
	})
	x := tensor.New(dev, tensor.Float32, 2)
	for range 5 {
		require.NoError(t, step.Run(x))
	}
	a.Freeze()
	require.ErrorContains(t, step.Run(x), "Freeze or Unfreeze of ")
	a.Unfreeze()
	require.Error(t, step.Run(x), "as after each failed replay")
}

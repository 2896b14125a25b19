package ops_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// random returns a tensor outside tapes, uniform in ±1.
func random(dev tensor.Device, d tensor.DType, key uint64, dims ...int) tensor.Tensor {
	x := tensor.New(dev, d, dims...)
	tensor.UniformInit(-1, 1).Fill(x, key, 0)
	return x
}

// A step of operations of this package allocates nothing on the Go heap.
func TestOpsAllocateNothing(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
	dev := tensor.NewCPU(2)
	defer dev.Close()
	tape, table := tensor.NewTape(dev), random(dev, tensor.Float32, 8, 7, 2)
	p := tensor.NewParam(tensor.UniformInit(-1, 1), 2, 6, 4)
	p.SetName("p")
	p.Make(dev, tensor.Float32, 1)
	step := func() {
		turned := ops.Rotary(tape.Use(p), tape.Input(table), ops.RotaryOptions{First: 1})
		tape.Backward(turned.Square().Sum())
		p.Consume()
		tape.Reset()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(20, step))
}

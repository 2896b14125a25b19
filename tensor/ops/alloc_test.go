package ops_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// random returns a tensor outside tapes, uniform in ±1.
func random(dev tensor.Device, d tensor.DType, key uint64, dims ...int) tensor.Tensor {
	x := tensor.New(dev, d, dims...)
	tensor.UniformInit(-1, 1).Fill(x, key, 0)
	return x
}

// param returns a parameter, uniform in ±1.
func param(dev tensor.Device, d tensor.DType, name string, dims ...int) *tensor.Param {
	p := tensor.NewParam(tensor.UniformInit(-1, 1), dims...)
	p.SetName(name)
	p.Make(dev, d, 1)
	return p
}

func skipInDebug(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
}

// A step of operations of this package allocates nothing on the Go heap.
func TestOpsAllocateNothing(t *testing.T) {
	skipInDebug(t)
	dev := cpu.New(2)
	defer dev.Close()
	tape, table := tensor.NewTape(dev), random(dev, tensor.Float32, 8, 7, 2)
	p, w := param(dev, tensor.Float32, "p", 2, 6, 4), param(dev, tensor.Float32, "w", 2, 3, 4)
	counts := tensor.FromSlice([]int32{5, 7}, 2)
	step := func() {
		in, _ := ops.Sort(ops.CumSum(tape.Use(p), 1), 0, true)
		in, _ = ops.TopK(in, 4)
		turned := ops.Rotary(in, tape.Input(table), ops.RotaryOptions{First: 1})
		out := ops.GroupedLinear(turned.Reshape(12, 4), tape.Use(w), counts)
		tape.Backward(out.Square().Sum())
		p.Consume()
		w.Consume()
		tape.Reset()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(20, step))
}

// rowsOf returns n rows of a batch x: first, first+stride, …
func rowsOf(x tensor.Tensor, first, stride, n int) tensor.Tensor {
	y := tensor.New(host, x.DType(), append([]int{n}, x.Shape().Dims[1:]...)...)
	row := len(x.Bytes()) / x.Dim(0)
	for i := range n {
		copy(y.Bytes()[i*row:], x.Bytes()[(first+i*stride)*row:][:row])
	}
	return y.WithRows(tensor.Rows{First: first, Stride: stride, Total: x.Dim(0)})
}

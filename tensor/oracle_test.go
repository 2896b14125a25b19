package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// A kernel whose result differs from its reference, or that writes to its input, is found.
func TestDebugOracle(t *testing.T) {
	dev := &faultyDevice{Device: cpu.New(2), table: *hostDevice.Kernels()}
	defer dev.Close()
	tape := NewTape(dev)
	Check(tape, dev)
	x := tape.Input(New(dev, Float32, 40, 40))
	for i, v := range []float32{1, -2, 3} {
		Data[float32](x)[i] = v
	}
	assert.NoError(t, Try(func() { MatMul(x, x, false, true).Exp() }))
	dev.table[OpMatMul][Float32] = func(q Queue, a *Args) {
		hostDevice.Kernels()[OpMatMul][Float32](q, a)
		Operand[float32](a, 0)[0] += 0x1p-9
	}
	assert.ErrorContains(t, Try(func() { MatMul(x, x, false, true) }),
		"matmul: operand 0 element 0 is 14.001953125, want 14: it differs from the reference")
	dev.table[OpExp][Float32] = func(q Queue, a *Args) {
		hostDevice.Kernels()[OpExp][Float32](q, a)
		Operand[float32](a, 1)[2] = 7
	}
	assert.ErrorContains(t, Try(func() { x.Exp() }), "exp: operand 1 element 2 is 7, want 3: it was written to by the kernel")
	dev.table[OpNeg][Float32] = func(q Queue, a *Args) { Operand[float32](a, 0)[1] = float32(q.(*cpu.Queue).Threads()) }
	assert.ErrorContains(t, Try(func() { x.Neg() }), "neg: operand 0 element 1 is 2, want 1")
}

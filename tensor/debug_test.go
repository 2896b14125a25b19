package tensor

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestDebugMode runs tests of the package again. Every kernel is compared with its reference, and freed memory is filled with NaN.
func TestDebugMode(t *testing.T) {
	if debugMode || reliability.Racing {
		t.Skip("in debug mode already, or slow")
	}
	cmd := exec.Command(os.Args[0],
		"-test.run=Gradient|Values|Views|Pending|Accumulation|LiveTapes|Scope|Rows|Checkpoint|DebugOracle|BorrowedWrite",
		"-test.skip=Threads", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), "RINGO_DEBUG=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A kernel whose result differs from its reference, or that writes to its input, is found.
func TestDebugOracle(t *testing.T) {
	dev := &FaultyDevice{CPU: NewCPU(2), Table: cpuTable}
	defer dev.Close()
	tape := NewTape(dev)
	tape.debug = new(oracle)
	x := tape.Input(New(dev, Float32, 40, 40))
	for i, v := range []float32{1, -2, 3} {
		Data[float32](x)[i] = v
	}
	assert.NoError(t, Try(func() { MatMul(x, x, false, true).Exp() }))
	dev.Table[OpMatMul][Float32] = func(q Queue, a *Args) {
		cpuTable[OpMatMul][Float32](q, a)
		slice[float32](a, 0)[0] += 0x1p-9
	}
	assert.ErrorContains(t, Try(func() { MatMul(x, x, false, true) }),
		"matmul: operand 0 element 0 is 14.001953125, want 14: it differs from the reference")
	dev.Table[OpExp][Float32] = func(q Queue, a *Args) {
		cpuTable[OpExp][Float32](q, a)
		slice[float32](a, 1)[2] = 7
	}
	assert.ErrorContains(t, Try(func() { x.Exp() }), "exp: operand 1 element 2 is 7, want 3: it was written to by the kernel")
	dev.Table[OpNeg][Float32] = func(q Queue, a *Args) { slice[float32](a, 0)[1] = float32(q.(*CPUQueue).pool.n) }
	assert.ErrorContains(t, Try(func() { x.Neg() }), "neg: operand 0 element 1 is 2, want 1")
}

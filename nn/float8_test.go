package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// float8Losses trains a classifier of 64 inputs for 100 steps; hidden layers compute with s.
func float8Losses(t *testing.T, d tensor.DType, s ops.Float8) []float64 {
	const rows, in, hidden, classes = 64, 32, 64, 10
	m := nn.Sequential{nn.NewLinear(in, hidden), nn.GELUTanh, nn.NewLinear(hidden, hidden), nn.GELUTanh, nn.NewLinear(hidden, classes)}
	nn.Float8(m, s, "0", "2")
	ps := nn.Init(m, host, d, 1)
	opt := optim.NewAdamW(ps, optim.AdamWConfig{LR: 3e-3})
	x, y := tensor.New(host, d, rows, in), tensor.New(host, tensor.Int64, rows)
	tensor.NormalInit(0, 1).Fill(x, 7, 0)
	for i := range rows {
		tensor.Data[int64](y)[i] = int64(i * i % classes)
	}
	tape := tensor.NewTape(host)
	defer tape.Close()
	var losses []float64
	for range 100 {
		tape.Reset()
		loss := nn.CrossEntropy(m.Forward(tape.Input(x)), tape.Input(y))
		losses = append(losses, loss.Item())
		tape.Backward(loss)
		require.NoError(t, opt.Step())
	}
	return losses
}

// A model that computes with 8-bit floats learns as one of bfloat16 does: at every step its loss is within 0.01 and 5% of it.
func TestFloat8Trains(t *testing.T) {
	want := float8Losses(t, tensor.BFloat16, ops.NoFloat8)
	require.Less(t, want[99], want[0]/20)
	for _, s := range []ops.Float8{ops.PerTensor, ops.PerRow} {
		got := float8Losses(t, tensor.BFloat16, s)
		require.NotEqual(t, want, got)
		for i, w := range want {
			assert.InDelta(t, w, got[i], 0.01+0.05*w, "step %d, scaling %d", i, s)
		}
	}
}

// What a Linear does besides its product stays: bias, an addition, the activation behind it, an adapter, and the way back.
func TestFloat8Layers(t *testing.T) {
	x, add := tensor.New(host, tensor.Float32, 3, 16), tensor.New(host, tensor.Float32, 3, 32)
	tensor.NormalInit(0, 1).Fill(x, 1, 0)
	tensor.NormalInit(0, 1).Fill(add, 2, 0)
	l := nn.NewLinear(16, 32)
	m := nn.Sequential{l, nn.ReLU}
	nn.LoRA(m, nn.LoRAConfig{Rank: 2, Alpha: 2, Targets: []string{"0"}})
	nn.Init(m, host, tensor.Float32, 1)
	tensor.NormalInit(0, 0.1).Fill(l.Adapter.Up.Value, 3, 0)
	plain := output(m, x)
	nn.Float8(m, ops.PerRow, "*")
	tape := tensor.NewTape(host, tensor.NoGrad())
	defer tape.Close()
	in, a := tape.Input(x), l.Adapter
	low := tensor.Linear(tensor.Linear(in, tape.Use(a.Down), nn.T{}), tape.Use(a.Up), nn.T{})
	want := ops.Float8Linear(in, tape.Use(l.W), ops.PerRow).Add(tape.Use(l.B)).Add(low)
	assert.InDeltaSlice(t, tensor.Floats(want.ReLU()), output(m, x), 1e-6)
	assert.InDeltaSlice(t, tensor.Floats(want.Add(tape.Input(add))), tensor.Floats(l.ForwardAdd(in, tape.Input(add))), 1e-6)
	bare := &nn.Linear{W: l.W, Float8: ops.PerRow}
	sum := ops.Float8Linear(in, tape.Use(l.W), ops.PerRow).Add(tape.Input(add))
	assert.Equal(t, tensor.Floats(sum), tensor.Floats(bare.ForwardAdd(in, tape.Input(add))))
	assert.NotEqual(t, plain, output(m, x))
	assert.InDeltaSlice(t, plain, output(m, x), 0.2)
	nn.Float8(m, ops.NoFloat8, "*")
	assert.Equal(t, plain, output(m, x))
}

// Where a target is refused, the others stay as they were.
func TestFloat8RefusesAll(t *testing.T) {
	m := nn.Sequential{nn.NewLinear(16, 16), nn.NewLinear(16, 10)}
	require.Error(t, tensor.Try(func() { nn.Float8(m, ops.PerRow, "*") }))
	for _, l := range nn.Linears(m) {
		assert.Equal(t, ops.NoFloat8, l.Float8)
	}
	nn.Float8(m, ops.PerRow, "0")
	nn.Init(m, host, tensor.Float64, 1)
	x := tensor.NewTape(host).Input(tensor.New(host, tensor.Float64, 16, 16))
	assert.ErrorContains(t, tensor.Try(func() { m.Forward(x) }), "8-bit floats are for models of bfloat16, float16 and float32")
}

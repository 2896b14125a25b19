package ops_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

var host = cpu.New(1)

// float8Value makes the values of value() in testdata/float8.py, with its outliers in x, as a parameter of type d.
func float8Value(d tensor.DType, salt int, scale float64, outliers bool, dims ...int) *tensor.Param {
	x := tensor.New(host, tensor.Float32, dims...)
	for i, v := range tensor.Data[float32](x) {
		v = float32((float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1) * scale)
		if outliers && i%dims[1] == 5 {
			v = float32((float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1) * scale * 30)
		}
		if outliers && i/dims[1] == 7 {
			v = 0
		}
		tensor.Data[float32](x)[i] = v
	}
	p := tensor.NewParam(tensor.Constant(0), dims...)
	p.Make(host, d, 0)
	tape := tensor.NewTape(host, tensor.NoGrad())
	defer tape.Close()
	tensor.Copy(p.Value, tape.Input(x).Cast(d))
	return p
}

// float8Grads computes a product of 8-bit floats and its gradients.
func float8Grads(d tensor.DType, s ops.Float8) (y, dx, dw []float64) {
	x, w, g := float8Value(d, 1, 3, true, 16, 32), float8Value(d, 2, 0.2, false, 16, 32), float8Value(d, 3, 1e-3, false, 16, 16)
	tape := tensor.NewTape(host)
	defer tape.Close()
	out := ops.Float8Linear(tape.Use(x).Reshape(2, 8, 32), tape.Use(w), s)
	y = tensor.Floats(out)
	tape.BackwardFrom([]tensor.Tensor{out}, []tensor.Tensor{tape.Input(g.Value).Reshape(2, 8, 16)})
	return y, tensor.Floats(x.Grad), tensor.Floats(w.Grad)
}

// Output and gradients equal those of PyTorch's 8-bit floats with torchao's scales; see testdata/float8.py.
func TestFloat8LinearIsPyTorchs(t *testing.T) {
	var cases map[string]map[string][]float64
	b, err := os.ReadFile("testdata/float8.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &cases))
	// Half a unit in the last place of each type.
	for d, eps := range map[tensor.DType]float64{tensor.Float32: 1e-6, tensor.BFloat16: 0x1p-8, tensor.Float16: 0x1p-11} {
		for s, name := range map[ops.Float8]string{ops.PerTensor: "PerTensor", ops.PerRow: "PerRow"} {
			want := cases[d.String()+" "+name]
			require.Len(t, want, 3)
			y, dx, dw := float8Grads(d, s)
			for what, got := range map[string][]float64{"y": y, "dx": dx, "dw": dw} {
				largest := 0.0
				for _, v := range want[what] {
					largest = max(largest, math.Abs(v))
				}
				require.Len(t, got, len(want[what]))
				for i, v := range want[what] {
					require.InDelta(t, v, got[i], 1.01*eps*math.Abs(v)+1e-6*largest, "%v %s: %s[%d]", d, name, what, i)
				}
			}
		}
	}
}

// A NaN or an infinity stays visible in the result; with PerRow, only in its own row.
func TestFloat8LinearOfNaN(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		for _, s := range []ops.Float8{ops.PerTensor, ops.PerRow} {
			x, w := float8Value(tensor.Float32, 1, 1, false, 2, 16), float8Value(tensor.Float32, 2, 1, false, 16, 16)
			tensor.Data[float32](x.Value)[3] = bad
			tape := tensor.NewTape(host, tensor.NoGrad())
			for i, v := range tensor.Floats(ops.Float8Linear(tape.Use(x), tape.Use(w), s)) {
				assert.Equal(t, i < 16 || s == ops.PerTensor, v != v, "element %d with %v and scaling %d", i, bad, s)
			}
			tape.Close()
		}
	}
}

func TestFloat8LinearRefuses(t *testing.T) {
	run := func(d tensor.DType, rows, in, out int, s ops.Float8, grad bool) error {
		x, w := float8Value(d, 1, 1, false, rows, in), float8Value(d, 2, 1, false, out, in)
		tape := tensor.NewTape(host)
		defer tape.Close()
		if !grad {
			w.Freeze()
		}
		return tensor.Try(func() { ops.Float8Linear(tape.Input(x.Value), tape.Use(w), s) })
	}
	assert.ErrorContains(t, run(tensor.Float64, 16, 16, 16, ops.PerRow, true), "8-bit floats are for models of bfloat16, float16 and float32")
	assert.ErrorContains(t, run(tensor.Float32, 16, 24, 16, ops.PerRow, true), "products of 8-bit floats want widths that are multiples of 16")
	assert.ErrorContains(t, run(tensor.Float32, 16, 16, 24, ops.PerTensor, true),
		"products of 8-bit floats want widths that are multiples of 16")
	assert.ErrorContains(t, run(tensor.Float32, 15, 16, 16, ops.PerTensor, true),
		"a number of rows that is a multiple of 16, not 15: change the batch, or take PerRow")
	assert.ErrorContains(t, run(tensor.Float32, 16, 16, 16, ops.NoFloat8, true), "the scaling 0 is neither PerTensor nor PerRow")
	assert.ErrorContains(t, run(tensor.Float32, 16, 16, 16, 3, true), "the scaling 3 is neither PerTensor nor PerRow")
	assert.NoError(t, run(tensor.Float32, 15, 16, 16, ops.PerTensor, false))
	assert.NoError(t, run(tensor.BFloat16, 15, 16, 32, ops.PerRow, true))
	assert.NoError(t, run(tensor.Float32, 0, 16, 32, ops.PerTensor, true))
	for _, s := range []ops.Float8{ops.PerTensor, ops.PerRow} { // also on a device, where no kernel may run for them
		assert.NoError(t, run(tensor.Float32, 16, 32, 0, s, true))
		assert.NoError(t, run(tensor.Float32, 16, 0, 32, s, true))
	}
}

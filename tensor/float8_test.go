package tensor

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// float8Value makes the values of value() in testdata/float8.py, with its outliers in x, as a parameter of type d.
func float8Value(d DType, salt int, scale float64, outliers bool, dims ...int) *Param {
	x := New(hostDevice, Float32, dims...)
	for i, v := range Data[float32](x) {
		v = float32((float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1) * scale)
		if outliers && i%dims[1] == 5 {
			v = float32((float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1) * scale * 30)
		}
		if outliers && i/dims[1] == 7 {
			v = 0
		}
		Data[float32](x)[i] = v
	}
	p := NewParam(Constant(0), dims...)
	p.Make(hostDevice, d, 0)
	tape := NewTape(hostDevice, NoGrad())
	defer tape.Close()
	Copy(p.Value, tape.Input(x).Cast(d))
	return p
}

// float8Grads computes a product of 8-bit floats and its gradients.
func float8Grads(d DType, s Float8) (y, dx, dw []float64) {
	x, w, g := float8Value(d, 1, 3, true, 16, 32), float8Value(d, 2, 0.2, false, 16, 32), float8Value(d, 3, 1e-3, false, 16, 16)
	tape := NewTape(hostDevice)
	defer tape.Close()
	out := Float8Linear(tape.Use(x).Reshape(2, 8, 32), tape.Use(w), s)
	y = Floats(out)
	tape.BackwardFrom([]Tensor{out}, []Tensor{tape.Input(g.Value).Reshape(2, 8, 16)})
	return y, Floats(x.Grad), Floats(w.Grad)
}

// Output and gradients equal those of PyTorch's 8-bit floats with torchao's scales; see testdata/float8.py.
func TestFloat8LinearIsPyTorchs(t *testing.T) {
	var cases map[string]map[string][]float64
	b, err := os.ReadFile("testdata/float8.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &cases))
	for d, eps := range map[DType]float64{Float32: 1e-6, BFloat16: 0x1p-8, Float16: 0x1p-11} { // half a unit in the last place
		for s, name := range map[Float8]string{PerTensor: "PerTensor", PerRow: "PerRow"} {
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
		for _, s := range []Float8{PerTensor, PerRow} {
			x, w := float8Value(Float32, 1, 1, false, 2, 16), float8Value(Float32, 2, 1, false, 16, 16)
			Data[float32](x.Value)[3] = bad
			tape := NewTape(hostDevice, NoGrad())
			for i, v := range Floats(Float8Linear(tape.Use(x), tape.Use(w), s)) {
				assert.Equal(t, i < 16 || s == PerTensor, v != v, "element %d with %v and scaling %d", i, bad, s)
			}
			tape.Close()
		}
	}
}

func TestFloat8LinearRefuses(t *testing.T) {
	run := func(d DType, rows, in, out int, s Float8, grad bool) error {
		x, w := float8Value(d, 1, 1, false, rows, in), float8Value(d, 2, 1, false, out, in)
		tape := NewTape(hostDevice)
		defer tape.Close()
		if !grad {
			w.Freeze()
		}
		return Try(func() { Float8Linear(tape.Input(x.Value), tape.Use(w), s) })
	}
	assert.ErrorContains(t, run(Float64, 16, 16, 16, PerRow, true), "8-bit floats are for models of bfloat16, float16 and float32")
	assert.ErrorContains(t, run(Float32, 16, 24, 16, PerRow, true), "products of 8-bit floats want widths that are multiples of 16")
	assert.ErrorContains(t, run(Float32, 16, 16, 24, PerTensor, true), "products of 8-bit floats want widths that are multiples of 16")
	assert.ErrorContains(t, run(Float32, 15, 16, 16, PerTensor, true),
		"a number of rows that is a multiple of 16, not 15: change the batch, or take PerRow")
	assert.ErrorContains(t, run(Float32, 16, 16, 16, NoFloat8, true), "the scaling 0 is neither PerTensor nor PerRow")
	assert.ErrorContains(t, run(Float32, 16, 16, 16, 3, true), "the scaling 3 is neither PerTensor nor PerRow")
	assert.NoError(t, run(Float32, 15, 16, 16, PerTensor, false))
	assert.NoError(t, run(BFloat16, 15, 16, 32, PerRow, true))
	assert.NoError(t, run(Float32, 0, 16, 32, PerTensor, true))
}

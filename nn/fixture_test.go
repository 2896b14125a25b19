package nn_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// torchCase is one result of PyTorch in testdata/nn.json.
type torchCase struct {
	Y     []float64            `json:"y"`
	Grads map[string][]float64 `json:"grads"`
}

type torchGPT struct {
	Names  []string             `json:"names"`
	Losses []float64            `json:"losses"`
	Norms  []float64            `json:"norms"`
	Grads  map[string][]float64 `json:"grads"`
	After  map[string][]float64 `json:"after"`
}

type fixture struct {
	Cases  map[string]torchCase `json:"cases"`
	Losses map[string]torchCase `json:"losses"`
	GPT    torchGPT             `json:"gpt"`
}

func loadFixture(t *testing.T) (f fixture) {
	t.Helper()
	b, err := os.ReadFile("testdata/nn.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &f))
	return f
}

// value writes the numbers of gen.py's value() into x.
func value(x tensor.Tensor, salt int, scale float64) {
	for i := range x.Len() {
		v := (float64((i*7919+salt*104729+12345)%2003)/1001.5 - 1) * scale
		switch x.DType() {
		case tensor.Float64:
			tensor.Data[float64](x)[i] = v
		case tensor.Float32:
			tensor.Data[float32](x)[i] = float32(v)
		default: // the upper half of a float32, rounded to nearest
			tensor.Data[tensor.BF16](x)[i] = tensor.BF16((math.Float32bits(float32(v)) + 1<<15) >> 16)
		}
	}
}

// labels returns the numbers of gen.py's labels().
func labels(salt, classes int, dims ...int) tensor.Tensor {
	y := tensor.New(host, tensor.Int64, dims...)
	for i := range tensor.Data[int64](y) {
		tensor.Data[int64](y)[i] = int64((i*7 + salt*3) % classes)
	}
	return y
}

var host = cpu.New(2)

// fill gives the i-th parameter the values of salt 100 + i.
func fill(ps nn.Params) {
	for i, p := range ps {
		value(p.Value, 100+i, 0.5)
	}
}

// input returns a parameter with the values of salt: an input whose gradient we want.
func input(d tensor.DType, salt int, scale float64, dims ...int) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(0), dims...)
	p.SetName("input")
	p.Make(host, d, 0)
	value(p.Value, salt, scale)
	return p
}

// backward seeds y with value(2), as gen.py's case().
func backward(t *tensor.Tape, y tensor.Tensor) {
	g := tensor.New(host, y.DType(), y.Shape().Dims...)
	value(g, 2, 1)
	t.Backward(y.Mul(g).Sum())
}

var dtypes = []struct {
	dtype tensor.DType
	tol   float64
}{{tensor.Float64, 1e-12}, {tensor.Float32, 1e-5}, {tensor.BFloat16, 0.05}}

// near requires |got − want| ≤ tol·(1 + |want|) for all elements.
func near(t *testing.T, want []float64, got tensor.Tensor, tol float64, what string) {
	t.Helper()
	g := tensor.Floats(got)
	require.Len(t, g, len(want), what)
	for i := range want {
		if !(math.Abs(g[i]-want[i]) <= tol*(1+math.Abs(want[i]))) {
			assert.Failf(t, "differs from PyTorch", "%s[%d] is %v, want %v", what, i, g[i], want[i])
			return
		}
	}
}

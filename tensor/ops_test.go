package tensor_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// onTape makes a tape on a device of one thread.
func onTape(t *testing.T) *tensor.Tape {
	dev := cpu.New(1)
	t.Cleanup(dev.Close)
	return tensor.NewTape(dev)
}

func gradOf(t *testing.T, x []float64, f func(x tensor.Tensor) tensor.Tensor) []float64 {
	tape := onTape(t)
	p := tensor.NewParam(tensor.Constant(0), len(x))
	p.SetName("x")
	p.Make(tape.Device(), tensor.Float64, 1)
	tensor.Copy(p.Value, tensor.FromSlice(x, len(x)))
	sum := f(tape.Use(p)).Sum() // Backward would give NaN for NaN
	tape.BackwardFrom([]tensor.Tensor{sum}, []tensor.Tensor{tape.Input(tensor.FromSlice([]float64{1}))})
	return tensor.Floats(p.Grad)
}

// TestClampLikePyTorch: the gradient passes at the bounds. NaN stays NaN and has no gradient.
func TestClampLikePyTorch(t *testing.T) {
	x := []float64{-2, -1, 0.5, 1, 3, math.NaN()}
	grad := gradOf(t, x, func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, -1, 1) })
	assert.Equal(t, []float64{0, 1, 1, 1, 0, 0}, grad)
	crossed := gradOf(t, x, func(x tensor.Tensor) tensor.Tensor { return ops.Clamp(x, 2, -3) })
	assert.Equal(t, make([]float64, 6), crossed)
	tape := onTape(t)
	ints := tape.Input(tensor.FromSlice([]uint8{0, 7, 255}, 3))
	assert.Equal(t, []float64{2, 7, 8}, tensor.Floats(ops.Clamp(ints, 1.2, 8.9)))
	assert.Equal(t, []float64{0, 7, 255}, tensor.Floats(ops.Clamp(ints, -1e9, math.Inf(1))))
	wide := tape.Input(tensor.FromSlice([]int64{math.MinInt64, 5, math.MaxInt64}, 3))
	assert.Equal(t, []int64{math.MinInt64, 5, math.MaxInt64}, tensor.Data[int64](ops.Clamp(wide, math.Inf(-1), math.Inf(1))))
	assert.ErrorContains(t, tensor.Try(func() { ops.Clamp(ints, math.NaN(), 1) }), "clamp uint8[3]: a bound is NaN")
}

// TestDetach: the value has the same memory, and no gradient flows through it.
func TestDetach(t *testing.T) {
	grad := gradOf(t, []float64{2, 3}, func(x tensor.Tensor) tensor.Tensor { return x.Mul(x.Square().Detach()) })
	assert.Equal(t, []float64{4, 9}, grad)
	tape := onTape(t)
	x := tape.Input(tensor.FromSlice([]float32{1, 2}, 2))
	assert.Equal(t, x.Ptr(), x.Detach().Ptr())
}

// TestSortKeepsOrder: equal elements stay in order in both directions, as with torch.sort(stable=True).
func TestSortKeepsOrder(t *testing.T) {
	nan := math.NaN()
	x := onTape(t).Input(tensor.FromSlice([]float64{1, nan, 0, 1, nan, 0}, 6))
	_, up := ops.Sort(x, 0, false)
	assert.Equal(t, []int64{2, 5, 0, 3, 1, 4}, tensor.Data[int64](up))
	_, down := ops.Sort(x, 0, true)
	assert.Equal(t, []int64{1, 4, 0, 3, 2, 5}, tensor.Data[int64](down))
}

// TestOpsRefuse: what would give a wrong result without an error is an error that names the operation.
func TestOpsRefuse(t *testing.T) {
	tape := onTape(t)
	ids, x := tape.Input(tensor.FromSlice([]int64{0, 3}, 2)), tape.Input(tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	seven, o := int64(7), ops.CrossEntropyOptions{}
	shared := tensor.NewTape(tape.Device())
	part := shared.Input(tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3).WithRows(tensor.Rows{First: 2, Stride: 1, Total: 8}))
	weights := tensor.FromSlice([]float32{1, 2, 3}, 3)
	for want, f := range map[string]func(){
		"one_hot int64[2], int64[2]: index 1 is 3, not in [0,3)":                func() { ops.OneHot(ids, 3, tensor.Float32) },
		"bincount int64[2], int64[2]: index 1 is 3, not in [0,2)":               func() { ops.Bincount(ids, 2) },
		"one_hot float32[2,3], float32[2,3]: indices must be int64":             func() { ops.OneHot(x, 3, tensor.Float32) },
		"arange: uint8 from 0 to 300 in steps of 1: 299 does not":               func() { ops.Arange(tape, tensor.Uint8, 0, 300, 1) },
		"arange: int32 from 0 to 3 in steps of 0.5: 0.5 does not":               func() { ops.Arange(tape, tensor.Int32, 0, 3, 0.5) },
		"arange: from 0 to 3 in steps of -1":                                    func() { ops.Arange(tape, tensor.Float32, 0, 3, -1) },
		"arange: from 0 to 0 in steps of 0":                                     func() { ops.Arange(tape, tensor.Float32, 0, 0, 0) },
		"and float32[6], float32[6], float32[6]: cpu has no kernel for float32": func() { ops.And(x, x) },
		"not float32[2,3]: needs bool":                                          func() { ops.Not(x) },
		"sort float32[2,3]: no dimension 2":                                     func() { ops.Sort(x, 2, false) },
		"cumsum float32[2,3]: no dimension 5":                                   func() { ops.CumSum(x, 5) },
		"Ignore none with soft targets": func() {
			ops.CrossEntropy(x, x, ops.CrossEntropyOptions{Ignore: &seven})
		},
		"Count has no meaning with PerRow": func() {
			ops.CrossEntropy(x, ids, ops.CrossEntropyOptions{PerRow: true, Count: 3})
		},
		"cross_entropy float32[2,3], int64[2], float32[2,3]: wants weights [classes]": func() {
			ops.CrossEntropy(x, ids, ops.CrossEntropyOptions{Weights: x})
		},
		"cross_entropy float32[2,3], float32[3]: the logits: 2 dimensions, the soft targets: 1 dimension": func() {
			ops.CrossEntropy(x, weights, o)
		},
		"label 1 is 3, of 3 classes": func() {
			ops.CrossEntropy(x, ids, ops.CrossEntropyOptions{Weights: weights, Smoothing: 0.1})
		},
		"classes have weights and the batch is shared between ranks: give Count": func() {
			ops.CrossEntropy(part, tensor.FromSlice([]int64{0, 1}, 2), ops.CrossEntropyOptions{Weights: weights})
		},
	} {
		assert.ErrorContains(t, tensor.Try(f), want)
	}
}

// TestLossesOfParts: the losses of two halves of a batch, weighted or with soft targets, add up to that of the whole.
func TestLossesOfParts(t *testing.T) {
	x, q := make([]float64, 12), make([]float64, 12)
	for i := range x {
		x[i], q[i] = math.Sin(float64(i)), 0.25
	}
	labels, w := []int64{2, 0, 1, 1}, tensor.FromSlice([]float64{1, 2, 4}, 3)
	loss := func(lo, hi int, soft bool) float64 {
		tape := onTape(t)
		in := tape.Input(tensor.FromSlice(x[3*lo:3*hi], hi-lo, 3).WithRows(tensor.Rows{First: lo, Stride: 1, Total: 4}))
		if soft {
			return ops.CrossEntropy(in, tensor.FromSlice(q[3*lo:3*hi], hi-lo, 3), ops.CrossEntropyOptions{Weights: w}).Item()
		}
		y := tensor.FromSlice(labels[lo:hi], hi-lo)
		rows := ops.CrossEntropy(in, y, ops.CrossEntropyOptions{Weights: w, PerRow: true})
		total := ops.CrossEntropy(in, y, ops.CrossEntropyOptions{Weights: w, Count: 4 + 1 + 2 + 2}).Item()
		require.InDelta(t, rows.Sum().Item()/9, total, 1e-15, "rows are divided by nothing")
		return total
	}
	for _, soft := range []bool{false, true} {
		assert.InDelta(t, loss(0, 4, soft), loss(0, 1, soft)+loss(1, 4, soft), 1e-15)
	}
	tape := onTape(t)
	whole := ops.CrossEntropy(tape.Input(tensor.FromSlice(x, 4, 3)), tensor.FromSlice(labels, 4),
		ops.CrossEntropyOptions{Weights: w}).Item()
	assert.InDelta(t, loss(0, 4, false), whole, 1e-15, "the mean is over the labels' weights")
}

package ops_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// half is 4 of 8 rows on ranks along axis 0.
var half = tensor.Rows{Stride: 1, Total: 8, Over: 1}

// upward returns 1, 2, 3, … on no tape.
func upward(dims ...int) tensor.Tensor {
	x := tensor.New(host, tensor.Float64, dims...)
	for i := range tensor.Data[float64](x) {
		tensor.Data[float64](x)[i] = float64(i + 1)
	}
	return x
}

// summedParam returns a parameter of ones whose gradient is summed over axis 0.
func summedParam(dims ...int) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(1), dims...)
	p.Make(host, tensor.Float64, 1)
	p.SumOver(1)
	return p
}

func first(x, _ tensor.Tensor) tensor.Tensor { return x }

// kindOf is the kind of fn's result along an axis, or the error's text.
func kindOf(axis int, fn func() tensor.Tensor) (kind string) {
	if err := tensor.Try(func() { kind = fn().Types().At(axis).String() }); err != nil {
		return err.Error()
	}
	return kind
}

// Along the features, rows stay where they are; along the rows, the result is this rank's own.
func TestPlacesOfRows(t *testing.T) {
	tape := tensor.NewTape(host)
	t.Cleanup(tape.Close)
	x := tape.Input(upward(4, 6).WithRows(half)).Mul(tape.Use(summedParam(6)))
	for i, k := range []struct {
		want string
		fn   func() tensor.Tensor
	}{
		{"varying", func() tensor.Tensor { return ops.CumSum(x, 1) }},
		{"varying", func() tensor.Tensor { return ops.CumSum(x, 1).Mul(x) }}, // else other rows would meet
		{"partial", func() tensor.Tensor { return tensor.GlobalMean(ops.CumSum(x, 1)) }},
		{"varying", func() tensor.Tensor { return first(ops.Sort(x, 1, true)) }},
		{"varying", func() tensor.Tensor { return first(ops.Sort(x, 1, true)).Mul(x) }},
		{"varying", func() tensor.Tensor { return first(ops.TopK(x, 6)).Mul(x) }},
		{"this rank's own", func() tensor.Tensor { return first(ops.Sort(x, 0, false)) }},
		{"this rank's own", func() tensor.Tensor { return first(ops.TopK(x.Permute(1, 0), 2)) }},
		{"this rank's own", func() tensor.Tensor { return ops.CumSum(x, 0) }},
	} {
		assert.Equal(t, k.want, kindOf(0, k.fn), "case %d", i)
	}
}

// A loss of what was computed along this rank's rows is refused, by words that say where it came from.
func TestPlacesRefuse(t *testing.T) {
	for want, fn := range map[string]func(x tensor.Tensor) tensor.Tensor{
		"it came from sort": func(x tensor.Tensor) tensor.Tensor { return first(ops.Sort(x, 0, true)).Slice(0, 0, 2).Sum() },
		"it came from top_k": func(x tensor.Tensor) tensor.Tensor {
			return first(ops.TopK(x.Permute(1, 0), 2)).Sum()
		},
		"it came from cumsum": func(x tensor.Tensor) tensor.Tensor { return ops.CumSum(x, 0).Square().Sum() },
	} {
		tape := tensor.NewTape(host)
		x := tape.Input(upward(4, 6).WithRows(half)).Mul(tape.Use(summedParam(6)))
		assert.ErrorContains(t, tensor.Try(func() { tape.Backward(fn(x)) }), want)
		tape.Close()
	}
}

// Parts of each sequence, and of the features.
func TestPlacesOfParts(t *testing.T) {
	tape := tensor.NewTape(host)
	t.Cleanup(tape.Close)
	in := upward(4, 3, 6).WithRows(tensor.Rows{Stride: 1, Total: 4, Seq: tensor.Spans{First: 3, Total: 6}, Over: 1, SeqOver: 1})
	positions := tape.Input(in).Mul(tape.Use(summedParam(6)))
	assert.Equal(t, "this rank's own", kindOf(0, func() tensor.Tensor { return ops.CumSum(positions, 1) }))

	w := tensor.NewParam(tensor.Constant(1), 6, 4) // 3 of 6 outputs
	w.Place(layout.Axis{Axes: 2, Ranks: 2}, layout.Division{})
	w.Make(host, tensor.Float64, 1)
	w.SumOver(1)
	x := tensor.Linear(tape.Input(upward(4, 4).WithRows(half)), tape.Use(w), tensor.Tensor{})
	for want, fn := range map[string]func() tensor.Tensor{
		"cut":                               func() tensor.Tensor { return ops.CumSum(x, 0) },
		"top_k float64[4,3]: axis 1":        func() tensor.Tensor { return first(ops.TopK(x, 2)) },
		"sort float64[4,3]: axis 1":         func() tensor.Tensor { return first(ops.Sort(x, 1, true)) },
		"cumsum float64[4,3]: axis 1":       func() tensor.Tensor { return ops.CumSum(x, 1) },
		"gather float64[4,3], int64[4,1]: ": func() tensor.Tensor { return first(ops.TopK(tensor.AsPart(x, 2), 1)) },
	} {
		assert.Contains(t, kindOf(1, fn), want)
	}
}

package tensor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// partTape returns a tape and [4, 3, 6], which has 3 of 6 positions of each sequence along axis 0.
func partTape(t *testing.T) (tape *Tape, x Tensor, c func(dims ...int) Tensor) {
	tape = NewTape(hostDevice)
	t.Cleanup(tape.Close)
	in := upward(4, 3, 6).WithRows(Rows{Stride: 1, Total: 4, Seq: Spans{First: 3, Total: 6}, Over: 1, SeqOver: 1})
	x = tape.Input(in).Mul(tape.Use(summedParam(6)))
	return tape, x, func(dims ...int) Tensor { return tape.Input(upward(dims...)) }
}

// Ranks that have parts of each sequence.
func TestPlacesOfPositions(t *testing.T) {
	const held = "is the same on all ranks, but has an element for each of this rank's 3 positions"
	var tape *Tape
	var x Tensor
	var c func(dims ...int) Tensor
	ofRows := func(total int, dims ...int) Tensor { // has no positions
		return tape.Input(upward(dims...).WithRows(Rows{Stride: 1, Total: total}))
	}
	attend := func(q Tensor, k Tensor) Tensor { return ops.CrossAttention(q, k, k, 6, ops.AttentionOptions{}) }
	for i, k := range []struct {
		want string // the kind, or words of the error
		fn   func() Tensor
	}{
		{"varying", func() Tensor { return x.Add(OfPositions(c(3, 6), x)) }},
		{"varying", func() Tensor { return x.Permute(1, 0, 2).Mul(OfPositions(c(3), x).Reshape(3, 1, 1)) }},
		{"varying", func() Tensor { return x.Sum(0) }},
		{"partial", func() Tensor { return x.Sum(1) }},
		{"which has a dimension of positions", func() Tensor { return OfPositions(c(4, 6), RowsLike(c(4, 6), x)) }},
		{"partial", func() Tensor { return MatMul(x.Reshape(12, 6), x.Reshape(12, 6), true, false) }},
		{"varying", func() Tensor { return x.Mul(ofRows(4, 4, 1, 1)) }},
		{"varying", func() Tensor { return ofRows(4, 4, 1, 6).Sub(x) }},
		{"partial", func() Tensor { return GlobalMean(ofRows(4, 4, 1, 1).Mul(x.Sum(2).Reshape(4, 3, 1))) }},
		{"this rank's own", func() Tensor { return x.Mul(ofRows(4, 4, 3, 1)) }},
		{"this rank's own", func() Tensor { return ofRows(4, 4, 3, 1).Mul(x) }},
		{"has not all rows", func() Tensor { return GlobalMean(x.Mul(ofRows(8, 4, 1, 1))) }},
		{held, func() Tensor { return x.Add(c(3, 6)) }},
		{held, func() Tensor { return x.Mul(c(4, 3, 1)) }},
		{held, func() Tensor { return x.Permute(1, 0, 2).Mul(c(3, 1, 6)) }},
		{held, func() Tensor { return x.Add(tape.Use(summedParam(3, 6))) }},
		{held, func() Tensor { return MatMul(c(4, 1, 3), x, false, false) }},
		{"this rank's own", func() Tensor { return first(ops.Max(x, 1)) }},
		{"this rank's own", func() Tensor { return x.Mean(1) }},
		{"this rank's own", func() Tensor { return ops.Softmax(x.Permute(0, 2, 1)) }},
		{"this rank's own", func() Tensor { return x.Sub(Concat(1, x.Slice(1, 2, 3), x.Slice(1, 0, 2))) }},
		{"this rank's own", func() Tensor { return x.Slice(1, 1, 3).Sub(x.Slice(1, 0, 2)) }},
		{"this rank's own", func() Tensor { return MatMul(x, x, false, true) }},
		{"this rank's own", func() Tensor { return Concat(1, tape.Use(summedParam(1, 6)).Broadcast(4, 1, 6), x) }},
		{"has not all rows", func() Tensor { return GlobalMean(x.Slice(1, 1, 3)) }},
		{"has not all rows", func() Tensor { return ops.MSE(x.Slice(1, 0, 2), x.Slice(1, 1, 3)) }},
		{"would see this rank's part of its sequence only", func() Tensor { return attend(ops.Pad(x, 1, 1, 0).Slice(1, 0, 3), x) }},
	} {
		tape, x, c = partTape(t)
		got := ""
		if err := Try(func() { got = k.fn().Types().At(0).String() }); err != nil {
			got = err.Error()
		}
		assert.Contains(t, got, k.want, "case %d", i)
	}
	err := Try(func() { upward(2, 3).WithRows(Rows{Stride: 1, Total: 4, Seq: Spans{Total: 6}, Over: 1}) })
	assert.ErrorContains(t, err, "set SeqOver")
}

// Sums over the positions of each row meet numbers for each row, where ranks have other rows along axis 1 and other positions along axis 0.
func TestRowsWithoutTheirPositions(t *testing.T) {
	for want, rows := range map[string]Rows{
		"partial varying":           {Stride: 1, Total: 4, Over: 2},
		"partial this rank's own":   {Stride: 1, First: 2, Total: 4, Over: 2}, // other rows
		"partial this rank's own ":  {Stride: 1, Total: 8, Over: 2},
		"partial this rank's own  ": {Stride: 1, Total: 4, Over: 4}, // which other ranks have
	} {
		tape := NewTape(hostDevice)
		in := upward(2, 3, 6).WithRows(Rows{Stride: 1, Total: 4, Seq: Spans{First: 3, Total: 6}, Over: 3, SeqOver: 1})
		x := tape.Input(in).Sum(1)
		got := x.Mul(tape.Input(upward(2, 1).WithRows(rows))).Types()
		assert.Equal(t, strings.TrimSpace(want), got.At(0).String()+" "+got.At(1).String(), "%+v", rows)
		tape.Close()
	}
}

// Parts of features.
func TestPlacesOfParts(t *testing.T) {
	tape := NewTape(hostDevice)
	t.Cleanup(tape.Close)
	w := NewParam(Constant(1), 6, 4) // 3 of 6 outputs
	w.Place(layout.Axis{Axes: 2, Ranks: 2}, layout.Division{})
	w.Make(hostDevice, Float64, 1)
	w.SumOver(1)
	for i, k := range []struct {
		want string // the kind on axis 1, or words of the error
		fn   func(x Tensor) Tensor
	}{
		{"cut", func(x Tensor) Tensor { return x.ReLU() }},
		{"cut", func(x Tensor) Tensor { return x.Sum(0) }},
		{"cut", func(x Tensor) Tensor { return ops.Softmax(x.Permute(1, 0)) }},
		{"cut", func(x Tensor) Tensor { return ops.LogSumExp(x.Permute(1, 0)) }},
		{"partial", func(x Tensor) Tensor { return x.Sum(1) }},
		{"partial", func(x Tensor) Tensor { return x.Permute(1, 0).Sum(0) }},
		{"partial", func(x Tensor) Tensor { return MatMul(x, x, false, true) }},
		{"of several of them needs those of the other ranks", func(x Tensor) Tensor { return MatMul(x, x, true, false) }},
		{"of several of them", func(x Tensor) Tensor { return MatMul(tape.Use(w), tape.Use(w), false, true) }},
		{"of several of them", func(x Tensor) Tensor { return x.Reshape(-1, 3, 1).Mul(x.Reshape(-1, 1, 3)) }},
		{"partial", func(x Tensor) Tensor { return MatMul(tape.Use(w), tape.Use(w), true, false) }},
		{"cut", func(x Tensor) Tensor {
			return MatMul(x.Permute(1, 0).Reshape(3, 4, 1), x.Permute(1, 0).Reshape(3, 4, 1), false, true)
		}},
		{"has an element for each of this rank's 3 features", func(x Tensor) Tensor { return x.Mul(tape.Input(upward(3))) }},
		{"this rank's 3 features", func(x Tensor) Tensor { return x.Add(tape.Input(upward(4, 3).WithRows(half)).Detach()) }},
		{"this rank's 3 features", func(x Tensor) Tensor { return x.Reshape(4, 3, 1).Sub(tape.Input(upward(3, 2))) }},
		{"cut", func(x Tensor) Tensor { return x.Mul(tape.Input(upward(3).WithTypes(Types{}.With(2, Cut)))) }},
		{"cut", func(x Tensor) Tensor { return x.Mul(tape.Input(FromSlice([]float64{2, 2, 2}, 3))) }},
		{"cut", func(x Tensor) Tensor { return x.Mul(tape.Input(upward(4, 1).WithRows(half))) }},
		{"is a partial sum", func(x Tensor) Tensor { return ops.Softmax(MatMul(x, x, false, true)) }},
		{"logsumexp float64[4,3]: axis 1", func(x Tensor) Tensor { return ops.LogSumExp(x) }},
		{"softmax float64[4,3]: axis 1", func(x Tensor) Tensor { return ops.Softmax(x) }},
		{"max float64[4,3]: axis 1", func(x Tensor) Tensor { return first(ops.Max(x, 1)) }},
		{"this rank's own", func(x Tensor) Tensor { return x.Mean(1) }},
		{"axis 1", func(x Tensor) Tensor { return GlobalMean(x) }},
		{"rms_norm float64[4,3]", func(x Tensor) Tensor { return ops.RMSNorm(x, Tensor{}, 1e-5) }},
		{"is a partial sum", func(x Tensor) Tensor { return x.Exp().Sum(1).Log() }},
	} {
		x := Linear(tape.Input(upward(4, 4).WithRows(half)), tape.Use(w), Tensor{})
		got := ""
		if err := Try(func() { got = k.fn(x).Types().At(1).String() }); err != nil {
			got = err.Error()
		}
		assert.Contains(t, got, k.want, "case %d", i)
	}
}

// A product of parts of the features with the parts of the weights that belong to them is a part of a sum, until it is summed.
func TestPlacesOfProductsOfParts(t *testing.T) {
	tape := NewTape(hostDevice)
	t.Cleanup(tape.Close)
	part := func(dim int, dims ...int) *Param {
		p := NewParam(Constant(1), dims...)
		p.Place(layout.Axis{Axes: 2, Ranks: 2}, layout.Division{Dim: dim})
		p.Make(hostDevice, Float64, 1)
		p.SumOver(1)
		return p
	}
	up, down := part(0, 6, 4), part(1, 5, 6)
	bias, frozen := summedParam(5), summedParam(5)
	frozen.Freeze()
	const nonlinear, added = "is a partial sum: it must be summed", "would count once for each rank"
	for i, k := range []struct {
		want string // the kind on axis 1, or words of the error
		fn   func(y, w Tensor) Tensor
	}{
		{"partial", func(y, w Tensor) Tensor { return Linear(y, w, Tensor{}) }},
		{"partial", func(y, w Tensor) Tensor { return Linear(y.Reshape(2, 2, 3), w, Tensor{}).Scale(2) }},
		{"partial", func(y, w Tensor) Tensor { return MatMul(y, w, false, true) }},
		{"cut", func(y, w Tensor) Tensor { return Linear(y.Permute(1, 0), tape.Use(summedParam(5, 4)), Tensor{}) }},
		{nonlinear, func(y, w Tensor) Tensor { return Linear(y, w, Tensor{}).GELU() }},
		{nonlinear, func(y, w Tensor) Tensor { return LinearAct(y, w, Tensor{}, ActGELU) }},
		{nonlinear, func(y, w Tensor) Tensor { return ops.RMSNorm(Linear(y, w, Tensor{}), Tensor{}, 1e-5) }},
		{nonlinear, func(y, w Tensor) Tensor { return Linear(y, w, Tensor{}).Square() }},
		{"axis 1", func(y, w Tensor) Tensor { return Linear(y, w, tape.Use(bias)) }},
		{added, func(y, w Tensor) Tensor { return Linear(y, w, tape.Use(frozen)) }},
		{added, func(y, w Tensor) Tensor { return Linear(y, w, Tensor{}).Add(tape.Use(frozen)) }},
		{"axis 1", func(y, w Tensor) Tensor { return Linear(y, w, Tensor{}).Add(y.Slice(1, 0, 1)) }},
	} {
		y := Linear(tape.Input(upward(4, 4).WithRows(half)), tape.Use(up), Tensor{}).GELU()
		got := ""
		if err := Try(func() { got = k.fn(y, tape.Use(down)).Types().At(1).String() }); err != nil {
			got = err.Error()
		}
		assert.Contains(t, got, k.want, "case %d", i)
	}
}

// The last input does not decide for all, and a NoGrad tape keeps what it knows.
func TestPlacesOfBatches(t *testing.T) {
	tape, x, c := batchTape(t)
	y := tape.Input(upward(2, 6).WithRows(Rows{Stride: 1, Total: 6, Over: 1}))
	plain := c(4, 6)
	for i, want := range []int{48, 36, 8, 96, 84} {
		got := GlobalCount([]Tensor{x, y, x.Sum(1), Concat(0, x, x), Concat(0, x, y)}[i])
		assert.Equal(t, want, got, "case %d", i)
	}
	assert.Equal(t, "partial", placeOf(x.Sum(0)), "after another input")
	tape.Input(upward(4, 6).WithRows(Rows{Stride: 1, Total: 4}))
	assert.Equal(t, "partial", placeOf(MatMul(x, x, true, false)), "after an input that all ranks have")
	assert.Equal(t, 48, GlobalCount(x))
	assert.ErrorContains(t, Try(func() { x.Add(plain) }), "has an element for each of this rank's 4 rows")

	quiet := NewTape(hostDevice, NoGrad())
	t.Cleanup(quiet.Close)
	in := quiet.Input(upward(4, 6).WithRows(half))
	other := NewTape(hostDevice)
	t.Cleanup(other.Close)
	f := other.Input(in.Scale(2).ReLU())
	assert.Equal(t, []any{"varying 1", 48}, []any{placeOf(f), GlobalCount(f)})
	assert.Equal(t, "partial", placeOf(other.Input(MatMul(in, in, true, false))))
	assert.Equal(t, "this rank's own", placeOf(other.Input(in.Sub(in.Mean(0)))))
	assert.Equal(t, "this rank's own", placeOf(other.Input(first(ops.Max(in, 0)))))
	assert.ErrorContains(t, Try(func() { f.Mul(other.Input(upward(4, 1))) }), "has an element for each of this rank's 4 rows")

	groups := other.Input(upward(4, 6).WithRows(Rows{Stride: 1, Total: 8, Over: 1, Group: 2})).Reshape(2, 2, 6)
	assert.Equal(t, []any{"varying 1", 24}, []any{placeOf(groups.Mean(1)), GlobalCount(groups.Mean(1))})
	assert.Equal(t, "varying 1", placeOf(first(ops.Max(groups, 1))))
	assert.Equal(t, "this rank's own", placeOf(first(ops.Max(groups, 0))))
	assert.ErrorContains(t, Try(func() { groups.Mul(other.Input(upward(2, 2, 1))) }), "has an element for each of this rank's 2 rows")
}

// folded sums all elements; whole says that the result is no part of the features.
type folded struct{ dims []int }

func (*folded) Name() string { return "folded" }
func (f *folded) Forward(_ *Ctx, in []Tensor) Tensor {
	return in[0].Sum().Reshape(f.dims...)
}
func (*folded) Backward(*Ctx, Tensor, []Tensor) {}

type whole struct{ folded }

func (*whole) Types(in []Types, _ Axes) ([]Types, error) {
	return []Types{in[0].With(in[0].On(Cut), Partial)}, nil
}

// What a Function returns has no dimension of rows or parts that it lacks.
func TestPlacesOfFunctions(t *testing.T) {
	tape := NewTape(hostDevice)
	t.Cleanup(tape.Close)
	x := tape.Input(upward(4, 3).WithRows(half).WithTypes(Types{}.With(1, Varying).With(2, Cut)))
	CutAlong(x, 2)
	for _, f := range []Function{&folded{}, &whole{}} {
		assert.NoError(t, Try(func() { tape.Apply(f, x).Reshape(1).Reshape(1, 1) }))
	}
	y := tape.Apply(&whole{folded{[]int{1, 1}}}, x)
	assert.Zero(t, PlaceOf(y).Cut())
}

// Zeros do not count twice in a partial sum. What is made of them may be something else.
func TestZerosInPartialSums(t *testing.T) {
	for name, f := range map[string]func(zeros Tensor) Tensor{
		"as they are": func(z Tensor) Tensor { return z },
		"moved":       func(z Tensor) Tensor { return z.Reshape(2, 3).Permute(1, 0).Slice(1, 0, 1) },
	} {
		tape := typeTape(t)
		y := of(tape, Partial)
		z := f(tape.Zeros(Float64, 3, 2))
		require.NoError(t, Try(func() { assert.Equal(t, Partial, z.Add(y).Types().At(0)) }), name)
	}
	for name, f := range map[string]func(zeros Tensor) Tensor{
		"exp":     Tensor.Exp,
		"softmax": ops.Softmax,
		"pad":     func(z Tensor) Tensor { return ops.Pad(z.Slice(1, 0, 1).Affine(1, 1), 1, 0, 1) },
		"concat":  func(z Tensor) Tensor { return Concat(1, z.Slice(1, 0, 1), z.Exp().Slice(1, 0, 1)) },
	} {
		tape := typeTape(t)
		y := of(tape, Partial)
		z := f(tape.Zeros(Float64, 3, 2))
		require.ErrorContains(t, Try(func() { z.Add(y) }), "would count once for each rank", name)
	}
}

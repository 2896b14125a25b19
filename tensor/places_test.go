package tensor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// half is 4 of 8 rows on ranks along axis 0.
var half = Rows{Stride: 1, Total: 8, Over: 1}

// upward returns 1, 2, 3, … on no tape.
func upward(dims ...int) Tensor {
	x := New(hostDevice, Float64, dims...)
	for i := range Data[float64](x) {
		Data[float64](x)[i] = float64(i + 1)
	}
	return x
}

// batchTape returns a tape and 4 of 8 rows of 6 features on it, and a function for constants.
func batchTape(t *testing.T) (tape *Tape, x Tensor, c func(dims ...int) Tensor) {
	tape = NewTape(hostDevice)
	t.Cleanup(tape.Close)
	return tape, tape.Input(upward(4, 6).WithRows(half)), func(dims ...int) Tensor { return tape.Input(upward(dims...)) }
}

// placeOf prints the kind on axis 0, and where the rows are if they are somewhere.
func placeOf(x Tensor) string {
	s := PlaceOf(x).Rows()
	kind := x.Types().At(0).String()
	if s.Dims() == 0 || x.Types().At(0) == Own {
		return kind
	}
	mode := [...]string{layout.Exact: "", layout.Portion: " portion", layout.Loose: " loose"}[s.Mode()]
	if s.Mode() == layout.Exact && s.Outer() > 1 {
		mode = fmt.Sprintf(" %d×", s.Outer())
	}
	return fmt.Sprintf("%s%s %b", kind, mode, s.Dims())
}

// summedParam returns a parameter of ones whose gradient is summed over axis 0.
func summedParam(dims ...int) *Param {
	p := ones(dims...)
	p.SumOver(1)
	return p
}

func first(x, _ Tensor) Tensor { return x }

// env has what programs use.
type env struct {
	tape                     *Tape
	x, cube, major, table, w Tensor // x is [4, 6], cube [4, 2, 3] and major [2, 4, 3]
	c                        func(dims ...int) Tensor
}

func newEnv(t *testing.T) *env {
	e := &env{}
	e.tape, e.x, e.c = batchTape(t)
	e.x = e.x.Mul(e.tape.Use(summedParam(6)))
	e.table, e.w = e.tape.Use(summedParam(4, 6)).Scale(2), e.tape.Use(summedParam(6, 6))
	e.cube = e.x.Reshape(4, 2, 3)
	e.major = e.cube.Permute(1, 0, 2)
	return e
}

func (e *env) zeros(n ...int) Tensor { return e.tape.Input(New(hostDevice, Int64, n...)) }
func (e *env) ids(n ...int) Tensor {
	return e.tape.Input(FromSlice([]int64{3, 1, 0, 2}, 4).Reshape(n...))
}
func (e *env) flags() Tensor    { return e.tape.Input(FromSlice([]bool{true, false, true, true}, 4, 1)) }
func (e *env) positive() Tensor { return e.x.Gt(e.x.Scale(0)) }
func (e *env) roll() Tensor     { return Concat(0, e.x.Slice(0, 3, 4), e.x.Slice(0, 0, 3)) }
func (e *env) best() Tensor     { return ops.ArgMax(e.x.Slice(1, 0, 4), 1).Reshape(4, 1).Broadcast(4, 6) }
func (e *env) scores() Tensor   { return MatMul(e.x, e.x, false, true) }

// own are labels of other rows.
func (e *env) own() Tensor {
	y := e.tape.Input(New(hostDevice, Int64, 4).WithRows(half))
	return Concat(0, y.Slice(0, 3, 4), y.Slice(0, 0, 3))
}

type placeCase struct {
	want string
	fn   func(e *env) Tensor
}

// placesOf has the kind of an operation's output and the dimensions of its rows, as bits.
var placesOf = []placeCase{
	{"varying 1", func(e *env) Tensor { return ops.Softmax(Linear(e.x, e.w, Tensor{}).ReLU()) }},
	{"varying 1", func(e *env) Tensor { return ops.LayerNorm(e.x, e.tape.Use(summedParam(6)), Tensor{}, 1e-5) }},
	{"varying 1", func(e *env) Tensor { return e.x.Add(e.c(6)).Mul(e.c(1, 6)) }},
	{"varying 1", func(e *env) Tensor { return first(ops.Max(e.x, 1)) }},
	{"varying 1", func(e *env) Tensor { return ops.LogSumExp(e.x) }},
	// Other layouts.
	{"varying 10", func(e *env) Tensor { return e.x.Permute(1, 0) }},
	{"varying 10", func(e *env) Tensor { return e.major }},
	{"varying 2× 1", func(e *env) Tensor { return e.major.Reshape(8, 3) }},
	{"varying 10", func(e *env) Tensor { return e.major.Reshape(8, 3).Reshape(2, 4, 3) }},
	{"varying 1", func(e *env) Tensor { return e.major.Sum(0) }},
	{"varying 11", func(e *env) Tensor { return e.x.Reshape(2, 2, 6) }},
	{"varying 1", func(e *env) Tensor { return e.x.Reshape(2, 2, 6).Reshape(4, 6) }},
	{"varying 2× 1", func(e *env) Tensor { return Concat(0, e.x, e.x) }},
	{"varying 1", func(e *env) Tensor { return Concat(0, e.x.Slice(0, 0, 1), e.x.Slice(0, 1, 4)) }},
	{"varying portion 1", func(e *env) Tensor { return e.x.Slice(0, 1, 3) }},
	{"varying loose 1", func(e *env) Tensor { return Concat(0, e.x.Slice(0, 3, 4), e.x.Slice(0, 0, 3)) }},
	{"varying loose 1", func(e *env) Tensor { return ops.Embedding(e.x, e.ids(4)) }},
	{"this rank's own", func(e *env) Tensor { return ops.Embedding(e.x, e.zeros(3)) }},
	{"this rank's own", func(e *env) Tensor { return ops.Gather(e.x, 0, e.zeros(2, 6)) }},
	{"this rank's own", func(e *env) Tensor { return ops.Gather(e.x.Sum(1), 0, e.ids(4).Slice(0, 0, 3)) }},
	{"varying loose 1", func(e *env) Tensor { return ops.Gather(e.x.Sum(1), 0, e.ids(4)) }},
	{"varying 1", func(e *env) Tensor { return ops.Gather(e.x, 1, e.zeros(4, 2)) }},
	{"this rank's own", func(e *env) Tensor { return Concat(0, e.x, e.c(3, 6)) }},
	{"this rank's own", func(e *env) Tensor { return Concat(0, e.x, e.tape.Zeros(Float64, 1, 6)).Exp() }},
	{"varying 1", func(e *env) Tensor { return Concat(0, e.x.Slice(0, 4, 4), e.x, e.x.Slice(0, 0, 0)) }},
	{"varying 1", func(e *env) Tensor { return Concat(0, e.x.Slice(0, 0, 1), e.x.Slice(0, 1, 1), e.x.Slice(0, 1, 4)) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Sum(0).Cast(Int64) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Sum().Cast(Bool) }},
	{"varying loose 1", func(e *env) Tensor { return ops.Pad(e.x, 0, 1, 0) }},
	// Sums over rows.
	{"partial", func(e *env) Tensor { return e.x.Sum(0) }},
	{"partial", func(e *env) Tensor { return e.major.Sum(1) }},
	{"partial", func(e *env) Tensor { return e.x.Reshape(2, 2, 6).Sum(0, 1) }},
	{"partial", func(e *env) Tensor { return e.x.Reshape(24).Sum(0) }},
	{"partial", func(e *env) Tensor { return MatMul(e.x, e.x, true, false) }},
	{"partial", func(e *env) Tensor { return MatMul(e.c(1).Broadcast(1, 4), e.x, false, false) }},
	{"partial", func(e *env) Tensor { return MatMul(e.x.Permute(1, 0), e.x, false, false) }},
	{"partial", func(e *env) Tensor { return ops.ScatterAdd(e.tape.Zeros(Float64, 4, 6), 0, e.zeros(4, 6), e.x) }},
	{"partial", func(e *env) Tensor { return ops.Bincount(ops.ArgMax(e.x, 1), 6) }},
	{"partial", func(e *env) Tensor { return e.x.Slice(0, 0, 2).Sum(0) }},
	// A product of each row.
	{"varying 1", func(e *env) Tensor { return MatMul(e.cube, e.cube, false, true) }},
	{"varying 1", func(e *env) Tensor { return MatMul(e.x, e.c(6, 2), false, false) }},
	// What has no meaning for the sum over ranks.
	{"this rank's own", func(e *env) Tensor { return e.x.Mean(0) }},
	{"this rank's own", func(e *env) Tensor { return first(ops.Max(e.x, 0)) }},
	{"this rank's own", func(e *env) Tensor { return first(ops.Min(e.x, 0)) }},
	{"this rank's own", func(e *env) Tensor { return ops.Softmax(e.x.Permute(1, 0)) }},
	{"this rank's own", func(e *env) Tensor { return ops.LogSoftmax(e.x.Permute(1, 0)) }},
	{"this rank's own", func(e *env) Tensor { return ops.LogSumExp(e.x.Permute(1, 0)) }},
	{"this rank's own", func(e *env) Tensor {
		return ops.LayerNorm(e.x.Permute(1, 0), e.tape.Use(summedParam(4)), Tensor{}, 1e-5)
	}},
	{"this rank's own", func(e *env) Tensor { return ops.RMSNorm(e.x.Reshape(24), e.tape.Use(summedParam(24)), 1e-5) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Reshape(2, 2, 6).Sum(1) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Reshape(2, 12).Sum(1) }},
	{"this rank's own", func(e *env) Tensor { return ops.Softmax(ops.Softmax(e.x.Reshape(2, 2, 6)).Permute(0, 2, 1)) }},
	// Rows that meet other rows.
	{"this rank's own", func(e *env) Tensor { return MatMul(e.x, e.x, false, true) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Reshape(4, 1, 6).Sub(e.x.Reshape(1, 4, 6)) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Mul(Concat(0, e.x.Slice(0, 3, 4), e.x.Slice(0, 0, 3))) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Slice(0, 0, 2).Sub(e.x.Slice(0, 2, 4)) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Add(ops.Embedding(e.x, e.zeros(4))) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Add(ops.Gather(e.x, 0, e.zeros(4, 6))) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Sub(e.x.Slice(0, 0, 1)) }},
	{"this rank's own", func(e *env) Tensor { return e.x.Permute(1, 0).Mul(e.c(6, 1)).Reshape(4, 6).Add(e.x) }},
	{"this rank's own", func(e *env) Tensor { return Concat(1, e.x, ops.Embedding(e.x, e.zeros(4))) }},
	{"this rank's own", func(e *env) Tensor {
		return ops.Attention(e.x.Permute(1, 0).Reshape(1, 4, 6), 2, ops.AttentionOptions{})
	}},
	{"this rank's own", func(e *env) Tensor { return ops.Rotary(e.x.Reshape(1, 4, 6), e.c(4, 6), ops.RotaryOptions{}) }},
	{"this rank's own", func(e *env) Tensor {
		return ops.Rotary(ops.Pad(e.x.Reshape(2, 4, 3), 2, 0, 1), e.c(4, 4), ops.RotaryOptions{})
	}},
	{"varying 1", func(e *env) Tensor { return ops.Rotary(e.x.Reshape(4, 1, 6), e.c(4, 6), ops.RotaryOptions{}) }},
	{"varying 10", func(e *env) Tensor { return ops.Rotary(e.x.Reshape(1, 4, 6), e.x.Detach(), ops.RotaryOptions{}) }},
	{"varying 1", func(e *env) Tensor { return ops.Rotary(e.x.Reshape(4, 3, 2), e.c(4, 2), ops.RotaryOptions{}) }},
	{"this rank's own", func(e *env) Tensor { return e.tape.Apply(rowSums{}, e.x) }},
	{"varying 1", func(e *env) Tensor { return e.tape.Apply(plainFunction{}, e.x) }},
	{"varying 1", func(e *env) Tensor { return RowsLike(ops.Embedding(e.x, e.ids(4)), e.x).Add(e.x) }},
	{"varying loose 1", func(e *env) Tensor { y := e.ids(4); return ops.Embedding(e.x, y).Add(ops.Embedding(e.x.Square(), y)) }},
}

func TestPlacesOfOperations(t *testing.T) {
	for i, k := range placesOf {
		got := ""
		if err := Try(func() { got = placeOf(k.fn(newEnv(t))) }); err != nil {
			got = err.Error()
		}
		assert.Equal(t, k.want, got, "case %d", i)
	}
}

// rowSums is a Function without Types whose output lacks the dimension of rows.
type rowSums struct{ identity }

func (rowSums) Name() string { return "row_sums" }

func (rowSums) Forward(_ *Ctx, in []Tensor) Tensor { return in[0].Sum(0) }

const held = "is the same on all ranks, but has an element for each of this rank's"

// wrong are losses that would give wrong gradients, and words of their errors.
var wrong = []placeCase{
	// Constants that belong to rows.
	{"mul", func(e *env) Tensor { return e.x.Mul(e.c(4, 1)) }},
	{"add float64[4,6], float64[4,6]: axis 0: input 1 " + held, func(e *env) Tensor { return e.x.Add(e.c(4, 6)) }},
	{held, func(e *env) Tensor { return e.c(4, 6).Sub(e.x) }},
	{held, func(e *env) Tensor { return e.x.Add(e.c(4, 6).Slice(0, 0, 4).Exp()) }},
	{held, func(e *env) Tensor { return e.x.Add(e.table) }},
	{held, func(e *env) Tensor { return ops.Where(e.flags(), e.x, e.x.Scale(0)) }},
	{held, func(e *env) Tensor { return ops.Where(e.positive(), e.x, e.c(4, 6)) }},
	{held, func(e *env) Tensor { return Concat(1, e.x, e.c(4, 1)) }},
	{held, func(e *env) Tensor { return MatMul(e.c(1, 4), e.x, false, false) }},
	{held, func(e *env) Tensor { return MatMul(e.x, e.c(4, 2), true, false) }},
	{held, func(e *env) Tensor { return MatMul(e.cube, e.c(4, 3, 2), false, false) }},
	{held, func(e *env) Tensor { return e.cube.Permute(1, 0, 2).Mul(e.c(4, 1)) }},
	{held, func(e *env) Tensor { return e.cube.Permute(1, 0, 2).Mul(e.c(1, 4).Reshape(1, 4, 1)) }},
	{held, func(e *env) Tensor { return e.x.Reshape(2, 2, 6).Mul(e.c(2, 2, 1)) }},
	{held, func(e *env) Tensor {
		return ops.CrossAttention(e.cube, e.c(4, 5, 3), e.c(4, 5, 3), 3, ops.AttentionOptions{})
	}},
	{held, func(e *env) Tensor { return ops.LogSoftmax(e.x).Mul(e.c(4).Reshape(4, 1)) }},
	{held, func(e *env) Tensor { return e.x.Mul(ops.OneHot(e.ids(4), 6, Float64)) }},
	{held, func(e *env) Tensor { return ops.Gather(e.x, 1, e.ids(4, 1)) }},
	// Sums that are not over all rows, or not linear.
	{"it came from mean", func(e *env) Tensor { return e.x.Mean() }},
	{"it came from mean", func(e *env) Tensor { return GlobalMean(e.x.Sub(e.x.Mean(0)).Square()) }},
	{"it came from max, which is not linear, over this rank's rows", func(e *env) Tensor { return first(ops.Max(e.x, 0)).Sum() }},
	{"it came from min", func(e *env) Tensor { return first(ops.Min(e.x, 0)).Sum() }},
	{"it came from softmax", func(e *env) Tensor { return ops.Softmax(e.x.Permute(1, 0)).Square().Sum() }},
	{"it came from log_softmax", func(e *env) Tensor { return ops.LogSoftmax(e.x.Permute(1, 0)).Slice(0, 0, 1).Sum() }},
	{"it came from logsumexp", func(e *env) Tensor { return ops.LogSumExp(e.x.Permute(1, 0)).Sum() }},
	{"it came from logsumexp", func(e *env) Tensor { return ops.LogSumExp(e.x.Reshape(24)) }},
	{"Rows.Group", func(e *env) Tensor { return e.x.Reshape(2, 2, 6).Sum(1).Square().Sum() }},
	{"Rows.Group", func(e *env) Tensor { return first(e.x.Reshape(2, 12).Mean(1).Square().Sum(), e.x) }},
	{"it came from max", func(e *env) Tensor { return first(ops.Max(e.x.Reshape(2, 2, 6), 1)).Sum() }},
	{"is a partial sum", func(e *env) Tensor { return MatMul(e.x, e.x, true, false).Square().Sum() }},
	{"is a partial sum", func(e *env) Tensor { return MatMul(e.c(1).Broadcast(1, 4), e.x, false, false).Exp().Sum() }},
	{"is a partial sum", func(e *env) Tensor {
		return ops.ScatterAdd(e.tape.Zeros(Float64, 4, 6), 0, e.best(), e.x).Square().Sum()
	}},
	{"begin with Tape.Zeros", func(e *env) Tensor { return ops.ScatterAdd(e.c(4, 6), 0, e.best(), e.x).Sum() }},
	{"is a partial sum", func(e *env) Tensor { return e.x.Div(e.x.Abs().Sum().Reshape(1)).Sum() }},
	{"is a partial sum", func(e *env) Tensor { return e.x.Mul(ops.Bincount(ops.ArgMax(e.x, 1), 6).Cast(Float64)).Sum() }},
	// Rows of this rank that meet.
	{"a product of rows of this rank", func(e *env) Tensor { return ops.LogSoftmax(e.scores()).Sum() }},
	{"it came from", func(e *env) Tensor { return ops.CrossEntropy(e.scores(), e.ids(4), ops.CrossEntropyOptions{}) }},
	{"it came from sub, where other rows of this rank meet", func(e *env) Tensor {
		return e.x.Reshape(4, 1, 6).Sub(e.x.Reshape(1, 4, 6)).Sum()
	}},
	{"it came from mul", func(e *env) Tensor { return e.x.Mul(e.roll()).Sum() }},
	{"it came from add", func(e *env) Tensor { return e.x.Add(ops.Embedding(e.x, e.ids(4))).Square().Sum() }},
	{"it came from add", func(e *env) Tensor { return e.x.Add(ops.Gather(e.x, 0, e.ids(4, 1).Broadcast(4, 6))).Square().Sum() }},
	{"it came from sub", func(e *env) Tensor { return e.x.Slice(0, 0, 2).Sub(e.x.Slice(0, 2, 4)).Square().Sum() }},
	{"it came from", func(e *env) Tensor { return ops.MSE(e.x, e.roll()) }},
	{"it came from cross_entropy", func(e *env) Tensor { return ops.CrossEntropy(e.x, e.own(), ops.CrossEntropyOptions{}) }},
	{"it came from cross_entropy", func(e *env) Tensor {
		return ops.CrossEntropy(e.x, e.own(), ops.CrossEntropyOptions{PerRow: true}).Sum()
	}},
	{"it came from cross_entropy", func(e *env) Tensor {
		return ops.CrossEntropy(e.x.Slice(1, 0, 4).Permute(1, 0), e.ids(4), ops.CrossEntropyOptions{})
	}},
	{"has not all rows", func(e *env) Tensor { return ops.MSE(ops.Embedding(e.x, e.ids(4)), e.x) }},
	{"it came from", func(e *env) Tensor { return ops.BCEWithLogits(e.x, e.roll()) }},
	{"it came from concat", func(e *env) Tensor { return Concat(0, e.x, e.table.Slice(0, 0, 1)).Square().Sum() }},
	{"it came from concat", func(e *env) Tensor { return Concat(1, e.x, e.roll()).Square().Sum() }},
	{"it came from", func(e *env) Tensor { return ops.Where(e.positive(), e.x, e.roll()).Sum() }},
	{"it came from", func(e *env) Tensor {
		return ops.CrossAttention(e.cube, ops.Embedding(e.x, e.ids(4)).Reshape(4, 2, 3), e.cube, 3, ops.AttentionOptions{}).Sum()
	}},
	{"it came from rotary, whose positions are this rank's rows", func(e *env) Tensor {
		return ops.Rotary(e.x.Reshape(1, 4, 6), e.c(4, 6), ops.RotaryOptions{}).Square().Sum()
	}},
	{"it came from row_sums", func(e *env) Tensor { return e.tape.Apply(rowSums{}, e.x).Square().Sum() }},
	{"has not all rows", func(e *env) Tensor { return GlobalMean(e.x.Slice(0, 1, 3)) }},
	{"has not all rows", func(e *env) Tensor { return GlobalMean(ops.Embedding(e.x, e.ids(4).Slice(0, 0, 3))) }},
	{"has not all rows", func(e *env) Tensor { return ops.MSE(e.x.Slice(0, 0, 2), e.x.Slice(0, 0, 2)) }},
	{"has not all rows", func(e *env) Tensor {
		return ops.CrossEntropy(e.x.Slice(0, 0, 2), e.ids(4).Slice(0, 0, 2), ops.CrossEntropyOptions{})
	}},
}

// Programs that would train with wrong gradients are refused, by words that say where it came from, or what to write.
func TestPlacesRefuse(t *testing.T) {
	for i, k := range wrong {
		e := newEnv(t)
		assert.ErrorContains(t, Try(func() { e.tape.Backward(k.fn(e)) }), k.want, "case %d", i)
	}
}

// What was picked by other indices is other rows, also if they were computed from the same ones.
func TestPickedByChangedIndices(t *testing.T) {
	e := newEnv(t)
	x, ids := e.x.Sum(1), e.ids(4)
	same := ops.Gather(x, 0, ids).Add(ops.Gather(x.Square(), 0, ids))
	assert.Equal(t, Varying, same.Types().At(0))
	other := ops.Gather(x, 0, ids).Add(ops.Gather(x.Square(), 0, e.tape.Input(FromSlice([]int64{3, 3, 3, 3}, 4)).Sub(ids)))
	assert.Equal(t, Own, other.Types().At(0))
}

// One row that was put in front of itself is in the second dimension: Reshape has to be told.
func TestOneRowInFrontOfOthers(t *testing.T) {
	for _, free := range []int{1, -1} {
		tape := NewTape(hostDevice)
		x := tape.Input(New(hostDevice, Float64, 1, 6).WithRows(Rows{Stride: 1, Total: 8, Over: 1})).Mul(tape.Use(summedParam(6)))
		y := x.Reshape(1, free, 6)
		err := Try(func() { tape.Backward(GlobalMean(Concat(0, y, y.Scale(2), y.Square()).Mean(0))) })
		if free < 0 {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "write -1 for the right one")
		}
		tape.Close()
	}
}

// A rank without rows refuses nothing: in tensors without elements, Reshape cannot tell where rows are, and the other ranks check.
func TestRankWithoutRows(t *testing.T) {
	for n, want := range map[int]string{4: "is a partial sum", 0: ""} {
		tape := NewTape(hostDevice)
		x := tape.Input(New(hostDevice, Float64, n, 6).WithRows(Rows{Stride: 1, Total: 8, Over: 1})).Mul(tape.Use(summedParam(6)))
		err := Try(func() { MatMul(x, x, true, false).Exp() })
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, want)
		}
		tape.Close()
	}
}

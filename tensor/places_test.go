package tensor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
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
	s := x.hdr().at.Rows()
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

// The kind of an operation's output and the dimensions of its rows, as bits.
func TestPlacesOfOperations(t *testing.T) {
	tape, x, c := batchTape(t)
	w, cube := tape.Use(summedParam(6, 6)), x.Reshape(4, 2, 3)
	ids := func(n ...int) Tensor { return tape.Input(New(hostDevice, Int64, n...)) }
	major := cube.Permute(1, 0, 2)
	for i, k := range []struct {
		want string
		fn   func() Tensor
	}{
		{"varying 1", func() Tensor { return Linear(x, w, Tensor{}).ReLU().Softmax() }},
		{"varying 1", func() Tensor { return LayerNorm(x, tape.Use(summedParam(6)), Tensor{}, 1e-5) }},
		{"varying 1", func() Tensor { return x.CumSum(1) }},
		{"varying 1", func() Tensor { return x.Add(c(6)).Mul(c(1, 6)) }},
		{"varying 1", func() Tensor { return first(x.Max(1)) }},
		{"varying 1", func() Tensor { return first(x.Sort(1, true)) }},
		{"varying 1", func() Tensor { return x.LogSumExp() }},
		// Other layouts.
		{"varying 10", func() Tensor { return x.Permute(1, 0) }},
		{"varying 10", func() Tensor { return major }},
		{"varying 2× 1", func() Tensor { return major.Reshape(8, 3) }},
		{"varying 10", func() Tensor { return major.Reshape(8, 3).Reshape(2, 4, 3) }},
		{"varying 1", func() Tensor { return major.Sum(0) }},
		{"varying 11", func() Tensor { return x.Reshape(2, 2, 6) }},
		{"varying 1", func() Tensor { return x.Reshape(2, 2, 6).Reshape(4, 6) }},
		{"varying 2× 1", func() Tensor { return Concat(0, x, x) }},
		{"varying 1", func() Tensor { return Concat(0, x.Slice(0, 0, 1), x.Slice(0, 1, 4)) }},
		{"varying portion 1", func() Tensor { return x.Slice(0, 1, 3) }},
		{"varying loose 1", func() Tensor { return Concat(0, x.Slice(0, 3, 4), x.Slice(0, 0, 3)) }},
		{"varying loose 1", func() Tensor { return Embedding(x, ids(3)) }},
		{"varying loose 1", func() Tensor { return x.Pad(0, 1, 0) }},
		// Sums over rows.
		{"partial", func() Tensor { return x.Sum(0) }},
		{"partial", func() Tensor { return major.Sum(1) }},
		{"partial", func() Tensor { return x.Reshape(2, 2, 6).Sum(0, 1) }},
		{"partial", func() Tensor { return x.Reshape(24).Sum(0) }},
		{"partial", func() Tensor { return MatMul(x, x, true, false) }},
		{"partial", func() Tensor { return MatMul(c(1).Broadcast(1, 4), x, false, false) }},
		{"partial", func() Tensor { return MatMul(x.Permute(1, 0), x, false, false) }},
		{"partial", func() Tensor { return tape.Zeros(Float64, 4, 6).ScatterAdd(0, ids(4, 6), x) }},
		{"partial", func() Tensor { return x.ArgMax(1).Bincount(6) }},
		{"partial", func() Tensor { return x.Slice(0, 0, 2).Sum(0) }},
		// A product of each row.
		{"varying 1", func() Tensor { return MatMul(cube, cube, false, true) }},
		{"varying 1", func() Tensor { return MatMul(x, c(6, 2), false, false) }},
		// What has no meaning for the sum over ranks.
		{"this rank's own", func() Tensor { return x.Mean(0) }},
		{"this rank's own", func() Tensor { return first(x.Max(0)) }},
		{"this rank's own", func() Tensor { return first(x.Min(0)) }},
		{"this rank's own", func() Tensor { return first(x.Sort(0, false)) }},
		{"this rank's own", func() Tensor { return first(x.Permute(1, 0).TopK(2)) }},
		{"this rank's own", func() Tensor { return x.CumSum(0) }},
		{"this rank's own", func() Tensor { return x.Permute(1, 0).Softmax() }},
		{"this rank's own", func() Tensor { return x.Permute(1, 0).LogSoftmax() }},
		{"this rank's own", func() Tensor { return x.Permute(1, 0).LogSumExp() }},
		{"this rank's own", func() Tensor { return LayerNorm(x.Permute(1, 0), tape.Use(summedParam(4)), Tensor{}, 1e-5) }},
		{"this rank's own", func() Tensor { return RMSNorm(x.Reshape(24), tape.Use(summedParam(24)), 1e-5) }},
		{"this rank's own", func() Tensor { return x.Reshape(2, 2, 6).Sum(1) }},
		{"this rank's own", func() Tensor { return x.Reshape(2, 12).Sum(1) }},
		{"this rank's own", func() Tensor { return x.Reshape(2, 2, 6).Softmax().Permute(0, 2, 1).Softmax() }},
		// Rows that meet other rows.
		{"this rank's own", func() Tensor { return MatMul(x, x, false, true) }},
		{"this rank's own", func() Tensor { return x.Reshape(4, 1, 6).Sub(x.Reshape(1, 4, 6)) }},
		{"this rank's own", func() Tensor { return x.Mul(Concat(0, x.Slice(0, 3, 4), x.Slice(0, 0, 3))) }},
		{"this rank's own", func() Tensor { return x.Slice(0, 0, 2).Sub(x.Slice(0, 2, 4)) }},
		{"this rank's own", func() Tensor { return x.Add(Embedding(x, ids(4))) }},
		{"this rank's own", func() Tensor { return x.Add(x.Gather(0, ids(4, 6))) }},
		{"this rank's own", func() Tensor { return x.Sub(x.Slice(0, 0, 1)) }},
		{"this rank's own", func() Tensor { return x.Permute(1, 0).Mul(c(6, 1)).Reshape(4, 6).Add(x) }},
		{"this rank's own", func() Tensor { return Concat(1, x, Embedding(x, ids(4))) }},
		{"this rank's own", func() Tensor { return Attention(x.Permute(1, 0).Reshape(1, 4, 6), 2, AttentionOptions{}) }},
		{"this rank's own", func() Tensor { return tape.Apply(rowSums{}, x) }},
		{"varying 1", func() Tensor { return tape.Apply(plainFunction{}, x) }},
		{"varying 1", func() Tensor { return RowsLike(Embedding(x, ids(4)), x).Add(x) }},
		{"varying loose 1", func() Tensor { y := ids(4); return Embedding(x, y).Add(Embedding(x.Square(), y)) }},
	} {
		got := ""
		if err := Try(func() { got = placeOf(k.fn()) }); err != nil {
			got = err.Error()
		}
		assert.Equal(t, k.want, got, "case %d", i)
	}
}

// rowSums is a Function without Types whose output lacks the dimension of rows.
type rowSums struct{ identity }

func (rowSums) Name() string { return "row_sums" }

func (rowSums) Forward(_ *Ctx, in []Tensor) Tensor { return in[0].Sum(0) }

// Programs that would train with wrong gradients are refused, by words that say where it came from, or what to write.
func TestPlacesRefuse(t *testing.T) {
	const held = "is the same on all ranks, but has an element for each of this rank's"
	var tape *Tape
	var x Tensor
	var c func(dims ...int) Tensor
	var cube, table Tensor
	ids := func(n ...int) Tensor { return tape.Input(FromSlice([]int64{3, 1, 0, 2}, 4).Reshape(n...)) }
	flags := func() Tensor { return tape.Input(FromSlice([]bool{true, false, true, true}, 4, 1)) }
	positive := func() Tensor { return x.Gt(x.Scale(0)) }
	roll := func() Tensor { return Concat(0, x.Slice(0, 3, 4), x.Slice(0, 0, 3)) }
	own := func() Tensor {
		y := tape.Input(New(hostDevice, Int64, 4).WithRows(half))
		return Concat(0, y.Slice(0, 3, 4), y.Slice(0, 0, 3))
	}
	best := func() Tensor { return x.Slice(1, 0, 4).ArgMax(1).Reshape(4, 1).Broadcast(4, 6) }
	scores := func() Tensor { return MatMul(x, x, false, true) }
	for i, k := range []struct {
		want string
		fn   func() Tensor // the loss
	}{
		// Constants that belong to rows.
		{"mul", func() Tensor { return x.Mul(c(4, 1)) }},
		{"add float64[4,6], float64[4,6]: axis 0: input 1 " + held, func() Tensor { return x.Add(c(4, 6)) }},
		{held, func() Tensor { return c(4, 6).Sub(x) }},
		{held, func() Tensor { return x.Add(c(4, 6).Slice(0, 0, 4).Exp()) }},
		{held, func() Tensor { return x.Add(table) }},
		{held, func() Tensor { return Where(flags(), x, x.Scale(0)) }},
		{held, func() Tensor { return Where(positive(), x, c(4, 6)) }},
		{held, func() Tensor { return Concat(1, x, c(4, 1)) }},
		{held, func() Tensor { return MatMul(c(1, 4), x, false, false) }},
		{held, func() Tensor { return MatMul(x, c(4, 2), true, false) }},
		{held, func() Tensor { return MatMul(cube, c(4, 3, 2), false, false) }},
		{held, func() Tensor { return cube.Permute(1, 0, 2).Mul(c(4, 1)) }},
		{held, func() Tensor { return cube.Permute(1, 0, 2).Mul(c(1, 4).Reshape(1, 4, 1)) }},
		{held, func() Tensor { return x.Reshape(2, 2, 6).Mul(c(2, 2, 1)) }},
		{held, func() Tensor { return CrossAttention(cube, c(4, 5, 3), c(4, 5, 3), 3, AttentionOptions{}) }},
		{held, func() Tensor { return x.LogSoftmax().Mul(c(4).Reshape(4, 1)) }},
		{held, func() Tensor { return x.Mul(OneHot(ids(4), 6, Float64)) }},
		{held, func() Tensor { return x.Gather(1, ids(4, 1)) }},
		// Sums that are not over all rows, or not linear.
		{"it came from mean", func() Tensor { return x.Mean() }},
		{"it came from mean", func() Tensor { return GlobalMean(x.Sub(x.Mean(0)).Square()) }},
		{"it came from max, which is not linear, over this rank's rows", func() Tensor { return first(x.Max(0)).Sum() }},
		{"it came from min", func() Tensor { return first(x.Min(0)).Sum() }},
		{"it came from sort", func() Tensor { return first(x.Sort(0, true)).Slice(0, 0, 2).Sum() }},
		{"it came from top_k", func() Tensor { return first(x.Permute(1, 0).TopK(2)).Sum() }},
		{"it came from cumsum", func() Tensor { return x.CumSum(0).Square().Sum() }},
		{"it came from softmax", func() Tensor { return x.Permute(1, 0).Softmax().Square().Sum() }},
		{"it came from log_softmax", func() Tensor { return x.Permute(1, 0).LogSoftmax().Slice(0, 0, 1).Sum() }},
		{"it came from logsumexp", func() Tensor { return x.Permute(1, 0).LogSumExp().Sum() }},
		{"it came from logsumexp", func() Tensor { return x.Reshape(24).LogSumExp() }},
		{"Rows.Group", func() Tensor { return x.Reshape(2, 2, 6).Sum(1).Square().Sum() }},
		{"Rows.Group", func() Tensor { return first(x.Reshape(2, 12).Mean(1).Square().Sum(), x) }},
		{"it came from max", func() Tensor { return first(x.Reshape(2, 2, 6).Max(1)).Sum() }},
		{"is a partial sum", func() Tensor { return MatMul(x, x, true, false).Square().Sum() }},
		{"is a partial sum", func() Tensor { return MatMul(c(1).Broadcast(1, 4), x, false, false).Exp().Sum() }},
		{"is a partial sum", func() Tensor { return tape.Zeros(Float64, 4, 6).ScatterAdd(0, best(), x).Square().Sum() }},
		{"begin with Tape.Zeros", func() Tensor { return c(4, 6).ScatterAdd(0, best(), x).Sum() }},
		{"is a partial sum", func() Tensor { return x.Div(x.Abs().Sum().Reshape(1)).Sum() }},
		{"is a partial sum", func() Tensor { return x.Mul(x.ArgMax(1).Bincount(6).Cast(Float64)).Sum() }},
		// Rows of this rank that meet.
		{"a product of rows of this rank", func() Tensor { return scores().LogSoftmax().Sum() }},
		{"it came from", func() Tensor { return CrossEntropy(scores(), ids(4), CrossEntropyOptions{}) }},
		{"it came from sub, where other rows of this rank meet", func() Tensor { return x.Reshape(4, 1, 6).Sub(x.Reshape(1, 4, 6)).Sum() }},
		{"it came from mul", func() Tensor { return x.Mul(roll()).Sum() }},
		{"it came from add", func() Tensor { return x.Add(Embedding(x, ids(4))).Square().Sum() }},
		{"it came from add", func() Tensor { return x.Add(x.Gather(0, ids(4, 1).Broadcast(4, 6))).Square().Sum() }},
		{"it came from sub", func() Tensor { return x.Slice(0, 0, 2).Sub(x.Slice(0, 2, 4)).Square().Sum() }},
		{"it came from", func() Tensor { return MSE(x, roll()) }},
		{"it came from cross_entropy", func() Tensor { return CrossEntropy(x, own(), CrossEntropyOptions{}) }},
		{"it came from cross_entropy", func() Tensor { return CrossEntropy(x, own(), CrossEntropyOptions{PerRow: true}).Sum() }},
		{"it came from cross_entropy", func() Tensor { return CrossEntropy(x.Slice(1, 0, 4).Permute(1, 0), ids(4), CrossEntropyOptions{}) }},
		{"has not all rows", func() Tensor { return MSE(Embedding(x, ids(4)), x) }},
		{"it came from", func() Tensor { return BCEWithLogits(x, roll()) }},
		{"it came from concat", func() Tensor { return Concat(1, x, roll()).Square().Sum() }},
		{"it came from", func() Tensor { return Where(positive(), x, roll()).Sum() }},
		{"it came from", func() Tensor {
			return CrossAttention(cube, Embedding(x, ids(4)).Reshape(4, 2, 3), cube, 3, AttentionOptions{}).Sum()
		}},
		{"it came from row_sums", func() Tensor { return tape.Apply(rowSums{}, x).Square().Sum() }},
		{"has not all rows", func() Tensor { return GlobalMean(x.Slice(0, 1, 3)) }},
		{"has not all rows", func() Tensor { return GlobalMean(Embedding(x, ids(4).Slice(0, 0, 3))) }},
		{"has not all rows", func() Tensor { return MSE(x.Slice(0, 0, 2), x.Slice(0, 0, 2)) }},
		{"has not all rows", func() Tensor { return CrossEntropy(x.Slice(0, 0, 2), ids(4).Slice(0, 0, 2), CrossEntropyOptions{}) }},
	} {
		tape, x, c = batchTape(t)
		x, table = x.Mul(tape.Use(summedParam(6))), tape.Use(summedParam(4, 6)).Scale(2)
		cube = x.Reshape(4, 2, 3)
		err := Try(func() { tape.Backward(k.fn()) })
		assert.ErrorContains(t, err, k.want, "case %d", i)
	}
}

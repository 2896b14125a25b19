package tensor_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// asKinds has an output for each kind, which gives its input that kind on axis 0.
type asKinds struct {
	identity
	kinds []Kind
}

func (a asKinds) Forward(c *Ctx, in []Tensor) Tensor {
	for range a.kinds[1:] {
		c.Out(in[0].Scale(1))
	}
	return in[0]
}

func as(kinds ...Kind) Function { return asKinds{kinds: kinds} }

func (a asKinds) Types(in []Types, _ Axes) ([]Types, error) {
	ty := in[0]
	in = in[:0]
	for _, k := range a.kinds {
		in = append(in, ty.With(1, k))
	}
	return in, nil
}

// typeTape returns a tape whose batch has 3 rows of 6, on ranks along axis 0.
func typeTape(t *testing.T) *Tape {
	tape := NewTape(hostDevice)
	t.Cleanup(tape.Close)
	tape.Input(New(hostDevice, Float64, 3).WithRows(Rows{Stride: 1, Total: 6, Over: 1}))
	return tape
}

// of returns a tensor [3, 2] of kind k on axis 0, with a gradient.
func of(tape *Tape, k Kind) Tensor { return tape.Apply(as(k), tape.Use(ones(3, 2)).Scale(1)) }

func ones(dims ...int) *Param {
	p := NewParam(Constant(1), dims...)
	p.Make(hostDevice, Float64, 1)
	return p
}

const none = Kind(255) // an error

// made returns the kind of fn's result, or none if types forbid it.
func made(t *testing.T, fn func() Tensor) Kind {
	k := none
	err := Try(func() { k = fn().Types().At(0) })
	if e := (*typing.Error)(nil); err != nil {
		require.True(t, errors.As(err, &e), "%v", err)
	}
	return k
}

func TestTypesAreSets(t *testing.T) {
	var ty Types
	for k := range Kind(6) {
		ty = ty.With(1<<k, k)
	}
	for k := range Kind(6) {
		assert.Equal(t, k, ty.At(int(k)))
		assert.Equal(t, k, ty.Dual().Dual().At(int(k)))
		assert.Equal(t, k == Replicated, ty.On(k)>>6&1 == 1, "axes 6 and 7 stay replicated: %v", k)
		assert.Equal(t, Axes(1)<<k, ty.On(k)&63, "%v", k)
	}
	assert.Equal(t, Partial, ty.Dual().At(0))
	assert.Equal(t, Replicated, ty.Dual().At(int(Partial)))
	back, err := TypesFromBytes(ty.Bytes())
	require.NoError(t, err)
	assert.Equal(t, ty, back)
	_, err = TypesFromBytes([3]byte{0, 2, 2})
	assert.ErrorContains(t, err, "kind 6 on axis 1")
	assert.Equal(t, Types{}, New(hostDevice, Float64, 2).Types())
	assert.Equal(t, ty, New(hostDevice, Float64, 2).WithTypes(ty).Types())
}

// The kind of the result for each pair of kinds, by class of operation.
func TestTypesCombine(t *testing.T) {
	const R, V, P, I, O, C, x = Replicated, Varying, Partial, Invariant, Own, Cut, none
	tape := typeTape(t)
	for _, c := range []struct {
		name string
		op   func(a, b Tensor) Tensor
		want [6][6]Kind // by the kinds of a and b, in the order of Kind
	}{
		{"add", Tensor.Add,
			[6][6]Kind{{R, V, x, x, O, C}, {V, V, x, x, O, x}, {x, x, P, x, x, x}, {x, x, x, I, x, x}, {O, O, x, x, O, O}, {C, x, x, x, O, C}}},
		{"mul", Tensor.Mul,
			[6][6]Kind{{R, V, P, x, O, C}, {V, V, x, x, O, x}, {P, x, x, x, x, x}, {x, x, x, I, x, x}, {O, O, x, x, O, O}, {C, x, x, x, O, C}}},
		{"div", Tensor.Div,
			[6][6]Kind{{R, V, x, x, O, C}, {V, V, x, x, O, x}, {P, x, x, x, x, x}, {x, x, x, I, x, x}, {O, O, x, x, O, O}, {C, x, x, x, O, C}}},
		{"maximum", ops.Maximum,
			[6][6]Kind{{R, V, x, x, O, C}, {V, V, x, x, O, x}, {x, x, x, x, x, x}, {x, x, x, I, x, x}, {O, O, x, x, O, O}, {C, x, x, x, O, C}}},
		{"equal", Tensor.Eq,
			[6][6]Kind{{R, V, x, R, O, C}, {V, V, x, V, O, x}, {x, x, x, x, x, x}, {R, V, x, I, O, C}, {O, O, x, O, O, O}, {C, x, x, C, O, C}}},
	} {
		for a := range Kind(6) {
			for b := range Kind(6) {
				got := made(t, func() Tensor { return c.op(of(tape, a), of(tape, b)) })
				assert.Equal(t, c.want[a][b], got, "%s of %v and %v", c.name, a, b)
			}
			got := made(t, func() Tensor { return c.op(of(tape, a), tape.Input(New(hostDevice, Float64, 3, 2))) })
			want := a
			if a == P && c.name != "mul" && c.name != "div" {
				want = x
			}
			assert.Equal(t, want, got, "%s of %v and a constant", c.name, a)
		}
	}
}

// A comparison has no gradient: its result fits what has other elements on each rank, counts no use of a parameter, and may be chosen once.
func TestComparisonsHaveNoGradient(t *testing.T) {
	tape := typeTape(t)
	invariant := of(tape, Invariant)
	mask := ops.Or(invariant.Gt(invariant), invariant.Eq(invariant))
	for _, k := range []Kind{Varying, Cut, Invariant, Partial} {
		assert.Equal(t, k, made(t, func() Tensor { return ops.Where(mask, of(tape, k), of(tape, k)) }), "%v", k)
	}
	w := tape.Use(ones(3, 2))
	chosen := tape.Once(func() Tensor { return w.Lt(tape.Use(ones(1))) })
	assert.Zero(t, PendingUses(w))
	nodes := Nodes(tape)
	ops.Not(chosen).Cast(Float64).Square()
	assert.Equal(t, nodes, Nodes(tape), "nothing is recorded")
}

// The result of an operation on a partial sum is a partial sum or an error.
func TestTypesOfPartialSums(t *testing.T) {
	tape := typeTape(t)
	idx := func(n ...int) Tensor { return tape.Input(New(hostDevice, Int64, n...)) }
	p, r := func() Tensor { return of(tape, Partial) }, func() Tensor { return of(tape, Replicated) }
	use := func(dims ...int) Tensor { return tape.Apply(as(Replicated), tape.Use(ones(dims...)).Scale(1)) }
	yes := tape.Input(New(hostDevice, Bool, 3, 2))
	for _, c := range []struct {
		name string
		want Kind
		fn   func() Tensor
	}{
		{"scale", Partial, func() Tensor { return p().Scale(2) }},
		{"shift", none, func() Tensor { return p().Affine(1, 2) }},
		{"neg", Partial, func() Tensor { return p().Neg() }},
		{"sub", Partial, func() Tensor { return p().Sub(p()) }},
		{"square", none, func() Tensor { return p().Square() }},
		{"exp", none, func() Tensor { return p().Exp() }},
		{"relu", none, func() Tensor { return p().ReLU() }},
		{"softmax", none, func() Tensor { return ops.Softmax(p()) }},
		{"maximum along a dimension", none, func() Tensor { return ops.ArgMax(p(), 0) }},
		{"cast", Partial, func() Tensor { return p().Cast(Float32) }},
		{"cast to integers", Own, func() Tensor { return p().Cast(Int64) }},
		{"slice", Partial, func() Tensor { return p().Slice(1, 1, 2) }},
		{"copy of a view", Partial, func() Tensor { return p().Slice(1, 1, 2).Reshape(3) }},
		{"permute", Partial, func() Tensor { return p().Permute(1, 0) }},
		{"pad", Partial, func() Tensor { return ops.Pad(p(), 0, 1, 1) }},
		{"broadcast", Partial, func() Tensor { return p().Broadcast(2, 3, 2) }},
		{"concat", Partial, func() Tensor { return Concat(0, p(), p()) }},
		{"concat with another", none, func() Tensor { return Concat(0, p(), r()) }},
		{"dropout", Partial, func() Tensor { return ops.Dropout(p(), 0.5, 1) }},
		{"sum", Partial, func() Tensor { return p().Sum() }},
		{"mean", Partial, func() Tensor { return p().Mean(0) }},
		{"matmul", Partial, func() Tensor { return MatMul(p(), r(), false, true) }},
		{"matmul of two", none, func() Tensor { return MatMul(p(), p(), false, true) }},
		{"linear", Partial, func() Tensor { return Linear(p(), use(4, 2), Tensor{}) }},
		{"linear with a bias", none, func() Tensor { return Linear(p(), use(4, 2), use(4)) }},
		{"linear with the bias partial", none, func() Tensor { return Linear(r(), use(3, 2), p().Sum(1)) }},
		{"linear with all partial", Partial, func() Tensor { return Linear(p(), use(3, 2), p().Sum(1)) }},
		{"linear with an activation", none, func() Tensor { return LinearAct(p(), use(4, 2), Tensor{}, ActReLU) }},
		{"linear and a residual", none, func() Tensor { return LinearAdd(p(), use(2, 2), Tensor{}, r()) }},
		{"linear and a partial residual", Partial, func() Tensor { return LinearAdd(p(), use(2, 2), Tensor{}, p()) }},
		{"embedding", Partial, func() Tensor { return ops.Embedding(p(), idx(4)) }},
		{"gather", Partial, func() Tensor { return ops.Gather(p(), 0, idx(1, 2)) }},
		{"scatter into another", none, func() Tensor { return ops.ScatterAdd(r(), 0, idx(3, 2), p()) }},
		{"scatter", Partial, func() Tensor { return ops.ScatterAdd(p(), 0, idx(3, 2), p()) }},
		{"where", Partial, func() Tensor { return ops.Where(yes, p(), p()) }},
		{"where, one of them", none, func() Tensor { return ops.Where(yes, p(), r()) }},
		{"cross entropy", none, func() Tensor { return ops.CrossEntropy(p(), idx(3), ops.CrossEntropyOptions{}) }},
		{"mse", none, func() Tensor { return ops.MSE(p(), r()) }},
		{"a Function without Types", none, func() Tensor { return tape.Apply(plainFunction{}, p()) }},
	} {
		assert.Equal(t, c.want, made(t, c.fn), c.name)
	}
}

// The kinds of sums, means and losses of rows and parts.
func TestTypesOfSums(t *testing.T) {
	tape := typeTape(t)
	labels := tape.Input(New(hostDevice, Int64, 3).WithRows(Rows{Stride: 1, Total: 6, Over: 1}))
	loss := func(k Kind) func() Tensor {
		return func() Tensor { return ops.CrossEntropy(of(tape, k), labels, ops.CrossEntropyOptions{}) }
	}
	for _, c := range []struct {
		name string
		want Kind
		fn   func() Tensor
	}{
		{"sum of rows", Partial, func() Tensor { return of(tape, Varying).Sum() }},
		{"sum over rows", Partial, func() Tensor { return of(tape, Varying).Sum(0) }},
		{"sum over features", Varying, func() Tensor { return of(tape, Varying).Sum(1) }},
		{"sum over what is not rows", Varying, func() Tensor { return of(tape, Varying).Permute(1, 0).Sum(0) }},
		{"sum of parts", Partial, func() Tensor { return of(tape, Cut).Sum() }},
		{"sum of replicated", Replicated, func() Tensor { return of(tape, Replicated).Sum() }},
		{"sum of own", Own, func() Tensor { return of(tape, Own).Sum() }},
		{"mean of rows", Own, func() Tensor { return of(tape, Varying).Mean() }},
		{"mean over rows", Own, func() Tensor { return of(tape, Varying).Mean(0) }},
		{"mean over features", Varying, func() Tensor { return of(tape, Varying).Mean(1) }},
		{"mean of invariant", Invariant, func() Tensor { return of(tape, Invariant).Mean() }},
		{"loss", Partial, loss(Varying)},
		{"loss of parts", none, loss(Cut)},
		{"losses of rows of parts", none, func() Tensor {
			return ops.CrossEntropy(of(tape, Cut), labels, ops.CrossEntropyOptions{PerRow: true})
		}},
		{"soft loss of parts", none, func() Tensor { return ops.CrossEntropy(of(tape, Cut), of(tape, Cut), ops.CrossEntropyOptions{}) }},
		{"global mean", Partial, func() Tensor { return GlobalMean(of(tape, Varying)) }},
		{"global mean of parts", none, func() Tensor { return GlobalMean(of(tape, Cut)) }},
		{"global mean of sums over parts", Partial, func() Tensor { return GlobalMean(of(tape, Cut).Sum(1)) }},
		{"mse", Partial, func() Tensor { return ops.MSE(of(tape, Varying), of(tape, Replicated)) }},
		{"bce", Partial, func() Tensor { return ops.BCEWithLogits(of(tape, Varying), of(tape, Varying)) }},
		{"a part, by hand", Partial, func() Tensor { return AsPart(of(tape, Own), 1) }},
		{"replicated is no part", Replicated, func() Tensor { return AsPart(of(tape, Replicated), 1) }},
		{"dropout", Varying, func() Tensor { return ops.Dropout(of(tape, Varying), 0.1, 1) }},
		{"dropout of parts", none, func() Tensor { return ops.Dropout(of(tape, Cut), 0.1, 1) }},
	} {
		assert.Equal(t, c.want, made(t, c.fn), c.name)
	}
	tape.Input(New(hostDevice, Float64, 3).WithRows(Rows{Stride: 1, Total: 6}))
	assert.Equal(t, none, made(t, func() Tensor { return ops.Dropout(of(tape, Varying), 0.1, 1) }), "rows of which the tape does not know")
	assert.Equal(t, Varying, made(t, loss(Varying)))
}

// A mean over all rows needs them: not what ranks that share the rows have in parts, nor some of the rows, in an evaluation, too.
func TestMeansOfSomeAreRefused(t *testing.T) {
	for name, opts := range map[string][]TapeOption{"training": nil, "evaluation": {NoGrad()}} {
		tape := NewTape(hostDevice, opts...)
		x := tape.Input(New(hostDevice, Float64, 3, 2).WithRows(Rows{Stride: 1, Total: 6, Over: 2}))
		mse := func(x Tensor) { ops.MSE(x, x) }
		for _, f := range []func(x Tensor){func(x Tensor) { GlobalMean(x) }, func(x Tensor) { GlobalCount(x) }, mse} {
			assert.NoError(t, Try(func() { f(x) }), name)
			assert.ErrorContains(t, Try(func() { f(of(tape, Varying)) }), "ranks that share the rows have other parts of this", name)
			assert.ErrorContains(t, Try(func() { f(x.Slice(0, 0, 2)) }), "has not all rows of the batch", name)
		}
		tape.Close()
	}
	tape := NewTape(hostDevice, NoGrad())
	assert.Equal(t, 6, GlobalCount(of(tape, Varying)), "without rows, as where text is written")
}

// An error about a Function says which one it is, and what it lacks.
func TestFunctionWithoutTypesIsNamed(t *testing.T) {
	tape := typeTape(t)
	err := Try(func() { tape.Apply(plainFunction{}, of(tape, Partial)) })
	assert.ErrorContains(t, err, plainFunction{}.Name()+", a Function without Types, float64[3,2]: ")
}

// The loss of Backward and WithAux must be a part of a sum, or the same on all ranks.
func TestTypesOfLosses(t *testing.T) {
	tape := typeTape(t)
	for k, want := range map[Kind]string{
		Partial:    "",
		Invariant:  "",
		Replicated: "axis 0: the loss is computed from the same rows on all ranks",
		Varying: "axis 0: the loss differs between ranks and is not a part of a sum: " +
			"sum over rows and divide by the global count (see GlobalMean)",
		Cut: "axis 0: the loss is that of a part of the features",
		Own: "axis 0: the loss is made of this rank's rows alone",
	} {
		one := tape.Apply(as(k), tape.Use(ones()).Scale(1))
		errs := []error{
			Try(func() { WithAux(of(tape, Varying), one, 1) }),
			Try(func() { tape.Backward(one) }),
		}
		for i, err := range errs {
			if want == "" {
				assert.NoError(t, err, "%v", k)
				continue
			}
			assert.ErrorContains(t, err, want)
			assert.ErrorContains(t, err, []string{"WithAux float64[]", "Backward float64[]"}[i])
		}
		tape.Reset()
	}
	tape = typeTape(t)
	y := WithAux(of(tape, Varying), tape.Input(New(hostDevice, Float64)), 1)
	assert.Equal(t, Varying, y.Types().At(0), "an auxiliary loss that is a constant")
	assert.Equal(t, Varying, WithAux(y, of(tape, Varying).Sum(), 1).Types().At(0))
}

// plainFunction is a Function without Types.
type plainFunction struct{ identity }

func (plainFunction) Name() string { return "plain" }

// wants is a Function whose input must have one kind on axis 0, and whose output has another.
type wants struct {
	plainFunction
	from, to Kind
}

func (w wants) Types(in []Types, _ Axes) ([]Types, error) {
	ty, err := in[0].Convert(1, w.from, w.to)
	return append(in[:0], ty), err
}

func TestTypesOfFunctions(t *testing.T) {
	tape := typeTape(t)
	constant := func() Tensor { return tape.Input(New(hostDevice, Float64, 3, 2)) }
	x := tape.Apply(as(Varying, Cut, Partial), tape.Use(ones(3, 2)).Scale(1))
	assert.Equal(t, Varying, x.Types().At(0), "the first output")
	assert.Equal(t, Varying, tape.Apply(plainFunction{}, of(tape, Varying)).Types().At(0))
	for from := range Kind(6) {
		for have := range Kind(6) {
			fits := have == from || from == Partial && have == Cut
			got := made(t, func() Tensor { return tape.Apply(wants{from: from, to: Own}, of(tape, have)) })
			assert.Equal(t, fits, got == Own, "%v for %v", have, from)
		}
		got := made(t, func() Tensor { return tape.Apply(wants{from: from, to: Own}, constant()) })
		assert.Equal(t, from == Replicated || from == Invariant, got == Own, "a constant for %v", from)
	}
	err := Try(func() { tape.Apply(wants{from: Invariant}, of(tape, Varying)) })
	assert.ErrorContains(t, err, "plain float64[3,2]: axis 0: an input is varying, must be invariant (input 0 varying)")
	p := ones(3, 2)
	p.SetName("b.weight")
	p.SumOver(1)
	err = Try(func() { tape.Apply(wants{from: Invariant}, tape.Use(p)) })
	assert.ErrorContains(t, err, "(parameter b.weight[3 2] replicated)")
	err = Try(func() { tape.Apply(tooMany{}, of(tape, Varying)) })
	assert.ErrorContains(t, err, "Types gives 2 types for 1 outputs")
}

type tooMany struct{ plainFunction }

func (tooMany) Types(in []Types, _ Axes) ([]Types, error) { return append(in, in...), nil }

// A parameter is invariant until somebody says that its gradient is summed, or that it is cut.
func TestTypesOfParameters(t *testing.T) {
	tape := typeTape(t)
	x := func() Tensor { return of(tape, Varying) }
	w := NewParam(Constant(1), 4, 2)
	w.SetName("w")
	w.Make(hostDevice, Float64, 1)
	err := Try(func() { Linear(x(), tape.Use(w), Tensor{}) })
	assert.ErrorContains(t, err, "linear float64[3,2], w float64[4,2]: axis 0: parameter w[4 2] is the same on all ranks and counts its "+
		"gradient once, input 0 is other rows on each: the gradient lacks the sum over the ranks (input 0 varying; parameter w[4 2] invariant)")
	err = Try(func() { Linear(x(), tape.Use(w).Slice(0, 0, 2), Tensor{}) })
	assert.ErrorContains(t, err, "input 1 (of w) is the same on all ranks", "a view of a parameter")
	w.SumOver(1)
	assert.Equal(t, Varying, Linear(x(), tape.Use(w), Tensor{}).Types().At(0))
	assert.Equal(t, Invariant, tape.Use(w).Types().At(1), "along other axes")
	err = Try(func() { w.SumOver(2 | 1) })
	assert.ErrorContains(t, err, "SumOver: axis 0: w[4 2]: its gradient is summed over this axis already")
	w = NewParam(Constant(1), 8, 2)
	w.SetName("w")
	w.SumOver(1)
	w.Place(layout.Axis{Axes: 2, Ranks: 2}, layout.Division{})
	err = Try(func() { w.SumOver(2) })
	assert.ErrorContains(t, err, "axis 1: w[4 2]: it is cut over this axis: its gradient is this rank's alone")
	assert.Equal(t, Types{}.With(255&^3, Invariant).With(2, Cut), w.Types())
	frozen := ones(4, 2)
	frozen.Freeze()
	assert.Equal(t, Varying, Linear(x(), tape.Use(frozen), Tensor{}).Types().At(0), "nobody sums the gradient of what has none")
}

// Views, inputs, scopes, and the second run of a checkpointed function keep types; the Rows of that run are those of the first.
func TestTypesAreKept(t *testing.T) {
	rows := Rows{First: 3, Stride: 1, Total: 6, Over: 5}
	v := Types{}.With(5, Varying)
	x := New(hostDevice, Float64, 3, 2).WithRows(rows)
	assert.Equal(t, v, x.Types())
	assert.Equal(t, v, x.View(6).Types())
	assert.Equal(t, Types{}.With(2, Varying), New(hostDevice, Float64, 3).WithRows(rows).WithRows(Rows{Stride: 1, Over: 2}).Types(),
		"other rows")
	tape := NewTape(hostDevice)
	defer tape.Close()
	in := tape.Input(x)
	assert.Equal(t, v, in.Types())
	assert.Equal(t, v, in.Slice(0, 1, 2).Types())
	assert.Equal(t, v, tape.Scope(func(in ...Tensor) Tensor { return in[0].Scale(2) }, in).Types())
	other := NewTape(hostDevice)
	defer other.Close()
	assert.Equal(t, v, other.Input(in.Scale(1)).Types(), "of another tape")
	assert.ErrorContains(t, Try(func() { in.WithTypes(v) }), "has the types that it was computed with")

	w := ones(4, 2)
	w.SumOver(5)
	var runs []Types
	y := tape.Checkpoint(func(in ...Tensor) Tensor {
		h := Linear(in[0], tape.Use(w), Tensor{}).Tanh()
		runs = append(runs, h.Types(), h.Sum(0).Types())
		return h
	}, in)
	assert.Equal(t, v.With(^Axes(5), Invariant), y.Types())
	loss := y.Sum()
	tape.Input(New(hostDevice, Float64, 2).WithRows(Rows{Stride: 1, Over: 2}))
	tape.Backward(loss)
	require.Len(t, runs, 4)
	assert.Equal(t, runs[:2], runs[2:])
	assert.Equal(t, Types{}.With(^Axes(5), Invariant).With(5, Partial), runs[1])
}

// A NoGrad tape does not check types.
func TestTypesNoGrad(t *testing.T) {
	tape := NewTape(hostDevice, NoGrad())
	defer tape.Close()
	x := tape.Input(New(hostDevice, Float64, 3, 2).WithRows(Rows{Stride: 1, Total: 3, Over: 1}))
	assert.NotPanics(t, func() { ops.Dropout(Linear(x, tape.Use(ones(4, 2)), Tensor{}).Sum().Exp(), 0.1, 1) })
}

// A registered operation is not linear unless its Class says so.
func TestTypesOfRegisteredOperations(t *testing.T) {
	pass := func(t *Tape, n *Node, _ uint8) { t.AddGrad(n, 0, n.Grad()) }
	tape := typeTape(t)
	for _, c := range []struct {
		class typing.Class
		want  Kind
	}{{0, none}, {typing.Linear, Partial}} {
		op := Register(OpSpec{Name: fmt.Sprintf("typed_%d", c.class), VJP: pass, Class: c.class})
		got := made(t, func() Tensor {
			x := of(tape, Partial)
			out := tape.NewLike(x)
			tape.Record(op, out, x)
			return out
		})
		assert.Equal(t, c.want, got)
	}
}

package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// A penalty of the norms of gradients has no gradient if it is made of what GradOf returns, and the right one if it is made of a
// difference along them. Of f(x) = Σ w·x², the gradient is 2·w·x.
func TestGradientPenalty(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(0.7), 3)
	tape, xs := NewTape(hostDevice), []float64{1, -2, 0.5, 0.3, 1.2, -0.4}
	f := func(x Tensor) Tensor { return x.Square().Mul(tape.Use(w)).Sum(1) }
	x := tape.Leaf(FromSlice(xs, 2, 3))
	tape.Backward(f(x).Sum())
	w.Consume()
	g := tape.GradOf(x)
	norm := g.Square().Sum(1).Sqrt()
	n, d := Floats(norm), tape.Input(g.Div(norm.Reshape(-1, 1)))
	penalty := func(norm Tensor) []float64 {
		defer w.Consume()
		tape.Backward(f(x).Sum().Scale(0).Add(norm.Affine(1, -1).Square().Sum()))
		return Floats(w.Grad)
	}
	values, e := FromSlice(n, 2), 1e-4
	slope := penalty(f(x.Add(d.Scale(e))).Sub(f(x)).Scale(1 / e))
	for i := range 3 {
		want := 0.0
		for row := range 2 {
			want += 2 * (n[row] - 1) / n[row] * 2 * 0.7 * xs[3*row+i] * 2 * xs[3*row+i]
		}
		assert.InDelta(t, want, slope[i], 1e-2)
	}
	assert.Equal(t, make([]float64, 3), penalty(tape.Input(values)))
}

// The gradient of an input: how a score changes with each pixel.
func TestSaliency(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", NormalInit(0, 1), 3, 5)
	w.Freeze()
	image := FromSlice([]float64{1, -2, 3, -4, 5}, 1, 5)
	tape := NewTape(hostDevice)
	for range 2 {
		x := tape.Leaf(image)
		assert.True(t, tape.GradOf(x).IsZero(), "none yet")
		y := tape.Checkpoint(func(in ...Tensor) Tensor { return Linear(in[0], tape.Use(w), Tensor{}).Tanh() }, x)
		tape.Backward(y.Slice(1, 1, 2).Sum().Add(x.Sum().Scale(0.5)))
		got, row := Floats(tape.GradOf(x)), Floats(w.Value)[5:10]
		score := 0.0
		for i, v := range Floats(image) {
			score += v * row[i]
		}
		slope := 1 - math.Tanh(score)*math.Tanh(score)
		for i := range got {
			assert.InDelta(t, 0.5+slope*row[i], got[i], 1e-12)
		}
		tape.Backward(x.Sum(), More())
		assert.InDelta(t, 1.5+slope*row[4], Floats(tape.GradOf(x))[4], 1e-12, "Backwards add up")
		tape.Reset()
		assert.False(t, x.Valid())
	}
	assert.Equal(t, []float64{1, -2, 3, -4, 5}, Floats(image))
}

// A Leaf made inside a Scope survives it, because its gradient is read later.
func TestLeafInsideAScope(t *testing.T) {
	tape := NewTape(hostDevice)
	var x Tensor
	y := tape.Scope(func(...Tensor) Tensor {
		x = tape.Leaf(FromSlice([]float64{3}, 1))
		return x.Affine(2, 0).Affine(5, 0)
	})
	tape.Backward(y.Sum())
	assert.Equal(t, []float64{10}, Floats(tape.GradOf(x)))
}

// A collective may write the gradient of an input: GradOf waits for it.
func TestGradOfWaits(t *testing.T) {
	l := &lane{}
	tape := NewTape(hostDevice)
	x := tape.Leaf(FromSlice([]float32{1, 2}, 2))
	tape.Backward(tape.Apply(slowScale{l}, x).Sum())
	assert.Zero(t, l.done, "nobody has asked for it")
	assert.Equal(t, []float64{2, 2}, Floats(tape.GradOf(x)))
}

// No gradient flows through Leaf to what its argument was computed from.
func TestLeafOfAComputedTensor(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(2), 2)
	tape := NewTape(hostDevice)
	x := tape.Leaf(tape.Use(w).Square())
	tape.Backward(x.Square().Sum())
	assert.False(t, w.HasGrad())
	assert.Equal(t, []float64{8, 8}, Floats(tape.GradOf(x)))
	inference := NewTape(hostDevice, NoGrad())
	assert.Equal(t, []float64{4, 4}, Floats(inference.Leaf(FromSlice([]float64{2, 2}, 2)).Square()))
}

// What BackwardFrom, Leaf, GradOf and RunDeferred refuse, and why.
func TestOpenEndsRefuse(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(2), 2)
	tape, other, inference := NewTape(hostDevice), NewTape(hostDevice), NewTape(hostDevice, NoGrad())
	y := tape.Use(w).Square()
	z := tape.Use(w).Exp()
	g := FromSlice([]float64{1, 1}, 2)
	list := func(xs ...Tensor) []Tensor { return xs }
	for text, f := range map[string]func(){
		"1 outputs and 0 gradients":                      func() { tape.BackwardFrom(list(y), nil) },
		"0 outputs and 0 gradients":                      func() { tape.BackwardFrom(nil, nil) },
		"output 1 is given twice":                        func() { tape.BackwardFrom(list(y, y), list(g, g)) },
		"output 0 is not of this tape":                   func() { other.BackwardFrom(list(y), list(g)) },
		"float64[2], float64[3]: gradient 0 has another": func() { tape.BackwardFrom(list(y), list(FromSlice([]float64{1, 1, 1}, 3))) },
		"gradient 0 has another shape or type":           func() { tape.BackwardFrom(list(y), list(FromSlice([]float32{1, 1}, 2))) },
		"gradient 1 is of another tape":                  func() { tape.BackwardFrom(list(y, z), list(g, other.Input(g))) },
		"output 0 was not computed from parameters":      func() { tape.BackwardFrom(list(tape.Input(g)), list(g)) },
		"made with NoGrad":                               func() { x := inference.Leaf(g); inference.BackwardFrom(list(x), list(g)) },
		"GradOf float64[2]: the tape was made":           func() { inference.GradOf(inference.Leaf(g)) },
		"not a tensor that Leaf of this tape returned":   func() { tape.GradOf(y) },
		"there is no gradient of int64":                  func() { tape.Leaf(FromSlice([]int64{1}, 1)) },
		"nothing was put off":                            func() { tape.RunDeferred() },
		"More belongs to RunDeferred":                    func() { tape.BackwardFrom(list(y), list(g), DeferWeights(), More()) },
	} {
		assert.ErrorContains(t, Try(f), text)
	}
	assert.ErrorContains(t, Try(func() { other.GradOf(tape.Leaf(g)) }), "Leaf of this tape")
	assert.ErrorContains(t, Try(func() {
		NewTape(hostDevice).Checkpoint(func(in ...Tensor) Tensor { return in[0].Tape().Leaf(in[0]) }, tape.Use(w))
	}), "tape")

	// The errors changed nothing, and what was differentiated is freed.
	tape.BackwardFrom(list(y, z), list(g, FromSlice([]float64{0, 0}, 2)), More())
	assert.Equal(t, []float64{4, 4}, Floats(w.Grad))
	assert.ErrorContains(t, Try(func() { tape.BackwardFrom(list(y), list(g)) }), "used after")

	tape.Backward(tape.Use(w).Mul(tape.Leaf(g)).Sum(), DeferWeights())
	assert.ErrorContains(t, Try(func() { tape.Backward(tape.Use(w).Sum()) }), "call RunDeferred first")
	assert.ErrorContains(t, Try(func() { tape.RunDeferred() }), "operations were recorded on the tape since")
	assert.ErrorContains(t, Try(tape.Reset), "are lost: RunDeferred comes before Reset")
	tape.Backward(tape.Use(w).Mul(tape.Leaf(g)).Sum(), DeferWeights())
	assert.ErrorContains(t, Try(func() { tape.RunDeferred(Scale(2)) }), "takes no option but More")
	tape.RunDeferred()
	assert.Equal(t, []float64{1, 1}, Floats(w.Grad))
}

// pipe is a model in two stages with all operations that have weight gradients: plain layers, fused ones, norms, a Checkpoint, an
// embedding, a view of a parameter, a Function.
type pipe struct {
	ps    *params
	w     [9]*Param
	share bool // all tapes share step memory
}

const pipeMicro = 4

func newPipe(owner Hooks) *pipe {
	m := &pipe{ps: &params{dev: hostDevice, dtype: Float64}}
	for i, dims := range [][]int{{7, 6}, {6}, {12, 6}, {12}, {6, 12}, {6, 6}, {12, 6}, {5, 6}, {6}} {
		m.w[i] = m.ps.add(fmt.Sprint("w", i), NormalInit(0, 0.5), dims...)
		if owner != nil {
			if err := m.w[i].Own(owner, 0); err != nil {
				panic(err)
			}
		}
	}
	return m
}

func (m *pipe) first(t *Tape, ids Tensor) Tensor {
	u := func(i int) Tensor { return t.Use(m.w[i]) }
	x := ops.Embedding(u(0), ids)
	x = x.Add(Linear(LinearAct(ops.RMSNorm(x, u(1), 1e-5), u(2), u(3), ActGELU), u(4), Tensor{}))
	return t.Scope(func(in ...Tensor) Tensor { return Linear(in[0], u(5), Tensor{}).Tanh().Add(in[0]) }, x)
}

func (m *pipe) second(t *Tape, x, labels Tensor) Tensor {
	u := func(i int) Tensor { return t.Use(m.w[i]) }
	x = Linear(t.Apply(identity{}, x), u(6).Slice(0, 0, 6), Tensor{}).Square().Add(x)
	x = t.Checkpoint(func(in ...Tensor) Tensor { return Linear(in[0], u(6).Slice(0, 6, 12), u(8)).Tanh() }, x)
	x = WithAux(x, x.Square().Mean(), 0.1)
	return ops.CrossEntropy(Linear(ops.LayerNorm(x, Tensor{}, Tensor{}, 1e-5), u(7), Tensor{}), labels, ops.CrossEntropyOptions{Count: 12})
}

func pipeBatch(t *Tape, k int) (ids, labels Tensor) {
	a, b := make([]int64, 3), make([]int64, 3)
	for i := range a {
		a[i], b[i] = int64((5*k+3*i)%7), int64((k+i)%5)
	}
	return t.Input(FromSlice(a, 3)), t.Input(FromSlice(b, 3))
}

// whole is the model on one tape.
func (m *pipe) whole() [][]float64 {
	tape := NewTape(hostDevice)
	for k := range pipeMicro {
		ids, labels := pipeBatch(tape, k)
		loss := m.second(tape, m.first(tape, ids), labels)
		if k < pipeMicro-1 {
			tape.Backward(loss, More())
		} else {
			tape.Backward(loss)
		}
		tape.Reset()
	}
	return m.ps.grads()
}

// stages runs the two stages, with two tapes for each microbatch, in the order of a pipeline schedule. F0 is the forward pass of microbatch
// 0 on stage 0, f0 on stage 1; B and b are backward; W and w do what B and b put off.
func (m *pipe) stages(order string) [][]float64 {
	var a, b [pipeMicro]*Tape
	var out, in, loss [pipeMicro]Tensor
	for k := range a {
		a[k], b[k] = NewTape(hostDevice), NewTape(hostDevice)
		if m.share && k > 0 {
			a[k], b[k] = NewTape(hostDevice, ShareMemory(a[0])), NewTape(hostDevice, ShareMemory(b[0]))
		}
		Poison(a[k])
		Poison(b[k])
	}
	options := func(k int, deferred string) (opts []BackwardOption) {
		switch {
		case strings.Contains(order, deferred):
			return []BackwardOption{DeferWeights()}
		case k < pipeMicro-1:
			return []BackwardOption{More()}
		}
		return nil
	}
	for i := 0; i < len(order); i += 2 {
		k := int(order[i+1] - '0')
		switch order[i] {
		case 'F':
			ids, _ := pipeBatch(a[k], k)
			out[k] = m.first(a[k], ids)
		case 'f':
			in[k] = b[k].Leaf(b[k].Input(out[k]))
			_, labels := pipeBatch(b[k], k)
			loss[k] = m.second(b[k], in[k], labels)
		case 'b':
			b[k].Backward(loss[k], options(k, "w")...)
		case 'B':
			g := a[k].Input(b[k].GradOf(in[k]))
			a[k].BackwardFrom([]Tensor{out[k]}, []Tensor{g}, options(k, "W")...)
		case 'w', 'W':
			tape, opts := b[k], []BackwardOption{More()}
			if order[i] == 'W' {
				tape = a[k]
			}
			if k == pipeMicro-1 {
				opts = nil
			}
			tape.RunDeferred(opts...)
		}
	}
	for k := range a {
		a[k].Reset()
		b[k].Reset()
	}
	return m.ps.grads()
}

var pipeOrders = map[string]string{
	"one after another":          "F0f0b0B0F1f1b1B1F2f2b2B2F3f3b3B3",
	"GPipe":                      "F0F1F2F3f0f1f2f3b0b1b2b3B0B1B2B3",
	"1F1B":                       "F0F1f0b0B0F2f1b1B1F3f2b2B2f3b3B3",
	"zero bubble":                "F0F1f0b0B0w0F2f1b1B1w1W0F3f2b2B2w2W1f3b3B3w3W2W3",
	"all weights at the end":     "F0F1F2F3f0b0B0f1b1B1f2b2B2f3b3B3w0w1w2w3W0W1W2W3",
	"weights of the first stage": "F0F1F2F3f0b0B0f1b1B1W0W1f2b2B2f3b3B3W2W3",
}

// A pipeline of two stages, with several microbatches at a time, has the same bits in its gradients as one tape, in any order of a
// schedule, also if weight gradients are put off. Freed memory is NaN, so what they read cannot have been freed.
func TestPipelineEqualsOneTape(t *testing.T) {
	skipInDebug(t)
	want := newPipe(nil).whole()
	for name, order := range pipeOrders {
		requireGrads(t, want, newPipe(nil).stages(order), 0, name)
	}
}

// GradReady is called for each parameter once, when a microbatch's weight gradients are done, and More is given to RunDeferred.
func TestOwnersHearOfDeferredWeights(t *testing.T) {
	var log []string
	s := &spy{name: "s", log: &log}
	m := newPipe(s)
	tape := NewTape(hostDevice)
	ids, labels := pipeBatch(tape, 0)
	loss := m.second(tape, m.first(tape, ids), labels)
	log = nil
	tape.Backward(loss, DeferWeights())
	for _, line := range log {
		assert.Contains(t, line, "s use ", "parameters are gathered, and nothing else is said")
	}
	log = nil
	tape.RunDeferred(More())
	ready := map[string]int{}
	for _, line := range log {
		var name string
		if n, _ := fmt.Sscanf(line, "s ready %s", &name); n == 1 {
			ready[name]++
		}
	}
	require.NotEmpty(t, log)
	assert.Equal(t, map[string]int{"w0": 1, "w1": 1, "w2": 1, "w3": 1, "w4": 1, "w5": 1, "w6": 1, "w7": 1, "w8": 1}, ready)
	assert.Equal(t, []string{"s begin false", "s done false"}, []string{log[0], log[len(log)-1]})
}

// Work that is put off keeps only the memory that it needs: here the inputs of three layers and the gradients of their outputs.
func TestMemoryOfDeferredWeights(t *testing.T) {
	skipInDebug(t)
	ps := &params{dev: hostDevice, dtype: Float32}
	w := ps.add("w", NormalInit(0, 0.1), 256, 256)
	tape := NewTape(hostDevice)
	x := tape.Leaf(New(hostDevice, Float32, 256, 256))
	y := x
	for range 3 {
		y = Linear(y, tape.Use(w), Tensor{}).Affine(2, 1).Affine(3, 1)
	}
	const block = 256 << 10
	tape.Backward(y.Sum(), DeferWeights())
	live, _ := tape.Memory()
	assert.Equal(t, 2+3+1, live/block, "inputs (the first is the user's), gradients of outputs, the gradient of x")
	tape.RunDeferred()
	live, _ = tape.Memory()
	assert.Equal(t, 1, live/block, "the gradient of x")
	tape.Reset()
}

// Leaf, BackwardFrom and RunDeferred allocate nothing on the Go heap.
func TestOpenEndsAllocateNothing(t *testing.T) {
	skipInDebug(t)
	ps := &params{dev: hostDevice, dtype: Float32}
	w := ps.add("w", Constant(1), 4, 4)
	x, g := New(hostDevice, Float32, 2, 4), New(hostDevice, Float32, 2, 4)
	tape := NewTape(hostDevice)
	outs, grads, opts := make([]Tensor, 1), []Tensor{g}, []BackwardOption{DeferWeights()}
	step := func() {
		in := tape.Leaf(x)
		outs[0] = Linear(in, tape.Use(w), Tensor{}).Tanh()
		tape.BackwardFrom(outs, grads, opts...)
		tape.GradOf(in)
		tape.RunDeferred()
		tape.Reset()
		w.Consume()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(50, step))
}

var allKinds = []Kind{Replicated, Varying, Partial, Invariant, Own, Cut}

// A given gradient must have the dual types of the output: with another kind, a sum would be missing or done twice.
func TestBackwardFromChecksTypes(t *testing.T) {
	fits := map[Kind][]Kind{
		Replicated: {Partial},
		Varying:    {Varying},
		Partial:    {Replicated, Invariant},
		Invariant:  {Replicated, Invariant},
		Own:        {Own},
		Cut:        {Cut},
	}
	for _, out := range allKinds {
		for _, k := range allKinds {
			tape := typeTape(t)
			y := of(tape, out)
			g := New(hostDevice, Float64, 3, 2).WithTypes(Types{}.With(1, k))
			err := Try(func() { tape.BackwardFrom([]Tensor{y}, []Tensor{g}) })
			if slices.Contains(fits[out], k) {
				require.NoError(t, err, "%v for %v", k, out)
				continue
			}
			var e *typing.Error
			require.True(t, errors.As(err, &e), "%v for %v: %v", k, out, err)
			assert.Equal(t, typing.Error{Clash: typing.ClashGrad, Have: k, Want: Types{}.With(1, out).Dual().At(0), Text: e.Text}, *e)
		}
	}
	tape := typeTape(t)
	y, z := of(tape, Varying), of(tape, Varying)
	g := New(hostDevice, Float64, 3, 2)
	err := Try(func() {
		tape.BackwardFrom([]Tensor{y, z}, []Tensor{g.WithTypes(y.Types()), New(hostDevice, Float64, 3, 2)})
	})
	require.ErrorContains(t, err,
		"BackwardFrom float64[3,2], float64[3,2]: axis 0: gradient 1 is replicated, but output 1 is varying: its gradient must be varying")
}

// The argument of Leaf keeps its types, and GradOf has those of its gradient, which fit the output on the tape before.
func TestGradOfHasTypes(t *testing.T) {
	for _, k := range []Kind{Varying, Partial, Invariant, Cut} {
		first, second := typeTape(t), typeTape(t)
		y := of(first, k)
		x := second.Leaf(second.Input(y))
		require.Equal(t, k, x.Types().At(0))
		second.BackwardFrom([]Tensor{x.Scale(2)}, []Tensor{New(hostDevice, Float64, 3, 2).WithTypes(y.Types().Dual())})
		g := second.GradOf(x)
		assert.Equal(t, y.Types().Dual(), g.Types(), "%v", k)
		require.NoError(t, Try(func() { first.BackwardFrom([]Tensor{y}, []Tensor{first.Input(g)}) }), "%v", k)
	}

	// The gradient of a replicated Leaf counts once on its tape, but the tape before needs parts of a sum.
	first, second := typeTape(t), typeTape(t)
	y := of(first, Replicated)
	x := second.Leaf(second.Input(y))
	require.Equal(t, Invariant, x.Types().At(0))
	second.Backward(x.Sum())
	err := Try(func() { first.BackwardFrom([]Tensor{y}, []Tensor{first.Input(second.GradOf(x))}) })
	require.ErrorContains(t, err, "gradient 0 is invariant, but output 0 is replicated: its gradient must be partial")
}

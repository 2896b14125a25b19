package tensor_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// The bits of gradients do not depend on when memory is freed, on recomputation, or on the content of freed memory.
func TestGradientBitsDoNotDependOnMemory(t *testing.T) {
	dev := cpu.New(2)
	defer dev.Close()
	for _, tied := range []bool{false, true} {
		var want [][]float64
		for _, keepAll := range []bool{true, false} {
			for _, form := range []string{"plain", "checkpoint", "scope"} {
				for _, poison := range []bool{false, true} {
					got := gptGrads(dev, tied, keepAll, poison, form)
					if want == nil {
						want = got
						require.NotZero(t, want[1][0])
					}
					require.Equal(t, want, got, "tied %v, keep all %v, %s, poison %v", tied, keepAll, form, poison)
				}
			}
		}
	}
}

// gptGrads trains three steps, so that memory is reused, and returns the last gradients.
func gptGrads(dev Device, tied, keepAll, poison bool, form string) [][]float64 {
	ps := &params{dev: dev, dtype: Float32}
	m := newGPT(ps, 11, 6, 8, 2, 3)
	if !tied {
		m.head = ps.add("head", NormalInit(0, 0.1), 11, 8)
	}
	m.drop, m.checkpoint, m.scope = 0.2, form == "checkpoint", form == "scope"
	tape := NewTape(dev, Seed(7))
	defer tape.Close()
	KeepAll(tape, keepAll)
	if poison {
		Poison(tape)
	}
	for step := range 3 {
		ps.consume()
		ids, labels := gptBatch(tape, randomTokens(dev, 11, 4, 7))
		tape.Backward(ops.CrossEntropy(m.forward(tape, ids), labels, ops.CrossEntropyOptions{}), Scale(float64(step+1)))
		tape.Reset()
	}
	return ps.grads()
}

// After the first steps, the tape gets no more memory from the device, and Reset makes all its memory free.
func TestMemoryIsReused(t *testing.T) {
	dev := &counted{Device: cpu.New(1)}
	defer dev.Close()
	ps := &params{dev: dev, dtype: Float32}
	m := newMLP(ps, 600, 600, 600, 10) // 1.4 MB: both kinds of blocks
	x, y := random(dev, Float32, 1, 600, 600), randomTokens(dev, 10, 600)
	tape := NewTape(dev)
	slabs := 0
	for step := range 6 {
		tape.Backward(ops.CrossEntropy(m.forward(tape.Input(x)), y, ops.CrossEntropyOptions{}))
		tape.Reset()
		ps.consume()
		live, peak := tape.Memory()
		assert.Zero(t, live)
		assert.Positive(t, peak)
		if step == 1 {
			slabs = dev.blocks
		}
		if step > 1 {
			assert.Equal(t, slabs, dev.blocks, "step %d", step)
		}
	}
	tape.Close()
	assert.Zero(t, dev.blocks)
}

// Freeing during Backward needs at most 55% of the memory of freeing at Reset; with Scope it needs half of that.
func TestPeakMemory(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	ps := &params{dev: dev, dtype: Float32}
	var blocks []*mlp
	for range 12 {
		blocks = append(blocks, newMLP(ps, 64, 256, 64))
	}
	peak := func(keepAll, scope bool) int {
		tape := NewTape(dev)
		defer tape.Close()
		KeepAll(tape, keepAll)
		x := tape.Input(random(dev, Float32, 1, 64, 64))
		for _, b := range blocks {
			fn := func(in ...Tensor) Tensor { return in[0].Add(b.forward(in[0])) }
			if scope {
				x = tape.Scope(fn, x)
			} else {
				x = fn(x)
			}
		}
		tape.Backward(x.Square().Sum())
		ps.consume()
		_, p := tape.Memory()
		return p
	}
	all, freed, scoped := peak(true, false), peak(false, false), peak(false, true)
	t.Logf("12 blocks: %d KiB without freeing, %d freeing (%.3f), %d with Scope", all>>10, freed>>10, float64(freed)/float64(all), scoped>>10)
	assert.LessOrEqual(t, float64(freed), 0.55*float64(all))
	assert.LessOrEqual(t, float64(scoped), 0.55*float64(freed))
}

const kib = 1 << 10

// Scope frees what no rule reads, and nothing else.
func TestScope(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	p := NewParam(Constant(1), 256) // 1 KiB of float32
	p.Make(dev, Float32, 1)
	for _, c := range []struct {
		opts []TapeOption
		kept int
	}{{nil, 2}, {[]TapeOption{NoGrad()}, 1}} {
		tape := NewTape(dev, c.opts...)
		var inner, saved Tensor
		y := tape.Scope(func(x ...Tensor) Tensor {
			inner = x[0].Affine(2, 1)            // its rule needs no input
			saved = inner.Exp()                  // its rule reads the output
			return saved.Sub(inner).Neg().ReLU() // so does this one
		}, tape.Use(p))
		live, _ := tape.Memory()
		assert.Equal(t, c.kept, live/kib, "outputs of Exp and ReLU; without gradients only the result")
		assert.False(t, inner.Valid())
		assert.Equal(t, 256, y.Len())
		tape.Close()
	}
	tape := NewTape(dev)
	x := tape.Use(p)
	assert.Equal(t, x, tape.Scope(func(in ...Tensor) Tensor { in[0].Exp(); return in[0] }, x))
	var kept Tensor
	tape.Scope(func(in ...Tensor) Tensor { kept = tape.Keep(in[0].Affine(3, 0)); return in[0].Exp() }, x)
	assert.Equal(t, 3.0, Floats(kept)[255])
}

// A tape with NoGrad records nothing; Eval switches dropout off.
func TestNoGradAndEval(t *testing.T) {
	p := NewParam(Constant(1), 100)
	p.Make(hostDevice, Float32, 1)
	for name, tape := range map[string]*Tape{"NoGrad": NewTape(hostDevice, NoGrad()), "Eval": NewTape(hostDevice, Eval())} {
		x := tape.Use(p)
		assert.False(t, tape.Training())
		assert.Equal(t, x, ops.Dropout(x, 0.5, 1), name)
		loss := x.Exp().Sum()
		if name == "NoGrad" {
			assert.Zero(t, Nodes(tape))
			assert.ErrorContains(t, Try(func() { tape.Backward(loss) }), "NoGrad")
		} else {
			tape.Backward(loss)
			assert.True(t, p.HasGrad())
		}
	}
	tape := NewTape(hostDevice)
	assert.True(t, tape.Training())
	assert.Contains(t, Floats(ops.Dropout(tape.Use(p), 0.5, 1)), 0.0)
}

// Microbatches with More and Scale add up to the gradient of the whole batch, auxiliary losses included.
func TestAccumulation(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	m := newMLP(ps, 5, 8, 3)
	x, y := random(hostDevice, Float64, 1, 6, 5), randomTokens(hostDevice, 3, 6)
	tape := NewTape(hostDevice)
	backward := func(lo, hi int, opts ...BackwardOption) {
		in := tape.Input(x).Slice(0, lo, hi)
		h := m.forward(in)
		h = WithAux(h, h.Square().Mean(), 0.3)
		tape.Backward(ops.CrossEntropy(h, tape.Input(y).Slice(0, lo, hi), ops.CrossEntropyOptions{}), opts...)
		tape.Reset()
	}
	backward(0, 6)
	want := ps.grads()
	ps.consume()
	for i := range 3 {
		opts := []BackwardOption{Scale(1. / 3)}
		if i < 2 {
			opts = append(opts, More())
		}
		backward(2*i, 2*i+2, opts...)
	}
	requireGrads(t, want, ps.grads(), 1e-13, "three microbatches")
	err := Try(func() { backward(0, 6) })
	assert.ErrorContains(t, err,
		"gradient of 1.weight was not consumed: between two Backwards, call Step of an optimizer that has it, or use More()")
	tape.Reset()
	ps.consume()
	backward(0, 6)
	requireGrads(t, want, ps.grads(), 0, "overwritten after Consume")
	ps.consume()
	backward(0, 6, Scale(0))
	for _, g := range ps.grads() {
		assert.Equal(t, make([]float64, len(g)), g, "a scale of 0 is not the default")
	}
}

// Several tapes may be in use, as in a pipeline (1F1B), and share parameters.
func TestLiveTapes(t *testing.T) {
	run := func(order string) [][]float64 {
		ps := &params{dev: hostDevice, dtype: Float32}
		m := newMLP(ps, 5, 8, 8, 3)
		var tapes []*Tape
		var losses [3]Tensor
		for range 3 {
			tape := NewTape(hostDevice)
			Poison(tape)
			tapes = append(tapes, tape)
		}
		done := 0
		for _, c := range order {
			if i := int(c - 'A'); i >= 0 && i < 3 {
				losses[i] = m.forward(tapes[i].Input(random(hostDevice, Float32, uint64(i), 4, 5))).Square().Sum()
				continue
			}
			i := int(c - 'a')
			if done++; done < 3 {
				tapes[i].Backward(losses[i], More())
			} else {
				tapes[i].Backward(losses[i])
			}
			tapes[i].Reset()
		}
		return ps.grads()
	}
	want := run("AaBbCc")
	for _, order := range []string{"ABaCbc", "ABCabc", "AaBCbc"} {
		assert.Equal(t, want, run(order), order)
	}
}

// What was recorded can be differentiated once.
func TestSecondBackward(t *testing.T) {
	p := NewParam(Constant(1), 3)
	p.Make(hostDevice, Float32, 1)
	tape := NewTape(hostDevice)
	x := tape.Use(p).Exp()
	a, b := x.Sum(), tape.Keep(x.Square().Sum())
	tape.Backward(a, More())
	assert.ErrorContains(t, Try(func() { tape.Backward(a, More()) }), "since the last Backward")
	assert.ErrorContains(t, Try(func() { tape.Backward(b, More()) }), "since the last Backward")
	assert.ErrorContains(t, Try(func() { tape.Backward(x.Sum(), More()) }), "used after")
	tape.Backward(tape.Use(p).Exp().Sum()) // a new graph on the same tape
	assert.InDelta(t, 2*2.718281828, Floats(p.Grad)[0], 1e-6)
}

// After a panic inside Backward, Reset makes the tape and the gradients usable again.
func TestBackwardPanics(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float32}
	m := newMLP(ps, 5, 8, 3)
	tape := NewTape(hostDevice)
	Poison(tape)
	step := func(f Function) {
		tape.Backward(m.forward(tape.Checkpoint(func(in ...Tensor) Tensor {
			return tape.Apply(f, Linear(in[0], tape.Use(m.w[0]), Tensor{}).Slice(1, 0, 5))
		}, tape.Input(random(hostDevice, Float32, 1, 4, 5)))).Square().Sum())
	}
	step(identity{})
	want := ps.grads()
	tape.Reset()
	ps.consume()
	bad := &fault{}
	for range 2 {
		assert.ErrorContains(t, Try(func() { step(bad) }), "fault: on purpose")
		assert.True(t, ps.list[2].HasGrad(), "the second layer was done")
		tape.Reset()
		live, _ := tape.Memory()
		assert.Zero(t, live)
		assert.False(t, ps.list[2].HasGrad(), "half a Backward is dropped")
		bad.inForward = !bad.inForward
	}
	tape.SetStep(0, 0)
	step(identity{})
	assert.Equal(t, want, ps.grads())
}

// fault panics in Backward, or in the Forward that Checkpoint runs again.
type fault struct {
	inForward bool
	calls     int
}

func (*fault) Name() string { return "fault" }
func (f *fault) Forward(_ *Ctx, in []Tensor) Tensor {
	if f.calls++; f.inForward && f.calls%2 == 0 {
		panic(&Failure{Op: "fault", Err: errors.New("on purpose")})
	}
	return in[0]
}
func (*fault) Backward(*Ctx, Tensor, []Tensor) {
	panic(&Failure{Op: "fault", Err: errors.New("on purpose")})
}

// The gradient of a parameter may have a wider type than the parameter.
func TestWideGradients(t *testing.T) {
	p := NewParam(Constant(1), 2, 3)
	p.Make(hostDevice, BFloat16, 1)
	tape := NewTape(hostDevice)
	for _, opts := range [][]BackwardOption{{More()}, {More()}, {}} {
		p.Grad = wideGrad(p)
		x := tape.Input(FromSlice([]BF16{0x3f80, 0x3b80}, 1, 2)) // 1, 2^-8
		tape.Backward(MatMul(x, tape.Use(p), false, false).Add(tape.Use(p).Slice(0, 0, 1)).Sum(), opts...)
		tape.Reset()
	}
	assert.Equal(t, fmt.Sprint([]float64{6, 6, 6, 0x3p-8, 0x3p-8, 0x3p-8}), fmt.Sprint(Floats(p.Grad)),
		"2·3 and 3·2^-8: too fine for a bfloat16 sum")
}

// wideGrad returns p's gradient, in float32 memory that is made at the first call.
func wideGrad(p *Param) Tensor {
	if p.Grad.IsZero() {
		return New(hostDevice, Float32, p.Dims()...)
	}
	return p.Grad
}

// The kernel of a matrix product adds to a gradient that is there already; no other pass over memory is needed.
func TestGradientsAddUpInProducts(t *testing.T) {
	skipInDebug(t)
	dev := newNullDevice(t)
	launched := map[Op]int{}
	for op := range dev.table {
		for dt := range dev.table[op] {
			dev.table[op][dt] = func(Queue, *Args) { launched[Op(op)]++ }
		}
	}
	ps := &params{dev: dev, dtype: Float32}
	a, b, c := ps.add("a", Constant(1), 8, 8), ps.add("b", Constant(1), 8, 8), ps.add("c", Constant(1), 8, 8)
	tape := NewTape(dev)
	x := tape.Use(a).Tanh()
	y := Concat(0, MatMul(x, tape.Use(b), false, true), Linear(x, tape.Use(c), Tensor{}), MatMul(x, x, false, true))
	clear(launched)
	tape.Backward(y.Sum())
	assert.Equal(t, 6, launched[OpMatMul])
	assert.Zero(t, launched[OpAddTo]+launched[OpAdd])
}

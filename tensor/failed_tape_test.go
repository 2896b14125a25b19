package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// After a Failure inside a Function, a Checkpoint or a Backward that the caller recovers, the tape has a part of a step. It refuses
// Backward until Reset; otherwise training would continue without gradients.
func TestFailedTapeRefusesBackward(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(3), 2)
	breaks := fn{func(*Ctx, []Tensor) Tensor { panic(&Failure{Op: "all_reduce", Err: assert.AnError}) }, nil}
	breaksBack := fn{func(_ *Ctx, in []Tensor) Tensor { return in[0] },
		func(*Ctx, Tensor, []Tensor) { panic(&Failure{Op: "all_reduce", Err: assert.AnError}) }}
	for name, half := range map[string]func(tape *Tape) Tensor{
		"inside a Checkpoint": func(tape *Tape) Tensor {
			return tape.Checkpoint(func(in ...Tensor) Tensor { return in[0].Reshape(5) }, tape.Use(w))
		},
		"a Function": func(tape *Tape) Tensor { return tape.Apply(breaks, tape.Use(w)) },
		"a Function whose caller inside a Checkpoint goes on": func(tape *Tape) Tensor {
			tape.Checkpoint(func(in ...Tensor) Tensor {
				assert.Error(t, Try(func() { tape.Apply(breaks, in[0]) }))
				return in[0].Exp()
			}, tape.Use(w))
			panic(&Failure{Op: "x", Err: assert.AnError})
		},
		"a Backward": func(tape *Tape) Tensor {
			tape.Backward(tape.Apply(breaksBack, tape.Use(w)).Sum())
			return Tensor{}
		},
		"a Checkpoint's second run": func(tape *Tape) Tensor {
			y := tape.Checkpoint(func(in ...Tensor) Tensor {
				if tape.Recomputing() {
					return in[0].Reshape(5)
				}
				return in[0].Exp()
			}, tape.Use(w))
			tape.Backward(y.Sum())
			return y
		},
	} {
		t.Run(name, func(t *testing.T) {
			tape := NewTape(hostDevice)
			step := func() { tape.Backward(tape.Use(w).Square().Sum()) }
			require.Error(t, Try(func() { half(tape) }))
			err := Try(step)
			assert.ErrorContains(t, err, "Backward")
			assert.ErrorContains(t, err, "call Reset")
			tape.Reset()
			w.Consume()
			require.NoError(t, Try(step))
			assert.Equal(t, []float64{6, 6}, Floats(w.Grad))
			w.Consume()
		})
	}
}

// An operation that fails because of its operands does not change the tape.
func TestRefusedOperationLeavesTheTape(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(3), 2)
	tape := NewTape(hostDevice)
	x := tape.Use(w).Square()
	require.Error(t, Try(func() { x.Add(tape.New(Float64, 3)) }))
	require.Error(t, Try(func() { tape.Backward(x) }), "two elements")
	tape.Backward(x.Sum())
	assert.Equal(t, []float64{6, 6}, Floats(w.Grad))
}

// A Function may return the user's own memory as a gradient: nothing is added to it.
func TestGradientInUsersMemory(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(1), 4)
	own := FromSlice([]float64{10, 10, 10, 10}, 4)
	f := fn{func(_ *Ctx, in []Tensor) Tensor { return in[0].Scale(1) }, func(_ *Ctx, _ Tensor, grads []Tensor) { grads[0] = own }}
	for name, other := range map[string]func(x Tensor) Tensor{
		"slice": func(x Tensor) Tensor { return x.Slice(0, 1, 3).Sum() },
		"matmul": func(x Tensor) Tensor {
			return Linear(x.Reshape(1, 4), x.Tape().Input(FromSlice([]float64{0, 1, 1, 0}, 1, 4)), Tensor{}).Sum()
		},
		"multiply": func(x Tensor) Tensor { return x.Mul(FromSlice([]float64{0, 1, 1, 0}, 4)).Sum() },
	} {
		tape := NewTape(hostDevice)
		x := tape.Use(w).Exp()
		y := other(x)
		tape.Backward(y.Add(tape.Apply(f, x).Sum()))
		assert.Equal(t, []float64{10, 10, 10, 10}, Floats(own), name)
		assert.InDeltaSlice(t, []float64{27.18281828, 29.90110011, 29.90110011, 27.18281828}, Floats(w.Grad), 1e-7, name)
		tape.Reset()
		w.Consume()
	}
}

// A norm gives the same result if its weight and bias are columns of a matrix.
func TestNormOfStridedWeights(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	x, wb := ps.add("x", NormalInit(0, 1), 3, 5), ps.add("wb", NormalInit(0, 1), 5, 2)
	for name, norm := range map[string]func(x, w, b Tensor) Tensor{
		"layer": func(x, w, b Tensor) Tensor { return ops.LayerNorm(x, w, b, 1e-5) },
		"rms":   func(x, w, b Tensor) Tensor { return ops.RMSNorm(x, w, 1e-5).Add(b.Reshape(5)) },
	} {
		run := func(column func(m Tensor, i int) Tensor) (y []float64, grads [][]float64) {
			tape := NewTape(hostDevice)
			m := tape.Use(wb)
			out := tape.Keep(norm(tape.Use(x), column(m, 0), column(m, 1)))
			tape.Backward(out.Square().Sum())
			defer ps.consume()
			return Floats(out), ps.grads()
		}
		wantY, want := run(func(m Tensor, i int) Tensor { return m.Transpose(0, 1).Slice(0, i, i+1).Reshape(5) })
		y, grads := run(func(m Tensor, i int) Tensor { return m.Slice(1, i, i+1) })
		assert.Equal(t, wantY, y, name)
		requireGrads(t, want, grads, 1e-14, name)
	}
}

// An auxiliary loss counts even if the loss does not depend on the tensor of WithAux, also inside a Checkpoint.
func TestAuxOfAnUnusedTensor(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w, v := ps.add("w", Constant(3), 2), ps.add("v", Constant(1), 2)
	for name, carry := range map[string]func(tape *Tape, y, aux Tensor){
		"unused": func(_ *Tape, y, aux Tensor) { WithAux(y, aux, 0.5) },
		"unused in a Checkpoint": func(tape *Tape, y, _ Tensor) {
			tape.Checkpoint(func(in ...Tensor) Tensor { WithAux(in[0], in[1].Square().Sum(), 0.5); return in[0].Exp() }, y, tape.Use(w))
		},
		"in an unused Checkpoint": func(tape *Tape, y, _ Tensor) {
			tape.Checkpoint(func(in ...Tensor) Tensor { return WithAux(in[0], in[1].Square().Sum(), 0.5).Exp() }, y, tape.Use(w))
		},
	} {
		tape := NewTape(hostDevice)
		y := tape.Use(v).Exp()
		aux := tape.Use(w).Square().Sum()
		loss := tape.Use(v).Square().Sum()
		carry(tape, y, aux)
		tape.Backward(loss, Scale(4))
		require.True(t, w.HasGrad(), name)
		assert.Equal(t, []float64{12, 12}, Floats(w.Grad), name) // 4 · 0.5 · 2 · 3
		assert.Equal(t, []float64{8, 8}, Floats(v.Grad), name)
		ps.consume()
	}

	// The loss itself may be the auxiliary one.
	tape := NewTape(hostDevice)
	x := tape.Use(ps.add("logits", Constant(0), 1, 2))
	loss := ops.CrossEntropy(x, tape.Input(FromSlice([]int64{0}, 1)), ops.CrossEntropyOptions{})
	WithAux(x.Exp(), loss, 1)
	tape.Backward(loss)
	assert.Equal(t, []float64{-1, 1}, Floats(ps.list[2].Grad), "twice the gradient of the loss")
}

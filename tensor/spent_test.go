package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// twoOuts returns x·0.5 and declares a second output, x·2.
type twoOuts struct{ second Tensor }

func (*twoOuts) Name() string { return "two outputs" }
func (f *twoOuts) Forward(c *Ctx, in []Tensor) Tensor {
	f.second = c.Out(in[0].Scale(2))
	return in[0].Scale(0.5)
}

func (*twoOuts) Backward(c *Ctx, g Tensor, grads []Tensor) {
	grads[0] = c.Tape().NewLike(g)
	c.Tape().Fill(grads[0], 1)
}

// spentCase is a second loss, of a tensor that was kept in a first Backward.
type spentCase struct {
	name string
	loss func(t *Tape, kept, w Tensor) Tensor
}

const whatToDo = "call Backward once, with the sum of the losses, or run the forward pass again, or Detach what needs no gradient"

// A gradient that reaches a kept tensor in a later Backward would be lost: the nodes before it are gone.
func TestGradientOfSpentTensor(t *testing.T) {
	for _, c := range []spentCase{
		{"a product with a parameter", func(_ *Tape, kept, w Tensor) Tensor { return kept.Mul(w).Sum() }},
		{"through an operation without parameters", func(_ *Tape, kept, w Tensor) Tensor { return kept.Exp().Tanh().Add(w).Sum() }},
		{"no parameter", func(_ *Tape, kept, _ Tensor) Tensor { return kept.Square().Sum() }},
		{"a view", func(_ *Tape, kept, w Tensor) Tensor {
			return kept.Reshape(2, 1).Slice(0, 0, 1).Mul(w.Slice(0, 0, 1)).Sum()
		}},
		{"a linear layer", func(_ *Tape, kept, w Tensor) Tensor {
			return Linear(kept.Reshape(1, 2), w.Reshape(1, 2), Tensor{}).Sum()
		}},
		{"a target that has a gradient", func(_ *Tape, kept, w Tensor) Tensor { return ops.MSE(w, kept) }},
		{"soft targets", func(_ *Tape, kept, w Tensor) Tensor { return ops.BCEWithLogits(w, kept) }},
		{"two of it", func(_ *Tape, kept, w Tensor) Tensor { return Concat(0, kept, w, kept).Sum() }},
		{"a function", func(t *Tape, kept, w Tensor) Tensor { return t.Apply(identity{}, kept).Mul(w).Sum() }},
		{"a function of a parameter, too", func(t *Tape, kept, w Tensor) Tensor { return t.Apply(saving, w, kept).Sum() }},
		{"another output of a function", func(t *Tape, kept, w Tensor) Tensor {
			f := &twoOuts{}
			t.Apply(f, kept)
			return f.second.Mul(w).Sum()
		}},
		{"an auxiliary loss", func(_ *Tape, kept, w Tensor) Tensor { return WithAux(w.Sum(), kept.Sum(), 1) }},
		{"a scope", func(t *Tape, kept, w Tensor) Tensor {
			return t.Scope(func(in ...Tensor) Tensor { return in[0].Mul(w) }, kept).Sum()
		}},
		{"a checkpoint", func(t *Tape, kept, w Tensor) Tensor {
			return t.Checkpoint(func(in ...Tensor) Tensor { return in[0].Exp().Mul(in[1]) }, kept, w).Sum()
		}},
		{"a checkpoint that reads it", func(t *Tape, kept, w Tensor) Tensor {
			return t.Checkpoint(func(in ...Tensor) Tensor { return in[0].Mul(kept) }, w).Sum()
		}},
		{"a checkpoint before", func(t *Tape, kept, w Tensor) Tensor {
			return t.Checkpoint(func(in ...Tensor) Tensor { return in[0].Exp() }, kept).Mul(w).Sum()
		}},
	} {
		err := Try(func() { afterBackward(c.loss) })
		assert.ErrorContains(t, err, "was not computed since the last Backward", c.name)
		assert.ErrorContains(t, err, whatToDo, c.name)
	}
}

// afterBackward computes a loss of a tensor h = exp p, and then another one of h and w. It returns the gradient of p.
func afterBackward(loss func(t *Tape, kept, w Tensor) Tensor) (p, w []float64) {
	ps := &params{dev: hostDevice, dtype: Float64}
	a, b := ps.add("p", Constant(0), 2), ps.add("w", Constant(1), 2)
	tape := NewTape(hostDevice)
	kept := tape.Keep(tape.Use(a).Exp())
	tape.Backward(kept.Sum(), More())
	tape.Backward(loss(tape, kept, tape.Use(b)))
	return Floats(a.Grad), Floats(b.Grad)
}

// What no gradient reaches, or none should reach, stays allowed.
func TestUseOfSpentTensor(t *testing.T) {
	for _, c := range []spentCase{
		{"detached", func(_ *Tape, kept, w Tensor) Tensor { return kept.Detach().Mul(w).Sum() }},
		{"a metric", func(t *Tape, kept, w Tensor) Tensor {
			t.Keep(kept.Sub(w).Square().Sum()).Item()
			return w.Sum()
		}},
		{"a leaf", func(t *Tape, kept, w Tensor) Tensor { return t.Leaf(kept).Mul(w).Sum() }},
		{"a mask", func(t *Tape, kept, w Tensor) Tensor { return ops.Where(kept.Gt(w.Scale(0)), w, w.Exp()).Sum() }},
		{"computed again", func(_ *Tape, _, w Tensor) Tensor { return w.Exp().Log().Sum() }},
	} {
		p, w := afterBackward(c.loss)
		assert.Equal(t, []float64{1, 1}, p, c.name)
		assert.NotZero(t, w[0], c.name)
	}
}

// The ways out that the error names have the gradients of both losses. After a Reset, nothing is left of the error.
func TestWaysOutOfSpentTensor(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	p, w := ps.add("p", Constant(0), 2), ps.add("w", Constant(3), 2)
	tape := NewTape(hostDevice)
	h := tape.Keep(tape.Use(p).Exp())
	tape.Backward(h.Sum(), More())
	assert.Error(t, Try(func() { tape.Backward(h.Mul(tape.Use(w)).Sum()) }))
	tape.Reset()
	ps.consume()
	h = tape.Use(p).Exp()
	tape.Backward(h.Sum().Add(h.Mul(tape.Use(w)).Sum()))
	want := ps.grads()
	assert.Equal(t, [][]float64{{4, 4}, {1, 1}}, want)
	ps.consume()
	tape.Backward(tape.Use(p).Exp().Sum(), More())
	tape.Backward(tape.Use(p).Exp().Mul(tape.Use(w)).Sum())
	assert.Equal(t, want, ps.grads())
}

// What is kept of a Backward that puts weight gradients off is spent, too. A mask, which has no gradient, is not.
func TestSpentByDeferredBackward(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	p, w := ps.add("p", Constant(0), 2), ps.add("w", Constant(3), 2)
	tape := NewTape(hostDevice)
	h := tape.Keep(tape.Use(p).Exp())
	mask := tape.Keep(h.Gt(tape.Use(w)))
	tape.Backward(h.Sum(), DeferWeights())
	tape.RunDeferred(More())
	assert.NoError(t, Try(func() { tape.Backward(tape.Apply(identity{}, tape.Use(w), mask).Sum(), More()) }))
	assert.Equal(t, []float64{1, 1}, Floats(w.Grad))
	assert.ErrorContains(t, Try(func() { tape.Backward(h.Mul(tape.Use(w)).Sum()) }), whatToDo)
}

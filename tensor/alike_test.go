package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
)

// asked notes what ranks would compare of the numbers of a step, as a reduction in Backward does.
type asked struct{ numbers []uint64 }

func (*asked) Name() string                              { return "asked" }
func (*asked) Forward(_ *Ctx, in []Tensor) Tensor        { return in[0] }
func (*asked) Types(in []Types, _ Axes) ([]Types, error) { return in[:1], nil }
func (f *asked) Backward(c *Ctx, g Tensor, grads []Tensor) {
	grads[0] = g
	f.numbers = append(f.numbers, c.Tape().Agreement(1).Numbers)
}

// A Backward compares the numbers that its own outputs depend on, with that of its Scale, whichever way they reach them.
func TestNumbersThatReachTheLoss(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(0.7), 3)
	tape, f := NewTape(hostDevice), &asked{}
	of := func(backward func(x Tensor)) uint64 {
		backward(tape.Apply(f, tape.Use(w)))
		w.Consume()
		tape.Reset()
		return f.numbers[len(f.numbers)-1]
	}
	loss := func(v float64, opts ...BackwardOption) func(x Tensor) {
		return func(x Tensor) { tape.Backward(x.Scale(v).Sum(), opts...) }
	}
	from := func(v float64) func(x Tensor) {
		return func(x Tensor) {
			y := x.Scale(v)
			tape.BackwardFrom([]Tensor{y}, []Tensor{FromSlice([]float64{1, 2, 3}, 3).WithTypes(y.Types().Dual())})
		}
	}
	assert.Equal(t, of(loss(2)), of(func(x Tensor) {
		x.Scale(3).Sum()
		tape.Backward(x.Scale(2).Sum())
	}), "another number does not reach it")
	assert.NotEqual(t, of(loss(2)), of(loss(3)))
	assert.NotEqual(t, of(loss(2)), of(loss(2, Scale(4))))
	assert.NotEqual(t, of(from(2)), of(from(3)))
	assert.Zero(t, of(from(2)), "behind the first steps")
	assert.Zero(t, of(loss(2)))
	assert.Zero(t, tape.Agreement(1).Numbers, "outside of Backward")
}

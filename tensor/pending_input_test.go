package tensor_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
)

// three is a + b + c. The gradients of a and b each come from a collective. Until it is waited for, such a gradient is NaN.
type three struct{ lanes [3]*lane }

func (*three) Name() string                       { return "three" }
func (*three) Forward(_ *Ctx, in []Tensor) Tensor { return in[0].Add(in[1]).Add(in[2]) }
func (f *three) Backward(c *Ctx, g Tensor, grads []Tensor) {
	for i, l := range f.lanes {
		if l == nil {
			grads[i] = g
			continue
		}
		buf := c.Tape().NewLike(g)
		d := Data[float64](buf)
		for j := range d {
			d[j] = math.NaN()
		}
		factor := float64(10 * (i + 1))
		c.Pending(i, l.issue(func() {
			for j := range d {
				d[j] = factor
			}
		}))
		Raw(buf).Borrow(l, uint64(len(l.ops)))
		grads[i] = buf
	}
}

// probe is the identity; its Backward records which of the lanes have been waited for.
type probe struct {
	lanes []*lane
	saw   *[]int
}

func (probe) Name() string                       { return "probe" }
func (probe) Forward(_ *Ctx, in []Tensor) Tensor { return in[0] }
func (p probe) Backward(_ *Ctx, g Tensor, grads []Tensor) {
	for _, l := range p.lanes {
		*p.saw = append(*p.saw, l.done)
	}
	grads[0] = g
}

// The gradient of an input waits for its own collective, and for no other.
func TestPendingOfEachInput(t *testing.T) {
	la, lb := &lane{}, &lane{}
	var saw []int
	tape := NewTape(hostDevice)
	at := func(p *Param) Tensor { return tape.Apply(probe{[]*lane{la, lb}, &saw}, tape.Use(p)) }
	ps := &params{dev: hostDevice, dtype: Float64}
	pa, pb, pc := ps.add("a", Constant(1), 2), ps.add("b", Constant(1), 2), ps.add("c", Constant(1), 2)
	a := at(pa)
	b := at(pb)
	c := at(pc)
	tape.Backward(tape.Apply(&three{[3]*lane{la, lb, nil}}, a, b, c).Sum())
	assert.Equal(t, []int{0, 0, 0, 1, 1, 1}, saw, "c waits for nobody, b for its own, a for its own")
	assert.Equal(t, []float64{10, 20, 1}, []float64{Floats(pa.Grad)[1], Floats(pb.Grad)[1], Floats(pc.Grad)[1]})
}

// asks records the results of Need in Forward and in Backward.
type asks struct{ forward, backward [3]bool }

func (*asks) Name() string { return "asks" }
func (f *asks) Forward(c *Ctx, in []Tensor) Tensor {
	for i := range in {
		f.forward[i] = c.Need(i)
	}
	return in[0].Add(in[1]).Add(in[2])
}

func (f *asks) Backward(c *Ctx, g Tensor, grads []Tensor) {
	for i := range grads {
		if f.backward[i] = c.Need(i); f.backward[i] {
			grads[i] = g
		}
	}
}

// A Function knows which inputs need a gradient: constants and frozen parameters do not, and on a NoGrad tape none does.
func TestFunctionKnowsWhoNeedsAGradient(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w, frozen := ps.add("w", Constant(1), 2), ps.add("frozen", Constant(1), 2)
	frozen.Freeze()
	x := FromSlice([]float64{1, 2}, 2)
	f := &asks{}
	tape := NewTape(hostDevice)
	tape.Backward(tape.Apply(f, tape.Input(x), tape.Use(w), tape.Use(frozen)).Sum())
	assert.Equal(t, [3]bool{false, true, false}, f.forward)
	assert.Equal(t, [3]bool{false, true, false}, f.backward)
	assert.Equal(t, []float64{1, 1}, Floats(w.Grad))

	f = &asks{forward: [3]bool{true, true, true}}
	inference := NewTape(hostDevice, NoGrad())
	inference.Apply(f, inference.Input(x), inference.Use(w), inference.Use(frozen))
	assert.Equal(t, [3]bool{}, f.forward)

	f = &asks{forward: [3]bool{true, true, true}}
	within := fn{func(c *Ctx, in []Tensor) Tensor { return c.Tape().Apply(f, in[0], in[0], in[0]) }, nil}
	tape.Apply(within, tape.Use(w))
	assert.Equal(t, [3]bool{}, f.forward, "what a Function computes is not differentiated")
}

// Recomputing tells the second run of a Checkpoint from the first, also in a Function.
func TestRecomputingIsVisible(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	w := ps.add("w", Constant(1), 2)
	tape := NewTape(hostDevice)
	var runs []bool
	f := fn{func(c *Ctx, in []Tensor) Tensor {
		runs = append(runs, c.Tape().Recomputing(), c.Need(0))
		return in[0].Scale(2)
	},
		func(c *Ctx, g Tensor, grads []Tensor) {
			runs = append(runs, c.Tape().Recomputing())
			grads[0] = g.Scale(2)
		}}
	y := tape.Checkpoint(func(in ...Tensor) Tensor { return tape.Apply(f, in[0]) }, tape.Use(w))
	assert.False(t, tape.Recomputing())
	tape.Backward(y.Sum())
	assert.Equal(t, []bool{false, true, true, true, false}, runs, "first run, second run, Backward")
	assert.Equal(t, []float64{2, 2}, Floats(w.Grad))
}

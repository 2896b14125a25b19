package disttest

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Communicating is a Function that also says what types its output has.
type Communicating interface {
	tensor.Function
	tensor.Typed
}

// Operand is an input of a Function under proof: float64 elements with the given type.
type Operand struct {
	Kind tensor.Kind
	// Dims are the dimensions of a rank's part. They may differ along axes on which the tensor is Varying or Cut.
	Dims func(rank, ranks int) []int
	// Const, if not nil, makes an operand without a gradient, such as labels. Then the other fields are not used.
	Const func(r *dist.Rank) tensor.Tensor
}

// Dims makes Operand.Dims for the same dimensions on all ranks.
func Dims(dims ...int) func(rank, ranks int) []int { return func(int, int) []int { return dims } }

// Adjoint proves, on so many ranks, that f's Backward is the adjoint of its Forward, and that its Types are right. The types say what a
// tensor and its gradient are over the ranks, and so what their inner product is over the job: the sum of ⟨x, g⟩ over ranks, divided by
// their number if both are the same on all ranks. The inner product must be the same at the output and at the inputs: Σ⟨f(x),g⟩ =
// Σ⟨x,f*(g)⟩. If f is not linear, its derivative in a random direction is used, by finite differences. What the types call the same on
// all ranks must be so: outputs, and gradients of inputs.
func Adjoint(t *testing.T, ranks int, f func(r *dist.Rank) Communicating, in ...Operand) {
	t.Helper()
	require.NoError(t, AdjointError(ranks, f, in...))
}

// AdjointError is Adjoint with an error instead of a failed test, for tests of Adjoint itself.
func AdjointError(ranks int, f func(r *dist.Rank) Communicating, in ...Operand) error {
	return dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		p := &adjoint{r: r, f: f(r), in: in}
		OK(p.types())
		return p.prove()
	})
}

// adjoint is a rank's part of the proof.
type adjoint struct {
	r  *dist.Rank
	f  Communicating
	in []Operand
	to tensor.Kind // type of the output
}

// types asks f what the output is.
func (p *adjoint) types() error {
	axes := p.r.World.Axes()
	in := make([]tensor.Types, len(p.in))
	for i, o := range p.in {
		in[i] = in[i].With(axes, o.Kind)
	}
	out, err := p.f.Types(in, axes)
	if err != nil {
		return fmt.Errorf("%s refuses the kinds of its operands: %w", p.f.Name(), err)
	}
	p.to = tensor.Replicated // with one rank
	for axis := range 8 {
		if axes>>axis&1 != 0 {
			p.to = out[0].At(axis)
		}
	}
	return nil
}

// run applies f at distance h from the operands' values, along their directions, and returns the output. If given is not nil, it makes
// the output's gradient, and run also returns the gradients of the operands.
func (p *adjoint) run(h float64, given func(y []float64) []float64) (y []float64, grads [][]float64) {
	tape := tensor.NewTape(p.r.Device)
	defer tape.Close()
	grads = make([][]float64, len(p.in))
	in := make([]tensor.Tensor, len(p.in))
	for i, o := range p.in {
		if o.Const != nil {
			in[i] = tape.Input(o.Const(p.r))
			continue
		}
		dims := o.Dims(p.r.World.Rank(), p.r.World.Size())
		v := p.values(i, o.Kind, dims)
		for k, d := range p.values(100+i, o.Kind, dims) {
			v[k] += h * d
		}
		in[i] = p.leaf(tape, v, o.Kind, dims, &grads[i])
	}
	out := tape.Apply(p.f, in...)
	y = tensor.Floats(out)
	if given != nil {
		tape.Backward(tape.Apply(&planted{given(y)}, out))
	}
	return y, grads
}

// leaf puts v on the tape, as an operand that stores its gradient.
func (p *adjoint) leaf(tape *tensor.Tape, v []float64, k tensor.Kind, dims []int, grad *[]float64) tensor.Tensor {
	w := tensor.NewParam(tensor.Constant(0), dims...)
	w.SetValue(tensor.FromSlice(v, dims...))
	w.To(p.r.Device)
	ty := tensor.Types{}.With(255, tensor.Invariant).With(p.r.World.Axes(), k)
	return tape.Apply(&capture{ty, grad}, tape.Use(w))
}

// values returns the operand's elements. They differ by rank, unless its kind is the same on all ranks.
func (p *adjoint) values(salt int, k tensor.Kind, dims []int) []float64 {
	n, rank := 1, float64(p.r.World.Rank())
	for _, d := range dims {
		n *= d
	}
	return numbers(n, salt, rank, k)
}

func numbers(n, salt int, rank float64, k tensor.Kind) []float64 {
	if same(k) {
		rank = 0
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = math.Sin(float64((i+1)*(salt+3)) + 5.3*rank)
	}
	return v
}

// same reports whether tensors of kind k are the same on all ranks. dual is the kind of their gradients.
func same(k tensor.Kind) bool { return k == tensor.Replicated || k == tensor.Invariant }

func dual(k tensor.Kind) tensor.Kind {
	switch k {
	case tensor.Replicated:
		return tensor.Partial
	case tensor.Partial:
		return tensor.Replicated
	}
	return k
}

// prove compares the two inner products over the job.
func (p *adjoint) prove() error {
	const h = 1e-4
	rank := float64(p.r.World.Rank())
	var gy []float64
	y, grads := p.run(0, func(y []float64) []float64 {
		gy = numbers(len(y), 50, rank, dual(p.to))
		return gy
	})
	hi, _ := p.run(h, nil)
	lo, _ := p.run(-h, nil)
	for i := range hi {
		hi[i] = (hi[i] - lo[i]) / (2 * h)
	}
	sums := []float64{p.paired(hi, gy, p.to), 0}
	err := p.equal("the output", y, p.to)
	for i, o := range p.in {
		if o.Const != nil {
			continue
		}
		d := p.values(100+i, o.Kind, o.Dims(p.r.World.Rank(), p.r.World.Size()))
		if len(grads[i]) != len(d) && err == nil {
			err = fmt.Errorf("%s: operand %d of %d elements has a gradient of %d", p.f.Name(), i, len(d), len(grads[i]))
			grads[i] = make([]float64, len(d))
		}
		sums[1] += p.paired(d, grads[i], o.Kind)
		if e := p.equal(fmt.Sprintf("the gradient of operand %d", i), grads[i], dual(o.Kind)); err == nil {
			err = e
		}
	}
	if e := p.r.World.SumFloats(sums); e != nil {
		return e
	}
	if math.Abs(sums[0]-sums[1]) > 1e-6*(1+math.Abs(sums[0])) && err == nil {
		err = fmt.Errorf("%s to %v on %d ranks: Backward is not the adjoint of Forward: Σ⟨f(x),g⟩ is %.9g, Σ⟨x,f*(g)⟩ is %.9g",
			p.f.Name(), p.to, p.r.World.Size(), sums[0], sums[1])
	}
	return err
}

// paired is this rank's part of the inner product of a tensor of kind k with its gradient.
func (p *adjoint) paired(x, g []float64, k tensor.Kind) (s float64) {
	for i := range x {
		s += x[i] * g[i]
	}
	if k == tensor.Invariant {
		s /= float64(p.r.World.Size())
	}
	return s
}

// equal returns an error if v must be the same on all ranks, by its kind, and is not.
func (p *adjoint) equal(what string, v []float64, k tensor.Kind) error {
	all, err := dist.AllGatherObject(p.r.World, v)
	if err != nil || !same(k) {
		return err
	}
	for rank, w := range all {
		if len(w) != len(all[0]) {
			return fmt.Errorf("%s: %s is %v, but has %d elements on rank 0 and %d on rank %d", p.f.Name(), what, k, len(all[0]), len(w), rank)
		}
		for i := range w {
			if math.Abs(w[i]-all[0][i]) > 1e-12*(1+math.Abs(w[i])) {
				return fmt.Errorf("%s: %s is %v, but ranks 0 and %d differ in element %d: %v and %v", p.f.Name(), what, k, rank, i, all[0][i], w[i])
			}
		}
	}
	return nil
}

// capture stores the gradient of its output, and gives its output a type.
type capture struct {
	ty  tensor.Types
	got *[]float64
}

// Name returns "capture".
func (*capture) Name() string { return "capture" }

// Forward is the identity.
func (*capture) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }

// Backward stores g.
func (f *capture) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	*f.got = tensor.Floats(g)
	grads[0] = g
}

// Types returns the types that the operand must have.
func (f *capture) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	in[0] = f.ty
	return in[:1], nil
}

// planted gives its input a chosen gradient, and returns a loss from which Backward can begin.
type planted struct{ g []float64 }

// Name returns "planted".
func (*planted) Name() string { return "planted" }

// Forward returns any number as the loss.
func (*planted) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	c.Save(in[0])
	return c.Tape().NewLike(in[0].Reshape(-1).Sum())
}

// Backward returns the chosen gradient.
func (f *planted) Backward(c *tensor.Ctx, _ tensor.Tensor, grads []tensor.Tensor) {
	g := c.Tape().NewLike(c.Saved(0))
	tensor.Copy(g, tensor.FromSlice(f.g, c.Saved(0).Shape().Dims...))
	grads[0] = g
}

// Types says that the loss is the same on all ranks.
func (*planted) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	in[0] = tensor.Types{}.With(255, tensor.Invariant)
	return in[:1], nil
}

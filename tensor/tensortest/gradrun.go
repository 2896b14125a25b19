package tensortest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

// GradCase is a function of tensors whose gradient is checked. Each call of Shapes makes other dimensions.
type GradCase struct {
	Name   string
	Shapes func(r *rand.Rand) [][]int
	Lo, Hi float64 // range of the inputs; 0, 0: ±2
	F      func(t *tensor.Tape, x []tensor.Tensor) tensor.Tensor
	Extra  func(x []tensor.Tensor) tensor.Tensor // one element that is added to the loss, though F does not return it
	Alone  bool                                  // does not work inside a Scope
	Step   float64                               // of finite differences; 0: 1e-5
}

// How says how the inputs are made.
type How struct {
	Name   string
	View   bool // columns or rows of a larger tensor: with gaps, and not aligned
	Inner  bool // results of another operation, not parameters
	Scope  bool // inside a Scope
	Frozen int  // this input (from 1) is frozen
}

// Ways returns the ways besides the plain one; they must give the same gradients.
func Ways() []How {
	return []How{{Name: "inner", Inner: true}, {Name: "view", View: true}, {Name: "scope", Inner: true, Scope: true},
		{Name: "view of a result in a scope", View: true, Inner: true, Scope: true}}
}

// GradRun is one function on one set of inputs.
type GradRun struct {
	Dims [][]int
	// Recorded, if not nil, is called before each Backward.
	Recorded func(t *tensor.Tape)

	tb    testing.TB
	dev   tensor.Device
	tape  *tensor.Tape
	c     GradCase
	key   int
	dtype tensor.DType
	whole []*tensor.Param // parameters of which the views are parts
}

// NewGradRun makes a tape, and inputs of the given dimensions on dev, which depend only on key.
func NewGradRun(tb testing.TB, dev tensor.Device, d tensor.DType, c GradCase, dims [][]int, key uint64) *GradRun {
	g := &GradRun{Dims: dims, tb: tb, dev: dev, tape: tensor.NewTape(dev, tensor.Seed(3)), c: c, key: int(key), dtype: d}
	lo, hi := c.Lo, c.Hi
	if lo == hi {
		lo, hi = -2, 2
	}
	for i, d := range dims {
		p := tensor.NewParam(tensor.UniformInit(lo, hi), padded(d)...)
		p.SetName(fmt.Sprintf("x%d", i))
		p.Make(dev, g.dtype, key)
		g.whole = append(g.whole, p)
	}
	tb.Cleanup(g.tape.Close)
	return g
}

// Tape returns the tape.
func (g *GradRun) Tape() *tensor.Tape { return g.tape }

// padded is the shape of the larger tensor for a view of shape d.
func padded(d []int) []int {
	p := append([]int(nil), d...)
	for i := range p {
		if i == 0 || i == 1 && len(p) == 2 {
			p[i] += 3
		}
	}
	return p
}

// cut returns the part of parameter i that is the input. The rest belongs to no input, and has other values each time.
func (g *GradRun) cut(i int) []float64 {
	d, p := g.Dims[i], g.whole[i].Dims()
	out := []float64{}
	for k, v := range tensor.Floats(g.whole[i].Value) {
		if inCut(d, p, k) {
			out = append(out, v)
		}
	}
	return out
}

// inCut reports whether flat element k of a tensor of shape p is inside the part of shape d, which begins at 1 in each padded dimension.
func inCut(d, p []int, k int) bool {
	for i := len(p) - 1; i >= 0; i-- {
		c := k % p[i]
		k /= p[i]
		if p[i] != d[i] && (c < 1 || c > d[i]) {
			return false
		}
	}
	return true
}

// inputs puts the inputs on the tape.
func (g *GradRun) inputs(h How) (x []tensor.Tensor, ps []*tensor.Param) {
	for i, d := range g.Dims {
		v := g.whole[i].Value
		if !h.View {
			v = On(g.dev, Of(g.dtype, g.cut(i), d...))
		}
		p := tensor.NewParam(tensor.Constant(0), v.Shape().Dims...)
		p.SetName(g.whole[i].Name())
		p.SetValue(v)
		if h.Frozen == i+1 {
			p.Freeze()
		}
		y := g.tape.Use(p)
		if h.Inner {
			y = y.Affine(1, 0)
		}
		if h.View && len(d) > 0 {
			y = y.Slice(0, 1, 1+d[0])
			if len(d) == 2 {
				y = y.Slice(1, 1, 1+d[1])
			}
		}
		x, ps = append(x, y), append(ps, p)
	}
	return x, ps
}

// loss is the sum of the result's elements, each multiplied by a fixed number.
func (g *GradRun) loss(x []tensor.Tensor, h How) tensor.Tensor {
	t := g.tape
	t.SetStep(0, 0) // the same dropout each time
	var y tensor.Tensor
	if h.Scope {
		y = t.Scope(func(in ...tensor.Tensor) tensor.Tensor {
			for i := range in { // made inside, so that only the Saves of the rule keep them
				in[i] = in[i].Affine(1, 0)
			}
			return g.c.F(t, in)
		}, x...)
	} else {
		y = g.c.F(t, x)
	}
	w := tensor.New(g.dev, y.DType(), y.Shape().Dims...)
	tensor.UniformInit(0.5, 1.5).Fill(w, 77, 0)
	return y.Mul(w).Sum()
}

// Grads returns the loss and the gradients of the inputs; nil for a frozen one.
func (g *GradRun) Grads(h How) (loss float64, grads [][]float64) {
	g.tb.Helper()
	x, ps := g.inputs(h)
	sum := g.loss(x, h)
	if g.Recorded != nil {
		g.Recorded(g.tape)
	}
	g.tape.Backward(sum)
	loss = sum.Item()
	for i, p := range ps {
		if !p.HasGrad() {
			grads = append(grads, nil)
			continue
		}
		part := []float64{}
		for k, v := range tensor.Floats(p.Grad) {
			if inside := inCut(g.Dims[i], p.Dims(), k); inside || !h.View {
				part = append(part, v)
			} else {
				require.Zero(g.tb, v, "gradient outside the view")
			}
		}
		grads = append(grads, part)
		p.Consume()
	}
	g.tape.Reset()
	live, _ := g.tape.Memory()
	require.Zero(g.tb, live, "step memory is left after Reset")
	return loss, grads
}

// value computes the loss with the inputs x.
func (g *GradRun) value(x [][]float64) float64 {
	in := []tensor.Tensor{}
	for i, d := range g.Dims {
		in = append(in, g.tape.Input(Of(g.dtype, x[i], d...)))
	}
	v := g.loss(in, How{}).Item()
	if g.c.Extra != nil {
		v += g.c.Extra(in).Item()
	}
	g.tape.Reset()
	return v
}

// Numeric returns the gradients by central differences. Of an input with many elements, these are a fourth of them, others in each of four
// runs whose keys follow each other; the rest is that of grads.
func (g *GradRun) Numeric(grads [][]float64) (out [][]float64) {
	var x [][]float64
	for i := range g.Dims {
		x = append(x, g.cut(i))
	}
	h := g.c.Step
	if h == 0 {
		h = 1e-5
	}
	for i := range x {
		d := slices.Clone(grads[i])
		for k, v := range x[i] {
			if len(x[i]) > 64 && (k+k/4+g.key)%4 != 0 {
				continue
			}
			x[i][k] = v + h
			up := g.value(x)
			x[i][k] = v - h
			d[k] = (up - g.value(x)) / (2 * h)
			x[i][k] = v
		}
		out = append(out, d)
	}
	return out
}

package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gradCase checks one gradient rule. fn is a function of float64 tensors; shapes makes their dimensions, differently
// each time.
type gradCase struct {
	name   string
	shapes func(r *rand.Rand) [][]int
	lo, hi float64 // range of the inputs; 0, 0: ±2
	fn     func(t *Tape, x []Tensor) Tensor
	extra  func(x []Tensor) Tensor // one element that belongs to the loss, though fn does not return it
	alone  bool                    // does not work inside a Scope
	step   float64                 // of the finite differences; 0: 1e-5
}

// how says in which ways the inputs reach the function.
type how struct {
	name   string
	view   bool // columns or rows cut out of something larger
	inner  bool // results of another operation, not parameters
	scope  bool // inside a Scope
	frozen int  // this input (from 1) is frozen
}

// gradRun is one function on one set of inputs.
type gradRun struct {
	tape   *Tape
	c      gradCase
	op     Op
	params []*Param
	dims   [][]int
}

func newGradRun(tb testing.TB, dev Device, op Op, c gradCase, dims [][]int, key uint64) *gradRun {
	g := &gradRun{tape: NewTape(dev, Seed(3)), c: c, op: op, dims: dims}
	g.tape.mem.poison = true
	lo, hi := c.lo, c.hi
	if lo == hi {
		lo, hi = -2, 2
	}
	for i, d := range dims {
		p := NewParam(UniformInit(lo, hi), padded(d)...)
		p.SetName(fmt.Sprintf("x%d", i))
		p.Make(dev, Float64, key)
		g.params = append(g.params, p)
	}
	tb.Cleanup(g.tape.Close)
	return g
}

// padded is the shape that a view of shape d is cut from.
func padded(d []int) []int {
	p := append([]int(nil), d...)
	for i := range p {
		if i == 0 || i == 1 && len(p) == 2 {
			p[i] += 3
		}
	}
	return p
}

// cut returns the part of p that is the input. The rest of the memory belongs to no input, and is never the same twice.
func (g *gradRun) cut(i int) []float64 {
	d, p := g.dims[i], g.params[i].dims
	out := []float64{}
	for k, v := range Floats(g.params[i].Value) {
		if inCut(d, p, k) {
			out = append(out, v)
		}
	}
	return out
}

// inCut reports whether flat element k of a tensor of shape p lies in the part of shape d, which starts at 1 in each
// dimension that was padded.
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
func (g *gradRun) inputs(h how) (x []Tensor, ps []*Param) {
	for i, d := range g.dims {
		p := g.params[i]
		if !h.view {
			v := FromSlice(g.cut(i), d...)
			p = NewParam(Constant(0), d...)
			p.SetName(g.params[i].name)
			p.SetValue(v)
		}
		p.frozen = h.frozen == i+1
		y := g.tape.Use(p)
		if h.inner {
			y = y.Affine(1, 0)
		}
		if h.view && len(d) > 0 {
			y = y.Slice(0, 1, 1+d[0])
			if len(d) == 2 {
				y = y.Slice(1, 1, 1+d[1])
			}
		}
		x, ps = append(x, y), append(ps, p)
	}
	return x, ps
}

// loss weighs the elements of the result with fixed numbers and adds them up.
func (g *gradRun) loss(x []Tensor, h how) Tensor {
	t := g.tape
	t.SetStep(0, 0) // the same dropout each time
	var y Tensor
	if h.scope {
		y = t.Scope(func(in ...Tensor) Tensor {
			for i := range in { // made inside, so that only the Saves of the rule keep them
				in[i] = in[i].Affine(1, 0)
			}
			return g.c.fn(t, in)
		}, x...)
	} else {
		y = g.c.fn(t, x)
	}
	w := New(t.dev, Float64, y.Shape().Dims...)
	UniformInit(0.5, 1.5).Fill(w, 77, 0)
	return y.Mul(w).Sum()
}

// grads returns the gradients of the inputs; nil for a frozen one.
func (g *gradRun) grads(t *testing.T, h how) [][]float64 {
	x, ps := g.inputs(h)
	loss := g.loss(x, h)
	found := false
	for i := range g.tape.nn {
		found = found || g.tape.node(i).op == g.op
	}
	require.True(t, found || h.frozen > 0, "the case does not record %v", g.op)
	g.tape.Backward(loss)
	var out [][]float64
	for i, p := range ps {
		if !p.HasGrad() {
			out = append(out, nil)
			continue
		}
		part := []float64{}
		for k, v := range Floats(p.Grad) {
			if inside := inCut(g.dims[i], p.dims, k); inside || !h.view {
				part = append(part, v)
			} else {
				require.Zero(t, v, "gradient outside the view")
			}
		}
		out = append(out, part)
		p.Consume()
	}
	g.tape.Reset()
	live, _ := g.tape.Memory()
	require.Zero(t, live, "step memory is left after Reset")
	return out
}

// value computes the loss with the inputs x.
func (g *gradRun) value(x [][]float64) float64 {
	in := []Tensor{}
	for i, d := range g.dims {
		in = append(in, g.tape.Input(FromSlice(x[i], d...)))
	}
	v := g.loss(in, how{}).Item()
	if g.c.extra != nil {
		v += g.c.extra(in).Item()
	}
	g.tape.Reset()
	return v
}

// numeric returns the gradients by central differences.
func (g *gradRun) numeric() (out [][]float64) {
	var x [][]float64
	for i := range g.dims {
		x = append(x, g.cut(i))
	}
	h := g.c.step
	if h == 0 {
		h = 1e-5
	}
	for i := range x {
		d := make([]float64, len(x[i]))
		for k, v := range x[i] {
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

func requireGrads(t *testing.T, want, got [][]float64, tol float64, msg string) {
	t.Helper()
	require.Equal(t, len(want), len(got), msg)
	for i := range want {
		require.Equal(t, len(want[i]), len(got[i]), "%s: input %d", msg, i)
		for k, w := range want[i] {
			if math.Abs(w-got[i][k]) > tol*(1+math.Abs(w)) || math.IsNaN(got[i][k]) {
				require.Failf(t, "gradient", "%s: input %d element %d is %v, want %v", msg, i, k, got[i][k], w)
			}
		}
	}
}

// TestGradients checks each rule against finite differences, and each way that inputs may come in against the plain one.
func TestGradients(t *testing.T) {
	dev := NewCPU(1)
	defer dev.Close()
	for op, cases := range gradCases() {
		for _, c := range cases {
			t.Run(op.String()+"/"+c.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(op), 5))
				for k := range 4 {
					g := newGradRun(t, dev, op, c, c.shapes(r), uint64(k))
					checkGradients(t, g)
				}
			})
		}
	}
}

func checkGradients(t *testing.T, g *gradRun) {
	msg := fmt.Sprint(g.dims)
	plain := g.grads(t, how{})
	requireGrads(t, g.numeric(), plain, 1e-6, msg)
	for _, h := range []how{{name: "inner", inner: true}, {name: "view", view: true}, {name: "scope", inner: true, scope: true},
		{name: "view of a result in a scope", view: true, inner: true, scope: true}} {
		if !h.scope || !g.c.alone {
			requireGrads(t, plain, g.grads(t, h), 1e-13, msg+" "+h.name)
		}
	}
	if len(g.dims) == 1 {
		return
	}
	for i := range g.dims {
		want := append([][]float64(nil), plain...)
		want[i] = nil
		requireGrads(t, want, g.grads(t, how{frozen: i + 1}), 1e-13, fmt.Sprintf("%s: input %d frozen", msg, i))
		requireGrads(t, want, g.grads(t, how{frozen: i + 1, inner: true, view: true}), 1e-13, fmt.Sprintf("%s: input %d frozen, views", msg, i))
	}
}

// TestEveryRuleHasACase fails when an operation with a gradient rule is not in the table, and when one has neither a
// rule nor says that it needs none.
func TestEveryRuleHasACase(t *testing.T) {
	cases := gradCases()
	for op := range Op(numBuiltin) {
		s := ops[op]
		assert.NotEmpty(t, s.Name, "operation %d has no entry in rules", op)
		assert.Equal(t, s.VJP == nil, s.Const, "%v: either a VJP or Const", op)
		assert.Equal(t, s.VJP != nil, len(cases[op]) > 0, "%v: gradient cases", op)
	}
}

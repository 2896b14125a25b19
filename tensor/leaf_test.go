package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
)

// bucket is an owner that communicates the gradients of its parameters together, when the last one is ready. It waits for missing
// contributions just before that, not earlier.
type bucket struct {
	l      *lane
	params []*Param
	after  []Pending
	ready  int
	early  int // collectives that were over when a gradient was ready, except the last
	late   int // gradients that were ready before they were complete
	last   bool
}

func (b *bucket) BeforeUse(*Param, Phase) {}
func (b *bucket) BackwardBegin(last bool) { b.last, b.ready, b.after = last, 0, b.after[:0] }
func (b *bucket) BackwardDone(bool) error { return nil }
func (b *bucket) Changed(*Param)          {}
func (b *bucket) GradReady(_ *Param, after Pending) Pending {
	b.early += b.l.done
	if !after.Done() {
		b.late++
	}
	b.after = append(b.after, after)
	if b.ready++; b.ready < len(b.params) || !b.last {
		return after
	}
	for _, p := range b.after {
		if err := p.Wait(); err != nil {
			panic(&Failure{Op: "bucket", Err: err})
		}
	}
	return Pending{}
}

// A gradient for which a collective still runs is passed to its owner with a Pending; the owner waits when it communicates. The sums are
// those of a collective that is over at once. Until somebody waits for it, its buffer is NaN.
func TestPendingTravelsToTheOwner(t *testing.T) {
	for _, micro := range []int{1, 2} {
		for name, model := range pendingModels {
			run := func(now bool, l *lane) (grads [][]float64, b *bucket) {
				ps := &params{dev: hostDevice, dtype: Float32}
				b = &bucket{l: l}
				var w []*Param
				for i := range 3 {
					w = append(w, ps.add(fmt.Sprint("w", i), UniformInit(-1, 1), 6, 6))
				}
				b.params = w
				var through Function = slowScale{l}
				if now {
					through = nowScale{}
				}
				for _, p := range w {
					p.Through(through)
					require.NoError(t, p.Own(b, 0))
				}
				tape := NewTape(hostDevice)
				Poison(tape)
				for k := range micro {
					x := tape.Input(random(hostDevice, Float32, uint64(k+1), 4, 6))
					y := model(tape, identity{}, x, w)
					for _, p := range w { // each one at least once
						y = Linear(y, tape.Use(p), Tensor{})
					}
					if k+1 < micro {
						tape.Backward(y.Sum(), More())
					} else {
						l.done = len(l.ops) // those before are over
						l.ops, l.done = l.ops[l.done:], 0
						tape.Backward(y.Sum())
					}
					tape.Reset()
				}
				return ps.grads(), b
			}
			want, _ := run(true, &lane{})
			l := &lane{}
			got, b := run(false, l)
			requireGrads(t, want, got, 0, name)
			assert.Zero(t, b.early, "%s: somebody waited before the bucket was issued", name)
			assert.Equal(t, 3*micro, b.late, name)
			assert.Equal(t, len(l.ops), l.done, name)
			assert.NotZero(t, l.done, name)
		}
	}
}

// An error of a collective names the parameter, also if the gradient has no owner.
func TestPendingLeafFails(t *testing.T) {
	for _, owned := range []bool{false, true} {
		l := &lane{err: assert.AnError}
		ps := &params{dev: hostDevice, dtype: Float32}
		p := ps.add("p", Constant(1), 3)
		p.Through(slowScale{l})
		if owned {
			require.NoError(t, p.Own(&bucket{l: l, params: []*Param{p}}, 0))
		}
		tape := NewTape(hostDevice)
		err := Try(func() { tape.Backward(tape.Use(p).Exp().Sum()) })
		require.ErrorIs(t, err, assert.AnError)
		assert.ErrorContains(t, err, "gradient of p")
		tape.Reset()
		assert.False(t, p.HasGrad())
		l.err = nil
		tape.Backward(tape.Use(p).Exp().Sum())
		assert.True(t, p.HasGrad())
	}
}

// zero3 takes the value of a parameter away when another one is used.
type zero3 struct {
	home map[*Param][]float64
	here *Param
	uses int
}

func (z *zero3) drop() {
	if z.here != nil {
		for i := range z.here.Len() {
			StoreFloat(z.here.Value.Ptr(), z.here.Value.DType(), i, math.NaN())
		}
		Raw(z.here.Value).Place(nil)
		z.here = nil
	}
}

func (z *zero3) BeforeUse(p *Param, _ Phase) {
	if z.here == p {
		return
	}
	z.drop()
	z.uses++
	x := New(hostDevice, p.Value.DType(), p.Len())
	for i, v := range z.home[p] {
		StoreFloat(x.Ptr(), x.DType(), i, v)
	}
	Raw(p.Value).Place(x.Ptr())
	z.here = p
}
func (z *zero3) BackwardBegin(bool)                        { z.drop() }
func (z *zero3) Changed(*Param)                            {}
func (z *zero3) GradReady(_ *Param, after Pending) Pending { return after }
func (z *zero3) BackwardDone(bool) error                   { z.drop(); return nil }

// viewModels use views of a parameter, and handles that are older than the use of another one.
var viewModels = map[string]func(t *Tape, x Tensor, w, v *Param) Tensor{
	"reshape into linear": func(t *Tape, x Tensor, w, v *Param) Tensor {
		y := Linear(x, t.Use(w).Reshape(4, 6), Tensor{}).Tanh()
		return Linear(y, t.Use(v), Tensor{})
	},
	"slices into linear and mul": func(t *Tape, x Tensor, w, v *Param) Tensor {
		u := t.Use(w)
		y := Linear(x, u.Slice(0, 0, 4).Reshape(4, 6), Tensor{}).Mul(u.Slice(0, 3, 4).Reshape(6).Slice(0, 1, 5).Exp())
		return Linear(y.Tanh(), t.Use(v), Tensor{})
	},
	"a handle that another parameter's use outlives": func(t *Tape, x Tensor, w, v *Param) Tensor {
		u := t.Use(w)
		y := Linear(t.Input(random(t.Device(), Float64, 9, 3, 4)), t.Use(v), Tensor{})
		return y.Add(Linear(Linear(x, u.Reshape(4, 6), Tensor{}).Tanh(), t.Use(v), Tensor{}))
	},
	"a handle captured by a checkpoint": func(t *Tape, x Tensor, w, v *Param) Tensor {
		u := t.Use(w)
		return t.Checkpoint(func(in ...Tensor) Tensor {
			return Linear(Linear(in[0], u.Reshape(4, 6), Tensor{}).Tanh(), t.Use(v), Tensor{})
		}, x)
	},
	"a view captured by a checkpoint": func(t *Tape, x Tensor, w, v *Param) Tensor {
		u := t.Use(w).Reshape(4, 6)
		return t.Checkpoint(func(in ...Tensor) Tensor {
			return Linear(Linear(in[0], u, Tensor{}).Tanh(), t.Use(v), Tensor{})
		}, x)
	},
	"through": func(t *Tape, x Tensor, w, v *Param) Tensor {
		if !HasThrough(w) {
			w.Through(identity{})
		}
		return Linear(Linear(x, t.Use(w).Reshape(4, 6), Tensor{}).Tanh(), t.Use(v), Tensor{})
	},
}

// A view of a parameter knows its leaf: the owner makes the parameter resident for the view, too.
func TestViewsOfAbsentParameters(t *testing.T) {
	for name, model := range viewModels {
		run := func(away bool) [][]float64 {
			ps := &params{dev: hostDevice, dtype: Float64}
			w, v := ps.add("w", UniformInit(-1, 1), 4, 2, 3), ps.add("v", UniformInit(-1, 1), 2, 4)
			z := &zero3{home: map[*Param][]float64{}}
			if away {
				for _, p := range []*Param{w, v} {
					z.home[p] = Floats(p.Value)
					p.SetValue(FromPtr(hostDevice, nil, Float64, p.Dims()...))
					require.NoError(t, p.Own(z, 0))
				}
			}
			tape := NewTape(hostDevice)
			for range 2 {
				ps.consume()
				tape.Backward(model(tape, tape.Input(random(hostDevice, Float64, 5, 3, 6)), w, v).Sum())
				tape.Reset()
			}
			assert.Equal(t, away, z.uses > 0)
			return ps.grads()
		}
		var want, got [][]float64
		require.NoError(t, Try(func() { want = run(false) }), name)
		require.NoError(t, Try(func() { got = run(true) }), name)
		requireGrads(t, want, got, 0, name)
	}
}

// saving is half a square, and keeps what its gradient needs.
var saving = fn{
	forward: func(c *Ctx, in []Tensor) Tensor {
		c.Save(in[0])
		return in[0].Mul(in[0]).Scale(0.5)
	},
	backward: func(c *Ctx, g Tensor, grads []Tensor) { grads[0] = g.Mul(c.Saved(0)) },
}

// A Backward that needs values from before a change is an error; one that does not is right.
func TestStaleValues(t *testing.T) {
	change := func(p *Param) { p.SetValue(FromSlice([]float64{3}, 1)) }
	for _, c := range []struct {
		name  string
		fresh bool
		loss  func(t *Tape, p, q *Param) Tensor
	}{
		{"square", false, func(t *Tape, p, _ *Param) Tensor { return t.Use(p).Square().Sum() }},
		{"a view", false, func(t *Tape, p, _ *Param) Tensor { return t.Use(p).Reshape(1, 1).Square().Sum() }},
		{"an older handle", false, func(t *Tape, p, q *Param) Tensor {
			x := t.Use(p)
			t.Use(q)
			return x.Mul(t.Use(q)).Sum()
		}},
		{"frozen", false, func(t *Tape, p, q *Param) Tensor {
			p.Freeze()
			return t.Use(p).Mul(t.Use(q)).Sum()
		}},
		{"checkpoint", false, func(t *Tape, p, q *Param) Tensor {
			return t.Checkpoint(func(in ...Tensor) Tensor { return in[0].Add(t.Use(p)) }, t.Use(q).Exp()).Sum()
		}},
		{"captured", false, func(t *Tape, p, q *Param) Tensor {
			x := t.Use(p)
			return t.Checkpoint(func(in ...Tensor) Tensor { return in[0].Mul(x) }, t.Use(q).Exp()).Sum()
		}},
		{"a function that saved it", false, func(t *Tape, p, _ *Param) Tensor { return t.Apply(saving, t.Use(p)).Sum() }},
		{"a function that did not", true, func(t *Tape, p, _ *Param) Tensor { return t.Apply(nowScale{}, t.Use(p)).Sum() }},
		{"a sum", true, func(t *Tape, p, q *Param) Tensor { return t.Use(p).Add(t.Use(q)).Sum() }},
		{"its exponential", true, func(t *Tape, p, _ *Param) Tensor { return t.Use(p).Exp().Sum() }},
	} {
		ps := &params{dev: hostDevice, dtype: Float64}
		p, q := ps.add("p", Constant(2), 1), ps.add("q", Constant(1), 1)
		tape := NewTape(hostDevice)
		loss := c.loss(tape, p, q)
		change(p)
		err := Try(func() { tape.Backward(loss) })
		if c.fresh {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, "p was changed (by an optimizer's step, SetValue or a load) after", c.name)
		}
		tape.Reset()
		p.Consume()
		q.Consume()
		loss = c.loss(tape, p, q)
		assert.NoError(t, Try(func() { tape.Backward(loss) }), "%s: the values of now", c.name)
	}
}

// Two tapes with a step in between (forward on B, Backward on A, step, Backward on B): it must be an error, not one of two wrong gradients.
func TestStaleValuesOnAnotherTape(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	p := ps.add("p", Constant(1), 1)
	a, b := NewTape(hostDevice), NewTape(hostDevice)
	loss := b.Use(p).Mul(b.Use(p).Square()).Sum()
	a.Backward(a.Use(p).Sum())
	Data[float64](p.Value)[0] = 2 // an optimizer's step
	p.Changed()
	p.Consume()
	require.ErrorContains(t, Try(func() { b.Backward(loss) }), "Backward p float64[1]: p was changed")
	b.Reset()
	b.Backward(b.Use(p).Mul(b.Use(p).Square()).Sum())
	assert.Equal(t, 12.0, p.Grad.Item())
}

func TestUnfreeze(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	p, q := ps.add("p", Constant(1), 1), ps.add("q", Constant(1), 1)
	tape := NewTape(hostDevice)
	p.Freeze()
	for _, frozen := range []bool{true, false} {
		ps.consume()
		tape.Backward(tape.Use(p).Mul(tape.Use(q)).Sum())
		assert.Equal(t, !frozen, p.HasGrad())
		tape.Reset()
		p.Unfreeze()
	}
	b := NewBuffer(Constant(0), 1)
	b.Unfreeze()
	assert.True(t, b.Frozen())
}

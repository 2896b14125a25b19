package tensor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
)

// Each use of a parameter decides anew whether it has a gradient there. Tensors of earlier uses stay as they were.
func TestFreezeBetweenUses(t *testing.T) {
	for _, c := range []struct {
		name string
		want float64 // the gradient of p = 2; 0: none
		loss func(t *Tape, p *Param) Tensor
	}{
		{"frozen behind the first use", 3, func(t *Tape, p *Param) Tensor {
			x := t.Use(p).Scale(3)
			p.Freeze()
			return x.Add(t.Use(p).Square())
		}},
		{"frozen before the first use only", 4, func(t *Tape, p *Param) Tensor {
			p.Freeze()
			x := t.Use(p).Scale(3)
			p.Unfreeze()
			return x.Add(t.Use(p).Square())
		}},
		{"frozen for one use of three", 8, func(t *Tape, p *Param) Tensor {
			x := t.Use(p).Square()
			p.Freeze()
			x = x.Add(t.Use(p).Scale(5))
			p.Unfreeze()
			return x.Add(t.Use(p).Square())
		}},
		{"both in one product", 2, func(t *Tape, p *Param) Tensor {
			x := t.Use(p)
			p.Freeze()
			return x.Mul(t.Use(p))
		}},
		{"a view of each", 2, func(t *Tape, p *Param) Tensor {
			p.Freeze()
			x := t.Use(p).Reshape(1, 1)
			p.Unfreeze()
			return x.Mul(t.Use(p).Reshape(1, 1))
		}},
		{"used before, read behind", 1, func(t *Tape, p *Param) Tensor {
			x := t.Use(p)
			p.Freeze()
			t.Use(p)
			return x.Log().Scale(2)
		}},
		{"frozen behind the last use", 4, func(t *Tape, p *Param) Tensor {
			x := t.Use(p).Square()
			p.Freeze()
			return x
		}},
		{"frozen for all", 0, func(t *Tape, p *Param) Tensor {
			p.Freeze()
			return t.Use(p).Square()
		}},
	} {
		ps := &params{dev: hostDevice, dtype: Float64}
		p, q := ps.add("p", Constant(2), 1), ps.add("q", Constant(1), 1)
		tape := NewTape(hostDevice)
		for range 2 { // the second time with headers that were made already
			tape.Backward(c.loss(tape, p).Sum().Add(tape.Use(q).Sum()))
			assert.Equal(t, c.want != 0, p.HasGrad(), c.name)
			if c.want != 0 {
				assert.Equal(t, c.want, p.Grad.Item(), c.name)
			}
			p.Unfreeze()
			ps.consume()
			tape.Reset()
		}
	}
}

// The same with a Backward in between, and no Reset.
func TestFreezeBetweenBackwards(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	p, q := ps.add("p", Constant(2), 1), ps.add("q", Constant(1), 1)
	tape := NewTape(hostDevice)
	for i, frozen := range []bool{false, true, true, false, true, false} {
		if p.Unfreeze(); frozen {
			p.Freeze()
		}
		tape.Backward(tape.Use(p).Mul(tape.Use(q)).Sum())
		assert.Equal(t, !frozen, p.HasGrad(), i)
		assert.Equal(t, 2.0, q.Grad.Item(), i)
		ps.consume()
	}
	old := tape.Use(p)
	p.Freeze()
	other := tape.Use(p)
	tape.Reset()
	assert.False(t, old.Valid())
	assert.False(t, other.Valid(), "Reset ends the tensors of all uses")
}

// When Backward runs the function of a Checkpoint again, parameters are frozen in it as in the first run.
func TestFreezeBehindCheckpoint(t *testing.T) {
	type fn = func(...Tensor) Tensor
	for name, how := range map[string]func(t *Tape, f fn, x Tensor) Tensor{
		"plain":      func(_ *Tape, f fn, x Tensor) Tensor { return f(x) },
		"checkpoint": func(t *Tape, f fn, x Tensor) Tensor { return t.Checkpoint(f, x) },
		"inside each other": func(t *Tape, f fn, x Tensor) Tensor {
			return t.Checkpoint(func(in ...Tensor) Tensor { return t.Checkpoint(f, in[0]) }, x)
		},
		"a scope inside": func(t *Tape, f fn, x Tensor) Tensor {
			return t.Checkpoint(func(in ...Tensor) Tensor { return t.Scope(f, in[0]) }, x)
		},
	} {
		for _, frozen := range []bool{false, true} {
			for _, turned := range []bool{false, true} { // the state changes before Backward
				ps := &params{dev: hostDevice, dtype: Float64}
				p, q := ps.add("p", Constant(2), 1), ps.add("q", Constant(3), 1)
				tape := NewTape(hostDevice)
				if frozen {
					p.Freeze()
				}
				y := how(tape, func(in ...Tensor) Tensor { return in[0].Mul(tape.Use(p)).Square() }, tape.Use(q))
				if turned {
					SetFrozen(p, !frozen)
					y = y.Add(tape.Use(p).Scale(1))
				}
				tape.Backward(y.Sum())
				want := 0.0
				if !frozen {
					want = 36
				}
				if turned && frozen {
					want = 1
				}
				require.Equal(t, want != 0, p.HasGrad(), "%s, frozen %v, turned %v", name, frozen, turned)
				if want != 0 {
					assert.Equal(t, want, p.Grad.Item(), "%s, frozen %v, turned %v", name, frozen, turned)
				}
				assert.Equal(t, 24.0, q.Grad.Item(), name)
			}
		}
	}
}

// A tape with NoGrad computes no gradient, whatever is frozen, and leaves the other tape's uses alone.
func TestFreezeAndNoGrad(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	p, q := ps.add("p", Constant(2), 1), ps.add("q", Constant(3), 1)
	train, eval := NewTape(hostDevice), NewTape(hostDevice, NoGrad())
	x := train.Use(p).Mul(train.Use(q))
	p.Freeze()
	before := eval.Use(p)
	p.Unfreeze()
	assert.Equal(t, before, eval.Use(p))
	assert.False(t, before.NeedsGrad())
	train.Backward(x.Sum())
	assert.Equal(t, [][]float64{{3}, {2}}, ps.grads())
}

// The steps of a GAN by turns, without a Reset in between: the discriminator d trains first, and then is frozen while the generator g does.
func TestFreezeInTurns(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float64}
	g, d := ps.add("g", Constant(0.5), 1), ps.add("d", Constant(2), 1)
	run := func(reset bool) (grads [][]float64) {
		tape := NewTape(hostDevice)
		for range 3 {
			tape.Backward(tape.Use(g).Tanh().Detach().Mul(tape.Use(d)).Sum())
			grads = append(grads, ps.grads()...)
			ps.consume()
			d.Changed()
			if reset {
				tape.Reset()
			}
			d.Freeze()
			tape.Backward(tape.Use(g).Tanh().Mul(tape.Use(d)).Sum())
			grads = append(grads, ps.grads()...)
			ps.consume()
			g.Changed()
			d.Unfreeze()
			if reset {
				tape.Reset()
			}
		}
		return grads
	}
	want := run(true)
	assert.Nil(t, want[0])
	assert.NotNil(t, want[1])
	assert.NotNil(t, want[2])
	assert.Nil(t, want[3], "frozen")
	assert.Equal(t, want, run(false))
}

// The owner of the memory of parameters takes it away between uses: each use, frozen or not, has the values of now.
func TestFreezeWhereMemoryMoves(t *testing.T) {
	run := func(own, through bool) [][]float64 {
		ps := &params{dev: hostDevice, dtype: Float64}
		p, q := ps.add("p", UniformInit(1, 2), 2), ps.add("q", UniformInit(1, 2), 2)
		if own {
			z := &zero3{home: map[*Param][]float64{p: Floats(p.Value), q: Floats(q.Value)}}
			for _, p := range ps.list {
				require.NoError(t, p.Own(z, 0))
				Raw(p.Value).Place(nil)
			}
		}
		if through {
			p.Through(identity{})
		}
		tape := NewTape(hostDevice)
		x := tape.Use(p).Square().Mul(tape.Use(q))
		p.Freeze()
		x = x.Mul(tape.Use(p)).Mul(tape.Use(q)).Exp()
		p.Unfreeze()
		tape.Backward(x.Mul(tape.Use(p)).Sum())
		return ps.grads()
	}
	want := run(false, false)
	assert.NotZero(t, want[0][0])
	assert.Equal(t, want, run(true, false))
	assert.Equal(t, want, run(false, true))
	assert.Equal(t, want, run(true, true))
}

// The owner hears once that the gradient is ready, when the trained uses are differentiated.
func TestHooksOfFrozenUses(t *testing.T) {
	var log []string
	ps := &params{dev: hostDevice, dtype: Float32}
	p := hooked(ps, "p", &spy{name: "s", log: &log})
	tape := NewTape(hostDevice)
	x := tape.Use(p).Exp()
	p.Freeze()
	x = x.Mul(tape.Use(p)).Mul(tape.Use(p))
	log = nil
	tape.Backward(x.Sum())
	assert.Equal(t, "s begin true, s use p 1, s use p 1, s use p 1, s ready p false, s done true", strings.Join(log, ", "))
	log = nil
	p.Consume()
	tape.Backward(tape.Use(p).Mul(tape.Use(ps.add("q", Constant(1), 1))).Sum())
	assert.Equal(t, "s use p 0, s begin true, s use p 1, s done true", strings.Join(log, ", "))
	assert.False(t, p.HasGrad())
}

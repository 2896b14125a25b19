package tensor

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lseLoss is a loss of attention's two results.
type lseLoss func(out, lse Tensor) Tensor

// lseLosses use both results, one of them, and none.
var lseLosses = map[string]lseLoss{
	"both": func(out, lse Tensor) Tensor { return out.Square().Sum().Add(lse.Sin().Sum()) },
	"out":  func(out, _ Tensor) Tensor { return out.Square().Sum() },
	"lse":  func(_, lse Tensor) Tensor { return lse.Sin().Sum() },
	"none": func(out, _ Tensor) Tensor { return out.Detach().Sum() },
}

type attentionBoth func(q, k, v Tensor) (out, lse Tensor)

// lseRun returns the loss and the gradients of parameters in. The loss also depends on the first one directly. inner first makes them
// results of other operations; outer runs the whole.
func lseRun(t *testing.T, in []Tensor, f attentionBoth, loss lseLoss, inner bool,
	outer func(t *Tape, fn func(...Tensor) Tensor, in ...Tensor) Tensor,
	opts ...BackwardOption) (grads [][]float64) {
	t.Helper()
	tape := NewTape(hostDevice)
	defer tape.Close()
	Poison(tape)
	var x []Tensor
	var ps []*Param
	for _, v := range in {
		p := NewParam(Constant(0), v.Shape().Dims...)
		p.SetValue(v)
		y := tape.Use(p)
		if inner {
			y = y.Affine(1, 0)
		}
		ps, x = append(ps, p), append(x, y)
	}
	y := outer(tape, func(x ...Tensor) Tensor { return loss(f(x[0], x[1], x[2])) }, x...)
	tape.Backward(y.Add(x[0].Sum()), opts...)
	if len(opts) > 0 {
		tape.RunDeferred()
	}
	for _, p := range ps {
		if p.Grad.IsZero() {
			grads = append(grads, make([]float64, p.Value.Len()))
			continue
		}
		grads = append(grads, Floats(p.Grad))
		p.Consume()
	}
	tape.Reset()
	live, _ := tape.Memory()
	require.Zero(t, live, "step memory is left after Reset")
	return grads
}

func plainly(_ *Tape, fn func(...Tensor) Tensor, in ...Tensor) Tensor { return fn(in...) }

// plainBoth is attention by matrix products and LogSumExp, with heads of 4 features; heads of keys are repeated.
func plainBoth(q, k, v Tensor) (out, lse Tensor) {
	heads := func(x Tensor) Tensor { return x.Reshape(x.Dim(0), x.Dim(1), x.Dim(2)/4, 4).Permute(0, 2, 1, 3) }
	group := q.Dim(2) / k.Dim(2)
	repeat := func(x Tensor) Tensor {
		h := heads(x)
		return h.Reshape(h.Dim(0), h.Dim(1), 1, h.Dim(2), 4).Broadcast(h.Dim(0), h.Dim(1), group, h.Dim(2), 4).Reshape(h.Dim(0), h.Dim(1)*group,
			h.Dim(2), 4)
	}
	s := MatMul(heads(q).Scale(0.5), repeat(k), false, true)
	return MatMul(s.Softmax(), repeat(v), false, false).Permute(0, 2, 1, 3).Reshape(q.Shape().Dims...), s.LogSumExp()
}

// The gradients are those of plain operations, whichever of the results the loss depends on: in a Scope, in a Checkpoint, for parameters
// and for computed tensors, and with weight gradients that are put off.
func TestLogSumsWhicheverIsUsed(t *testing.T) {
	in := []Tensor{random(hostDevice, Float64, 1, 2, 5, 16), random(hostDevice, Float64, 2, 2, 7, 8), random(hostDevice, Float64, 3, 2, 7, 8)}
	blocks := func(q, k, v Tensor) (out, lse Tensor) { return CrossAttentionLSE(q, k, v, 4, AttentionOptions{}) }
	for name, loss := range lseLosses {
		for _, inner := range []bool{false, true} {
			want := lseRun(t, in, plainBoth, loss, inner, plainly)
			for how, outer := range map[string]func(t *Tape, fn func(...Tensor) Tensor, in ...Tensor) Tensor{
				"plain": plainly, "scope": (*Tape).Scope, "checkpoint": (*Tape).Checkpoint,
			} {
				msg := fmt.Sprint(name, " ", how, " inner ", inner)
				requireGrads(t, want, lseRun(t, in, blocks, loss, inner, outer), 1e-12, msg)
				requireGrads(t, want, lseRun(t, in, blocks, loss, inner, outer, DeferWeights()), 1e-12, msg+" put off")
			}
		}
	}
}

// halves merges attention over two halves of the keys, as ring attention does.
func halves(o AttentionOptions, hd int) attentionBoth {
	return func(q, k, v Tensor) (out, lse Tensor) {
		half := k.Dim(1) / 2
		o1, l1 := CrossAttentionLSE(q, k.Slice(1, 0, half), v.Slice(1, 0, half), hd, o)
		o2 := o
		if o.Causal {
			o2.Offset -= half
		}
		o3, l2 := CrossAttentionLSE(q, k.Slice(1, half, k.Dim(1)), v.Slice(1, half, k.Dim(1)), hd, o2)
		top := l1.Maximum(l2).Detach()
		lse = l1.Sub(top).Exp().Add(l2.Sub(top).Exp()).Log().Add(top)
		weigh := func(o, l Tensor) Tensor {
			w := l.Sub(lse).Exp().Permute(0, 2, 1)
			return o.Reshape(q.Dim(0), q.Dim(1), q.Dim(2)/hd, hd).Mul(w.Reshape(q.Dim(0), q.Dim(1), q.Dim(2)/hd, 1)).Reshape(q.Shape().Dims...)
		}
		return weigh(o1, l1).Add(weigh(o3, l2)), lse
	}
}

// Attention over two halves of the keys, merged by lse, is equal to attention over all keys, and so are all gradients. Some queries see
// none of the second half.
func TestHalvesOfKeysMergeToTheWhole(t *testing.T) {
	in := []Tensor{random(hostDevice, Float64, 1, 2, 150, 16), random(hostDevice, Float64, 2, 2, 600, 8),
		random(hostDevice, Float64, 3, 2, 600, 8)}
	for _, o := range []AttentionOptions{{}, {Causal: true, Offset: 200}} {
		whole := func(q, k, v Tensor) (out, lse Tensor) { return CrossAttentionLSE(q, k, v, 4, o) }
		for name, loss := range lseLosses {
			want := lseRun(t, in, whole, loss, true, plainly)
			requireGrads(t, want, lseRun(t, in, halves(o, 4), loss, true, plainly), 1e-12, fmt.Sprint(name, " ", o.Causal))
		}
		tape := NewTape(hostDevice, NoGrad())
		x := [3]Tensor{tape.Input(in[0]), tape.Input(in[1]), tape.Input(in[2])}
		out, lse := whole(x[0], x[1], x[2])
		gotOut, gotLSE := halves(o, 4)(x[0], x[1], x[2])
		requireClose(t, Floats(out), Floats(gotOut), 1e-12, "output")
		requireClose(t, Floats(lse), Floats(gotLSE), 1e-12, "logarithmic sums")
	}
}

// The keys may be a part of each sequence, which CrossAttention does not allow. lse survives Backward if it is kept, and has the types of
// the output.
func TestLogSumsOfParts(t *testing.T) {
	tape := NewTape(hostDevice)
	part := random(hostDevice, Float64, 1, 2, 3, 8).WithRows(Rows{Stride: 1, Total: 2, Seq: Span{First: 3, Total: 6}, Over: 2})
	p := NewParam(Constant(0), 8)
	p.SetValue(random(hostDevice, Float64, 2, 8))
	p.SumOver(2)
	q := tape.Input(part).Mul(tape.Use(p))
	out, lse := CrossAttentionLSE(q, part, part, 4, AttentionOptions{Causal: true, Offset: -1})
	assert.Equal(t, Varying, lse.Types().At(1))
	assert.Equal(t, out.Types(), lse.Types())
	tape.Keep(lse)
	seen := Where(lse.Gt(FromSlice([]float64{-1e30}, 1)), lse, FromSlice([]float64{0}, 1))
	tape.Backward(GlobalMean(seen.Permute(0, 2, 1)))
	values := Floats(lse)
	for i, v := range values {
		assert.Equal(t, i%3 == 0, math.IsInf(v, -1), "the first query sees no key: %v", v)
	}
	for _, g := range Floats(p.Grad) {
		assert.False(t, math.IsNaN(g) || g == 0)
	}
	assert.Error(t, Try(func() { _ = Floats(out) }), "the output was not kept")
}

// A pipeline stage whose outputs are both results gets the gradients of both.
func TestLogSumsBackwardFrom(t *testing.T) {
	x := random(hostDevice, Float64, 1, 2, 5, 8)
	run := func(backward func(tape *Tape, out, lse Tensor)) []float64 {
		tape := NewTape(hostDevice)
		leaf := tape.Leaf(x)
		out, lse := CrossAttentionLSE(leaf, leaf, leaf, 4, AttentionOptions{Causal: true})
		backward(tape, out, lse)
		return Floats(tape.GradOf(leaf))
	}
	want := run(func(tape *Tape, out, lse Tensor) { tape.Backward(out.Sum().Scale(2).Add(lse.Sum().Scale(3))) })
	three, two := New(hostDevice, Float64, 2, 2, 5), New(hostDevice, Float64, 2, 5, 8)
	Constant(3).Fill(three, 0, 0)
	Constant(2).Fill(two, 0, 0)
	got := run(func(tape *Tape, out, lse Tensor) { tape.BackwardFrom([]Tensor{lse, out}, []Tensor{three, two}) })
	assert.InDeltaSlice(t, want, got, 1e-14)
}

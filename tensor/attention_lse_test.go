package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
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
	return MatMul(ops.Softmax(s), repeat(v), false, false).Permute(0, 2, 1, 3).Reshape(q.Shape().Dims...), ops.LogSumExp(s)
}

// The gradients are those of plain operations, whichever of the results the loss depends on: in a Scope, in a Checkpoint, for parameters
// and for computed tensors, and with weight gradients that are put off.
func TestLogSumsWhicheverIsUsed(t *testing.T) {
	in := []Tensor{random(hostDevice, Float64, 1, 2, 5, 16), random(hostDevice, Float64, 2, 2, 7, 8), random(hostDevice, Float64, 3, 2, 7, 8)}
	blocks := func(q, k, v Tensor) (out, lse Tensor) {
		return ops.CrossAttentionLSE(q, k, v, 4, ops.AttentionOptions{})
	}
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
func halves(o ops.AttentionOptions, hd int) attentionBoth {
	return func(q, k, v Tensor) (out, lse Tensor) {
		half := k.Dim(1) / 2
		o1, l1 := ops.CrossAttentionLSE(q, k.Slice(1, 0, half), v.Slice(1, 0, half), hd, o)
		o2 := o
		if o.Causal {
			o2.Offset -= half
		}
		o3, l2 := ops.CrossAttentionLSE(q, k.Slice(1, half, k.Dim(1)), v.Slice(1, half, k.Dim(1)), hd, o2)
		top := ops.Maximum(l1, l2).Detach()
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
	for _, o := range []ops.AttentionOptions{{}, {Causal: true, Offset: 200}} {
		whole := func(q, k, v Tensor) (out, lse Tensor) { return ops.CrossAttentionLSE(q, k, v, 4, o) }
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

// What parts of the keys contribute to gradients adds up to the gradients over all keys.
func TestGradientsOfPartsOfKeys(t *testing.T) {
	const hd, keys = 4, 60
	q, k, v, g := random(hostDevice, Float64, 1, 2, 15, 16), random(hostDevice, Float64, 2, 2, keys, 8),
		random(hostDevice, Float64, 3, 2, keys, 8), random(hostDevice, Float64, 4, 2, 15, 16)
	for _, o := range []ops.AttentionOptions{{}, {Causal: true, Offset: 20}} {
		tape := NewTape(hostDevice)
		in := []Tensor{tape.Leaf(q), tape.Leaf(k), tape.Leaf(v)}
		out, lse := ops.CrossAttentionLSE(in[0], in[1], in[2], hd, o)
		y, l := FromSlice(Floats(out), 2, 15, 16), FromSlice(Floats(lse), 2, 4, 15)
		tape.BackwardFrom([]Tensor{out}, []Tensor{g})
		plain := NewTape(hostDevice, NoGrad())
		x := []Tensor{plain.Input(q), plain.Input(k), plain.Input(v), plain.Input(y), plain.Input(g), plain.Input(l)}
		var dq Tensor
		var dk, dv []Tensor
		for i, cut := range [][2]int{{0, 25}, {25, keys}} {
			part := o
			if o.Causal {
				part.Offset -= cut[0]
			}
			a, b, c := ops.CrossAttentionGrad(x[0], x[1].Slice(1, cut[0], cut[1]), x[2].Slice(1, cut[0], cut[1]), x[3], x[4], x[5], hd, part)
			if dk, dv = append(dk, b), append(dv, c); i == 0 {
				dq = a
			} else {
				dq = dq.Add(a)
			}
		}
		requireClose(t, Floats(tape.GradOf(in[0])), Floats(dq), 1e-12, "queries")
		requireClose(t, Floats(tape.GradOf(in[1])), Floats(Concat(1, dk...)), 1e-12, "keys")
		requireClose(t, Floats(tape.GradOf(in[2])), Floats(Concat(1, dv...)), 1e-12, "values")
		for want, f := range map[string]func(){
			"lse has to be float64[2,4,15], and nothing is dropped": func() {
				ops.CrossAttentionGrad(x[0], x[1], x[2], x[3], x[4], x[5].Transpose(1, 2), hd, o)
			},
			"dimension 2 of the queries is 16, dimension 2 of the output is 8": func() {
				ops.CrossAttentionGrad(x[0], x[1], x[2], x[3].Slice(2, 0, 8), x[4], x[5], hd, o)
			},
			"dimension 1 of the output is 15, dimension 1 of its gradient is 14": func() {
				ops.CrossAttentionGrad(x[0], x[1], x[2], x[3], x[4].Slice(1, 0, 14), x[5], hd, o)
			},
			"nothing is dropped": func() {
				ops.CrossAttentionGrad(x[0], x[1], x[2], x[3], x[4], x[5], hd, ops.AttentionOptions{Drop: 0.1})
			},
		} {
			assert.ErrorContains(t, Try(f), want)
		}
	}
}

// The keys may be a part of each sequence, which CrossAttention does not allow. lse survives Backward if it is kept, and has the types of
// the output.
func TestLogSumsOfParts(t *testing.T) {
	tape := NewTape(hostDevice)
	part := random(hostDevice, Float64, 1, 2, 3, 8).WithRows(Rows{Stride: 1, Total: 2, Seq: Spans{First: 3, Total: 6}, Over: 2})
	p := NewParam(Constant(0), 8)
	p.SetValue(random(hostDevice, Float64, 2, 8))
	p.SumOver(2)
	q := tape.Input(part).Mul(tape.Use(p))
	out, lse := ops.CrossAttentionLSE(q, part, part, 4, ops.AttentionOptions{Causal: true, Offset: -1})
	assert.Equal(t, Varying, lse.Types().At(1))
	assert.Equal(t, out.Types(), lse.Types())
	tape.Keep(lse)
	seen := ops.Where(lse.Gt(FromSlice([]float64{-1e30}, 1)), lse, FromSlice([]float64{0}, 1))
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
		out, lse := ops.CrossAttentionLSE(leaf, leaf, leaf, 4, ops.AttentionOptions{Causal: true})
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

// crossRun returns the output of CrossAttention and the gradients of q, k and v, for the loss sum(out²).
func crossRun(in [3]Tensor, hd int, o ops.AttentionOptions) (out []float64, grads [3][]float64) {
	tape := NewTape(hostDevice)
	defer tape.Close()
	var x [3]Tensor
	var ps [3]*Param
	for i := range in {
		ps[i] = NewParam(Constant(0), in[i].Shape().Dims...)
		ps[i].SetValue(in[i])
		x[i] = tape.Use(ps[i])
	}
	y := tape.Keep(ops.CrossAttention(x[0], x[1], x[2], hd, o))
	tape.Backward(y.Square().Sum())
	for i, p := range ps {
		grads[i] = Floats(p.Grad)
	}
	return Floats(y), grads
}

func ramp[T int32 | int64](n int, f func(i int) int) (x []T) {
	for i := range n {
		x = append(x, T(f(i)))
	}
	return x
}

// Documents that are packed into one sequence, with padding after them, give the same as each document alone.
func TestPackedDocumentsAreDocumentsAlone(t *testing.T) {
	const time, hd = 300, 4
	ends := []int{0, 7, 8, 150, 290} // the rest is padding
	doc := func(i int) int {
		for d, end := range ends {
			if i < end {
				return d
			}
		}
		return -1
	}
	q, k, v := random(hostDevice, Float64, 1, 1, time, 4*hd), random(hostDevice, Float64, 2, 1, time, 2*hd),
		random(hostDevice, Float64, 3, 1, time, 2*hd)
	docs := FromSlice(ramp[int32](time, doc), 1, time)
	o := ops.AttentionOptions{Causal: true, QueryDocs: docs, KeyDocs: docs, KeyLengths: FromSlice([]int64{int64(ends[len(ends)-1])}, 1)}
	out, grads := crossRun([3]Tensor{q, k, v}, hd, o)
	part := func(x []float64, width, lo, hi int) []float64 { return x[lo*width : hi*width] }
	for d := 1; d < len(ends); d++ {
		lo, hi := ends[d-1], ends[d]
		var alone [3]Tensor
		for i, x := range []Tensor{q, k, v} {
			alone[i] = FromSlice(part(Floats(x), x.Dim(2), lo, hi), 1, hi-lo, x.Dim(2))
		}
		wantOut, want := crossRun(alone, hd, ops.AttentionOptions{Causal: true})
		assert.InDeltaSlice(t, wantOut, part(out, 4*hd, lo, hi), 1e-13)
		for i, width := range []int{4 * hd, 2 * hd, 2 * hd} {
			assert.InDeltaSlice(t, want[i], part(grads[i], width, lo, hi), 1e-13)
		}
	}
	assert.Equal(t, make([]float64, 10*4*hd), part(out, 4*hd, 290, time), "queries of the padding")
	for i, width := range []int{4 * hd, 2 * hd, 2 * hd} {
		assert.Equal(t, make([]float64, 10*width), part(grads[i], width, 290, time))
	}
}

// What comes after a sequence's length is never read: NaN there changes nothing. A sequence of length 0 is all padding.
func TestKeyLengthsHideNaN(t *testing.T) {
	for _, d := range floatTypes {
		q, k, v := random(hostDevice, d, 1, 3, 70, 8), random(hostDevice, d, 2, 3, 300, 4), random(hostDevice, d, 3, 3, 300, 4)
		lengths := []int64{257, 0, 300}
		for _, o := range []ops.AttentionOptions{{}, {Causal: true, Offset: 200}} {
			o.KeyLengths = FromSlice(lengths, 3)
			want, wantGrads := crossRun([3]Tensor{q, k, v}, 4, o)
			bad := func(x Tensor) Tensor {
				y := New(hostDevice, d, 3, 300, 4)
				copy(y.Bytes(), x.Bytes())
				for b, n := range lengths {
					for at := (b*300 + int(n)) * 4; at < (b+1)*300*4; at++ {
						StoreFloat(y.Ptr(), d, at, math.NaN())
					}
				}
				return y
			}
			out, grads := crossRun([3]Tensor{q, bad(k), bad(v)}, 4, o)
			require.Equal(t, want, out)
			require.Equal(t, wantGrads, grads)
			for i := 1; i < 3; i++ {
				require.Equal(t, make([]float64, 43*4), grads[i][257*4:300*4])
				require.Equal(t, make([]float64, 300*4), grads[i][300*4:600*4])
			}
		}
	}
}

// Masks may have either type, and may be views with gaps.
func TestMasksMayBeViewsOfEitherType(t *testing.T) {
	q, k, v := random(hostDevice, Float64, 1, 2, 5, 4), random(hostDevice, Float64, 2, 2, 6, 4), random(hostDevice, Float64, 3, 2, 6, 4)
	doc := func(i int) int { return i % 7 / 3 }
	tape := NewTape(hostDevice, NoGrad())
	whole32, whole64 := tape.Input(FromSlice(ramp[int32](14, doc), 2, 7)), tape.Input(FromSlice(ramp[int64](14, doc), 2, 7))
	want := Floats(ops.CrossAttention(tape.Input(q), k, v, 2, ops.AttentionOptions{
		QueryDocs: FromSlice([]int64{0, 0, 0, 1, 1, 0, 0, 0, 1, 1}, 2, 5),
		KeyDocs:   FromSlice([]int64{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}, 2, 6)}))
	for _, x := range []Tensor{whole32, whole64} {
		o := ops.AttentionOptions{QueryDocs: x.Slice(1, 0, 5), KeyDocs: x.Slice(1, 0, 6)}
		assert.Equal(t, want, Floats(ops.CrossAttention(tape.Input(q), k, v, 2, o)))
	}
}

func TestAttentionMasksMisuse(t *testing.T) {
	x := func(d DType, dims ...int) Tensor { return New(hostDevice, d, dims...) }
	tape := NewTape(hostDevice)
	q, k := tape.Input(x(Float32, 2, 3, 8)), x(Float32, 2, 5, 4)
	for _, c := range []struct {
		o    ops.AttentionOptions
		want string
	}{
		{ops.AttentionOptions{KeyLengths: x(Int64, 3)}, "cross_attention int64[3]: KeyLengths has to be int64[2], or int32 of this shape"},
		{ops.AttentionOptions{KeyLengths: x(Int64, 2, 1)}, "KeyLengths has to be int64[2]"},
		{ops.AttentionOptions{KeyLengths: x(Float32, 2)}, "cross_attention float32[2]: KeyLengths has to be int64[2]"},
		{ops.AttentionOptions{KeyLengths: FromSlice([]int32{5, 6}, 2)},
			"cross_attention float32[2,3,8], float32[2,5,4]: KeyLengths of sequence 1 is 6, not in [0,5]"},
		{ops.AttentionOptions{KeyLengths: FromSlice([]int64{-1, 5}, 2)}, "KeyLengths of sequence 0 is -1, not in [0,5]"},
		{ops.AttentionOptions{QueryDocs: x(Int64, 2, 3)}, "QueryDocs and KeyDocs belong together, but only one is given"},
		{ops.AttentionOptions{KeyDocs: x(Int64, 2, 5)}, "QueryDocs and KeyDocs belong together, but only one is given"},
		{ops.AttentionOptions{QueryDocs: x(Int64, 2, 5), KeyDocs: x(Int64, 2, 5)}, "cross_attention int64[2,5]: QueryDocs has to be int64[2,3]"},
		{ops.AttentionOptions{QueryDocs: x(Int32, 2, 3), KeyDocs: x(Int32, 2, 3)}, "cross_attention int32[2,3]: KeyDocs has to be int64[2,5]"},
		{ops.AttentionOptions{QueryDocs: x(Int32, 2, 3), KeyDocs: x(Bool, 2, 5)}, "cross_attention bool[2,5]: KeyDocs has to be int64[2,5]"},
	} {
		assert.ErrorContains(t, Try(func() { ops.CrossAttention(q, k, k, 4, c.o) }), c.want)
	}
	err := Try(func() {
		ops.Attention(tape.Input(x(Float32, 2, 3, 12)), 4, ops.AttentionOptions{KeyLengths: x(Int64, 2)})
	})
	assert.ErrorContains(t, err, "masks are CrossAttention's, to which queries, keys and values are given apart")
}

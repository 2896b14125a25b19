package tensor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// zigzag returns run rank and run 2·ranks-1-rank of as many runs of a sequence, and their positions.
func zigzag(total, rank, ranks int) (s Spans, at []int) {
	for _, k := range [2]int{rank, 2*ranks - 1 - rank} {
		lo, hi := layout.Share(total, k, 2*ranks)
		for p := lo; p < hi; p++ {
			at = append(at, p)
		}
		if k == rank {
			s = Spans{First: lo, Total: total, Break: hi - lo}
		} else {
			s.Skip = lo - s.First - s.Break
		}
	}
	return s.Slice(0, len(at)), at
}

// ofPositions are operations on x [rows, positions, width] that depend on the place in the sequence.
var ofPositions = map[string]func(x Tensor) Tensor{
	"dropout": func(x Tensor) Tensor { return ops.Dropout(x, 0.5, 7) },
	"columns": func(x Tensor) Tensor {
		return ops.DropoutAt(x.Slice(2, 1, 4), 0.5, 7, Region{Cols: Span{First: 1, Total: x.Dim(2)}})
	},
	"flat": func(x Tensor) Tensor {
		return ops.Dropout(x.Reshape(-1, x.Dim(2)), 0.5, 7).Reshape(x.Dim(0), x.Dim(1), x.Dim(2))
	},
	"tokens": func(x Tensor) Tensor { // in two shares, as under sequence parallelism
		n := x.Dim(0) * x.Dim(1)
		drop := func(lo, hi int) Tensor {
			ones := x.Tape().Input(New(hostDevice, Float64, hi-lo, x.Dim(2))).Affine(1, 1)
			return ops.DropoutAt(ones, 0.5, 7, Region{Rows: Span{First: lo, Total: n}})
		}
		mask := Concat(0, drop(0, n/3), drop(n/3, n)).Detach().Reshape(x.Dim(0), x.Dim(1), x.Dim(2))
		return x.Mul(RowsLike(mask, x))
	},
	"a number for each position": func(x Tensor) Tensor {
		return x.Mul(ops.Dropout(x.Sum(2), 0.5, 7).Reshape(x.Dim(0), x.Dim(1), 1))
	},
	"again": func(x Tensor) Tensor {
		return x.Tape().Checkpoint(func(in ...Tensor) Tensor { return ops.Dropout(in[0].Exp(), 0.5, 7) }, x)
	},
}

// What depends on the place in the sequence is, on ranks with two runs of it, what it is in the whole: masks, also those of gradients and
// of what a Checkpoint computes again, and what losses divide by.
func TestTwoRunsOfSequences(t *testing.T) {
	const total, width = 6, 5
	for name, f := range ofPositions {
		for _, time := range []int{5, 8, 11} {
			run := func(lo, n int, seq Spans, at []int) (y, grad []float64) {
				all := Floats(random(hostDevice, Float64, 1, total, time, width))
				var mine []float64
				for r := range n {
					for _, p := range at {
						k := ((lo+r)*time + p) * width
						mine = append(mine, all[k:k+width]...)
					}
				}
				r := Rows{First: lo, Stride: 1, Total: total, Seq: seq, Over: 3}
				if seq != (Spans{}) {
					r.SeqOver = 2
				}
				w := ones(width)
				w.SumOver(3)
				tape := NewTape(hostDevice, Seed(4))
				defer tape.Close()
				out := tape.Keep(f(tape.Input(FromSlice(mine, n, len(at), width).WithRows(r)).Mul(tape.Use(w))))
				tape.Backward(GlobalMean(out.Square()))
				return Floats(out), Floats(w.Grad)
			}
			_, whole := zigzag(time, 0, 1)
			y, want := run(0, total, Spans{}, whole)
			cols := len(y) / total / time
			for _, ranks := range []int{2, 3, 4} {
				sum := make([]float64, width)
				for rank := range 2 * ranks { // two have other rows of the same positions
					lo, hi := layout.Share(total, rank%2, 2)
					seq, at := zigzag(time, rank/2, ranks)
					got, grad := run(lo, hi-lo, seq, at)
					for i, v := range got {
						r, p := lo+i/cols/len(at), at[i/cols%len(at)]
						require.InDelta(t, y[(r*time+p)*cols+i%cols], v, 1e-15, "%s, %d positions, rank %d of %d", name, time, rank, ranks)
					}
					for i, g := range grad {
						sum[i] += g
					}
				}
				require.InDeltaSlice(t, want, sum, 1e-13, fmt.Sprint(name, time, ranks))
			}
		}
	}
}

// Parts that cannot be are refused, and so is what joins in the order of ranks what these do not have in it.
func TestTwoRunsRefused(t *testing.T) {
	x := New(hostDevice, Float32, 2, 3, 4)
	for _, s := range []Spans{{Total: 5, Break: 1, Skip: 3}, {Total: 9, Break: 3, Skip: 1}, {Total: 9, Break: 1}, {Total: 9, Skip: 1}} {
		assert.ErrorContains(t, Try(func() { x.WithRows(Rows{Stride: 1, Total: 2, Seq: s}) }), fmt.Sprintf("dimension 1 is not %+v", s))
	}
	tape := NewTape(hostDevice)
	in := tape.Input(x.WithRows(Rows{Stride: 1, Total: 2, Seq: Spans{Total: 9, Break: 1, Skip: 3}, Over: 1, SeqOver: 1}))
	assert.ErrorContains(t, Try(func() { tape.Apply(&joining{}, in) }),
		"ranks have two runs of each sequence ({First:0 Total:9 Break:1 Skip:3}): joined, these are not in the order of positions")
	in = tape.Input(x.WithRows(Rows{Stride: 1, Total: 2, Seq: Spans{First: 6, Total: 9}, Over: 1, SeqOver: 1, Head: 1}))
	assert.ErrorContains(t, Try(func() { tape.Apply(&joining{}, in) }),
		"the first rank has the last positions ({First:6 Total:9 Break:0 Skip:0}): joined, these are not in the order of positions")
	in = tape.Input(x.WithRows(Rows{Stride: 1, Total: 2, Seq: Spans{First: 3, Total: 9}, Over: 5, SeqOver: 5}))
	assert.ErrorContains(t, Try(func() { tape.Apply(&joining{}, in) }), "other ranks than those of its group have parts of the sequence too")
}

// joining says that it gathers positions.
type joining struct{}

func (*joining) Name() string                              { return "joining" }
func (*joining) Moves() (joins, divides int)               { return 1, NoDim }
func (*joining) Forward(_ *Ctx, in []Tensor) Tensor        { return in[0] }
func (*joining) Backward(_ *Ctx, g Tensor, grads []Tensor) { grads[0] = g }
func (*joining) Types(in []Types, _ Axes) (_ []Types, err error) {
	in[0], err = in[0].Convert(1, Varying, Replicated)
	return in[:1], err
}

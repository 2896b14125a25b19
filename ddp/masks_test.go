package ddp_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// own returns n elements that are 0 and 1 by turns, from v on.
func own[T uint8 | int64](n, v int) tensor.Tensor {
	x := make([]T, n)
	for i := range x {
		x[i] = T((v + i) % 2)
	}
	return tensor.FromSlice(x, n)
}

// masked trains with a mask for each row, or for all of them.
func masked(mask func(r *rows, features int) tensor.Tensor) step {
	return func(r *rows) {
		h := r.hidden()
		m := r.tape.Input(mask(r, h.Dim(1))).Cast(tensor.Float64)
		r.backward(nn.GlobalMean(r.B.Forward(h.Mul(m)).Square()))
	}
}

// A mask of integers or of bools that a rank has for all of its rows, and the other ranks have not, is a warning: a rank may have rows of
// its own task. It is none where the mask may belong to rows, or to what a rank chose.
func TestMasksOfAllRows(t *testing.T) {
	const warning = "combines each row of rank 0 with a mask, or another constant without Rows, and those of rank 1 with another one"
	for name, do := range map[string]step{
		"uint8": masked(func(r *rows, n int) tensor.Tensor { return own[uint8](n, r.group.Rank()) }),
		"int64": masked(func(r *rows, n int) tensor.Tensor { return own[int64](n, r.group.Rank()+r.step) }),
		"bool": func(r *rows) {
			h := r.hidden()
			m := r.tape.Input(own[uint8](h.Dim(1), r.group.Rank()))
			r.backward(nn.GlobalMean(ops.Where(m.Eq(r.tape.Input(own[uint8](h.Dim(1), 0))), h, h.Tanh()).Square()))
		},
	} {
		log := warned(t, 2, do)
		assert.Contains(t, log, warning, name)
		assert.Regexp(t, `; it is in \S*masks_test\.go:\d`, log, name)
	}
	one := func(r *rows, n int) tensor.Tensor { return own[uint8](n, r.group.Rank()) }
	assert.Empty(t, warned(t, 8, masked(one)), "one row on each rank")
	for name, do := range map[string]step{
		"the same on all": masked(func(r *rows, n int) tensor.Tensor { return own[uint8](n, r.step) }),
		"in one step":     masked(func(r *rows, n int) tensor.Tensor { return own[uint8](n, r.group.Rank()*r.step) }),
		"of each row":     masked(func(r *rows, _ int) tensor.Tensor { return own[uint8](r.n, 0).Reshape(-1, 1).WithRows(r.x.Rows()) }),
		"of a rank's rows": masked(func(r *rows, n int) tensor.Tensor {
			return own[uint8](r.n*n, r.lo).Reshape(r.n, n).WithRows(r.x.Rows())
		}),
		"of its own width": func(r *rows) {
			n := 2 + r.group.Rank()
			r.backward(nn.GlobalMean(r.hidden().Slice(1, 0, n).Mul(r.tape.Input(own[uint8](n, n)).Cast(tensor.Float64)).Sum(1).Square()))
		},
	} {
		assert.Empty(t, warned(t, 2, do), name)
	}
}

// A mask of floats that is as long as a rank's own sequences is refused, because another one of that kind may be an error: the text says
// what is accepted.
func TestMaskAsLongAsOwnSequences(t *testing.T) {
	long := func(mask func(n int) tensor.Tensor) step {
		return func(r *rows) {
			n := 2 + r.group.Rank()
			r.backward(nn.GlobalMean(r.hidden().Slice(1, 0, n).Mul(r.tape.Input(mask(n)).Cast(tensor.Float64)).Sum(1).Square()))
		}
	}
	require.NoError(t, tryFactors(false, 2, long(func(n int) tensor.Tensor { return own[uint8](n, 0) })))
	err := tryFactors(false, 2, long(func(n int) tensor.Tensor { return tensor.FromSlice(make([]float64, n), n) }))
	require.NoError(t, err, "zeros say nothing")
	err = tryFactors(false, 2, long(func(n int) tensor.Tensor { return tensor.FromSlice([]float64{1, 2, 3}[:n], n) }))
	require.ErrorContains(t, err, "a mask as long as a rank's own sequences is of integers or bools")
}

// The gradient of samples that all ranks have is that of one rank while parameters are frozen; otherwise the error says so.
func TestGradientOfWhatAllRanksHave(t *testing.T) {
	var want []float64
	for _, ranks := range []int{1, 2} {
		cfg := dist.Config{Ranks: ranks, Threads: 1, Log: io.Discard}
		require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
			model := nn.NewLinear(3, 1)
			params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1}))
			tape := tensor.NewTape(r.Device)
			defer tape.Close()
			gradient := func() []float64 {
				x := tape.Leaf(tensor.FromSlice([]float64{1, 2, 3, 4, 5, 6}, 2, 3))
				tape.Backward(model.Forward(x).Square().Sum())
				return tensor.Floats(tape.GradOf(x))
			}
			err := tensor.Try(func() { gradient() })
			if ranks > 1 {
				assert.ErrorContains(t, err, "needs frozen parameters (Param.Freeze)")
			}
			tape.Reset()
			for _, p := range params {
				p.Freeze()
			}
			if got := gradient(); ranks == 1 {
				want = got
			} else {
				assert.Equal(t, want, got)
			}
			return nil
		}))
	}
}

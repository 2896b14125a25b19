package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

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

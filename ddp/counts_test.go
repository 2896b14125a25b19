package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// counting is a Function that counts the elements of all rows, by what it has computed itself.
type counting struct{ forward, backward int }

func (*counting) Name() string { return "counting" }

func (f *counting) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	y := in[0].Square()
	f.forward = tensor.GlobalCount(y)
	return y
}

func (f *counting) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	f.backward = tensor.GlobalCount(g.Square())
	grads[0] = g
}

// Inside a Function nothing says where rows are, and counts go by their number, in training and in an evaluation.
func TestCountsInsideFunctions(t *testing.T) {
	assert.NoError(t, tryFactors(false, 2, func(r *rows) {
		f := &counting{}
		r.backward(nn.GlobalMean(r.tape.Apply(f, r.hidden())))
		assert.Equal(t, counting{8 * r.total, 8 * r.total}, *f)
		tape := tensor.NewTape(r.tape.Device(), tensor.NoGrad())
		defer tape.Close()
		tape.Apply(f, tape.Input(r.x))
		assert.Equal(t, 12*r.total, f.forward)
	}))
}

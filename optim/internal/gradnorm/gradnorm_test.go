package gradnorm

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// params have gradients of several blocks, or none if a value is NaN.
func params(dev tensor.Device, grads ...float64) (ps []*tensor.Param) {
	for i, g := range grads {
		p := tensor.NewParam(tensor.Constant(0), 40000*i+1)
		p.SetName(fmt.Sprintf("p%d", i))
		p.Make(dev, tensor.Float32, 1)
		if ps = append(ps, p); !math.IsNaN(g) {
			p.Grad = tensor.New(dev, tensor.Float32, p.Len())
			p.FillGrad()
			for k := range tensor.Data[float32](p.Grad) {
				tensor.Data[float32](p.Grad)[k] = float32(g)
			}
		}
	}
	return ps
}

type twice struct{ err error }

func (t twice) SumFloats(x []float64) error { x[0] *= 2; return t.err }

func TestNorm(t *testing.T) {
	dev := cpu.New(1)
	n := New(tensor.NewExec(dev), params(dev, 3, 2, math.NaN(), 1))
	assert.Equal(t, []float64{9. / 4, 40001, 0, 120001. / 4}, n.Each(0.5))
	for _, c := range []struct {
		counted []bool
		ranks   Summer
		square  float64
	}{
		{nil, nil, 9 + 4*40001 + 120001},
		{[]bool{true, false, true, true}, nil, 9 + 120001},
		{nil, twice{}, 2 * (9 + 4*40001 + 120001)},
	} {
		n.Counted = c.counted
		require.NoError(t, n.Sum(c.ranks))
		n.Clip(0.5, 1, nil)
		norm, step, bad := n.Found()
		assert.InEpsilon(t, math.Sqrt(c.square)/2, norm, 1e-12)
		assert.Zero(t, step)
		assert.Empty(t, bad)
		assert.InEpsilon(t, 0.5/norm, tensor.Floats(n.Factor)[0], 1e-5)
	}
	assert.ErrorIs(t, n.Sum(twice{assert.AnError}), assert.AnError)
}

// The first step that is not finite is kept until it is forgotten.
func TestNotFinite(t *testing.T) {
	dev := cpu.New(1)
	ps := params(dev, 1, math.Inf(1), 2, math.Inf(1))
	n, steps := New(tensor.NewExec(dev), ps), 6
	find := func(steps *int) (norm float64, step int, bad string) {
		require.NoError(t, n.Sum(nil))
		n.Clip(1, 0, steps)
		return n.Found()
	}
	norm, step, bad := find(nil)
	assert.Equal(t, []any{math.Inf(1), 0, "p1"}, []any{norm, step, bad})
	norm, step, bad = find(&steps)
	assert.Equal(t, []any{math.Inf(1), 7, "p1"}, []any{norm, step, bad})
	ps[1].Consume()
	ps[3].Consume()
	steps++
	_, step, _ = find(&steps)
	assert.Equal(t, 7, step)
	n.Forget()
	norm, step, bad = find(&steps)
	assert.Equal(t, []any{math.Sqrt(1 + 4*80001), 0, ""}, []any{norm, step, bad})
}

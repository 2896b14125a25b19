package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// linearNet is two layers on x and a residual. The input of the second layer needs a gradient.
type linearNet struct {
	ps            *params
	x, w1, b1, w2 *Param
	fused         bool
	act           Activation
}

func newLinearNet(dev Device, d DType, act Activation) *linearNet {
	ps := &params{dev: dev, dtype: d}
	u := UniformInit(-1, 1)
	return &linearNet{ps: ps, act: act,
		x: ps.add("x", u, 2, 67, 19), w1: ps.add("w1", u, 45, 19), b1: ps.add("b1", u, 45), w2: ps.add("w2", u, 33, 45)}
}

func (l *linearNet) layer(x, w, b Tensor) Tensor {
	if l.fused {
		return LinearAct(x, w, b, l.act)
	}
	y := Linear(x, w, b)
	switch l.act {
	case ActReLU:
		return y.ReLU()
	case ActGELU:
		return y.GELU()
	case ActGELUTanh:
		return y.GELUTanh()
	case ActSiLU:
		return y.SiLU()
	}
	return y
}

// run returns the output, and the gradients of two microbatches in training.
func (l *linearNet) run(eval bool) (y []float64, grads [][]float64) {
	var opts []TapeOption
	if eval {
		opts = append(opts, NoGrad())
	}
	t := NewTape(l.ps.dev, opts...)
	defer t.Close()
	for i := range 2 {
		h := l.layer(t.Use(l.x), t.Use(l.w1), t.Use(l.b1))
		out := l.layer(h, t.Use(l.w2), Tensor{})
		y = Floats(out)
		if eval {
			return y, nil
		}
		loss := out.Mul(out).Sum().Add(h.Sum())
		if i == 0 {
			t.Backward(loss, More())
		} else {
			t.Backward(loss)
		}
	}
	grads = l.ps.grads()
	l.ps.consume()
	return y, grads
}

// The fused layer has the bits of the separate operations, forward and backward, in training and without gradients.
func TestLinearActEqualsLinearThenActivation(t *testing.T) {
	for _, d := range []DType{Float32, Float64, BFloat16, Float16} {
		for act := range Activation(NumActivations) {
			for _, threads := range []int{1, 3} {
				dev := cpu.New(threads)
				cutAll(dev)
				net := newLinearNet(dev, d, act)
				wantY, wantGrads := net.run(false)
				net.fused = true
				y, grads := net.run(false)
				require.Equal(t, wantY, y, "%v %v", d, act)
				require.Equal(t, wantGrads, grads, "%v %v", d, act)
				y, _ = net.run(true)
				assert.Equal(t, wantY, y, "%v %v without gradients", d, act)
				dev.Close()
			}
		}
	}
}

// Frozen parameters, and inputs without a gradient, do not change other gradients.
func TestLinearActWithoutSomeGradients(t *testing.T) {
	for frozen := range 4 {
		var grads [2][][]float64
		for i, fused := range []bool{false, true} {
			net := newLinearNet(hostDevice, Float64, ActGELU)
			net.fused = fused
			net.ps.list[frozen].Freeze()
			_, grads[i] = net.run(false)
		}
		assert.Equal(t, grads[0], grads[1], "frozen %d", frozen)
		assert.Nil(t, grads[1][frozen])
	}
}

func TestLinearActInCheckpointAndScope(t *testing.T) {
	net := newLinearNet(hostDevice, Float32, ActSiLU)
	net.fused = true
	_, want := net.run(false)
	for _, wrap := range []func(*Tape, func(...Tensor) Tensor, ...Tensor) Tensor{(*Tape).Checkpoint, (*Tape).Scope} {
		tape := NewTape(hostDevice)
		for i := range 2 {
			h := wrap(tape, func(x ...Tensor) Tensor { return net.layer(x[0], tape.Use(net.w1), tape.Use(net.b1)) }, tape.Use(net.x))
			out := wrap(tape, func(x ...Tensor) Tensor { return net.layer(x[0], tape.Use(net.w2), Tensor{}) }, h)
			loss := out.Mul(out).Sum().Add(h.Sum())
			if i == 0 {
				tape.Backward(loss, More())
			} else {
				tape.Backward(loss)
			}
		}
		assert.Equal(t, want, net.ps.grads())
		net.ps.consume()
		tape.Close()
	}
}

package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// SwiGLU by its formula, with its gradients.
func TestGatedMLP(t *testing.T) {
	dev := cpu.New(1)
	m := nn.NewGatedMLP(3, 5)
	params := nn.Init(m, dev, tensor.Float64, 1)
	require.Equal(t, []string{"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
		[]string{params[0].Name(), params[1].Name(), params[2].Name()})
	x := tensor.New(dev, tensor.Float64, 2, 4, 3)
	tensor.UniformInit(-1, 1).Fill(x, 7, 0)
	run := func(forward func(t *tensor.Tape, x nn.T) nn.T) (y []float64, grads [][]float64) {
		tape := tensor.NewTape(dev)
		out := forward(tape, tape.Input(x))
		y = tensor.Floats(out)
		tape.Backward(out.Square().Sum())
		for _, p := range params {
			grads = append(grads, tensor.Floats(p.Grad))
			p.Consume()
		}
		return y, grads
	}
	wantY, wantGrads := run(func(t *tensor.Tape, x nn.T) nn.T {
		of := func(x nn.T, i int) nn.T { return tensor.MatMul(x, t.Use(params[i]), false, true) }
		gate := of(x, 0)
		return of(gate.Mul(gate.Sigmoid()).Mul(of(x, 1)), 2)
	})
	for _, forward := range []func(t *tensor.Tape, x nn.T) nn.T{
		func(_ *tensor.Tape, x nn.T) nn.T { return m.Forward(x) },
		func(_ *tensor.Tape, x nn.T) nn.T { return m.ForwardAdd(x, x).Sub(x) },
	} {
		y, grads := run(forward)
		assert.InDeltaSlice(t, wantY, y, 1e-14)
		for i := range grads {
			assert.InDeltaSlice(t, wantGrads[i], grads[i], 1e-13)
		}
	}
}

// Learned positions begin where the cache ends, and where this rank's part of each sequence does.
func TestPositions(t *testing.T) {
	dev := cpu.New(1)
	p := nn.NewPositions(6, 2)
	nn.Init(p, dev, tensor.Float64, 1)
	at := func(lo, hi int) (list []int) {
		for i := lo; i < hi; i++ {
			list = append(list, i)
		}
		return list
	}
	vectors := tensor.Floats(p.W.Value)
	for _, c := range []struct {
		rows        tensor.Rows
		time, first int
		want        []int // positions; nil: refused
	}{
		{tensor.Rows{}, 6, 0, at(0, 6)},
		{tensor.Rows{}, 2, 3, at(3, 5)},
		{tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{First: 2, Total: 6}}, 3, 0, at(2, 5)},
		{tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{First: 2, Total: 5}}, 3, 1, at(3, 6)},
		{tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{Total: 6, Break: 1, Skip: 3}}, 3, 0, []int{0, 4, 5}},
		{tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{Total: 5, Break: 2, Skip: 1}}, 3, 1, []int{1, 2, 4}},
		{tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{Total: 5, Break: 2, Skip: 2}}, 3, 2, nil},
		{tensor.Rows{}, 6, 1, nil},
		{tensor.Rows{}, 2, -1, nil},
	} {
		tape := tensor.NewTape(dev)
		in := tensor.New(dev, tensor.Float64, 2, c.time, 2)
		if c.rows.Total > 0 {
			in = in.WithRows(c.rows)
		}
		x := tape.Input(in)
		if c.want == nil {
			assert.ErrorContains(t, tensor.Try(func() { p.Forward(x, c.first) }), "of 6")
			continue
		}
		y := p.Forward(x, c.first)
		var want []float64
		grad := make([]float64, 12)
		for range 2 {
			for _, k := range c.want {
				want = append(want, vectors[2*k:2*k+2]...)
				grad[2*k], grad[2*k+1] = 2, 2
			}
		}
		assert.Equal(t, want, tensor.Floats(y))
		tape.Backward(y.Sum())
		assert.Equal(t, grad, tensor.Floats(p.W.Grad))
		p.W.Consume()
	}
	x := tensor.NewTape(dev).Input(tensor.New(dev, tensor.Float64, 2, 3, 4))
	assert.ErrorContains(t, tensor.Try(func() { p.Forward(x, 0) }), "is not [batch, time, 2]")
	tape := tensor.NewTape(dev)
	tape.Input(tensor.New(dev, tensor.Float64, 2, 2, 2).WithRows(tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{First: 2, Total: 6}}))
	assert.ErrorContains(t, tensor.Try(func() { p.Forward(tape.New(tensor.Float64, 2, 3, 2), 0) }), "so the positions are not known")
}

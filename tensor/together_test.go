package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// together are three matrices in one memory.
func together(rows, cols int) []*tensor.Param {
	var ps []*tensor.Param
	for range 3 {
		ps = append(ps, tensor.NewParam(tensor.UniformInit(-1, 1), rows, cols))
	}
	ps[0].Together(ps[1:]...)
	return ps
}

// A collective that still uses one of three weights, or gradients, is found whichever it is.
func TestTogetherAndCollectives(t *testing.T) {
	for i := range 3 {
		for _, gradient := range []bool{false, true} {
			dev := tensortest.NewRemote(t, 1)
			ps := together(8, 8)
			var ls []*nn.Linear
			for _, p := range ps {
				p.Make(dev, tensor.Float32, 1)
				ls = append(ls, &nn.Linear{W: p})
			}
			step := func() {
				for _, p := range ps {
					p.Consume()
				}
				tape := tensor.NewTape(dev)
				defer tape.Close()
				x := tape.Input(tensor.FromSlice(make([]float32, 80), 10, 8))
				q, k, v := nn.QKV(x, ls[0], ls[1], ls[2])
				y := ops.CrossAttention(q.Reshape(2, 5, 8), k.Reshape(2, 5, 8), v.Reshape(2, 5, 8), 8, ops.AttentionOptions{})
				tape.Backward(y.Sum())
			}
			step()
			require.Equal(t, 1, dev.Counts().Linears)
			of := ps[i].Value
			if gradient {
				of = ps[i].Grad
			}
			at := uintptr(of.Ptr())
			use := &writer{lo: at, hi: at + 4*64}
			tensor.Raw(of).Borrow(use, 1)
			require.ErrorContains(t, tensor.Try(step), "allreduce seq 1 still uses this memory", "%d, gradient %v", i, gradient)
			use.open = true
			step()
		}
	}
}

// Values and gradients are on the device of each, and memory is counted when a parameter has it.
func TestTogetherOnDevices(t *testing.T) {
	a, b := tensortest.NewRemote(t, 1), tensortest.NewRemote(t, 2)
	ps := together(100, 100)
	ps[0].Make(a, tensor.Float32, 1)
	require.Equal(t, 40000, a.Memory().Of(memory.Parameters).Live)
	for _, p := range ps[1:] {
		p.Make(b, tensor.Float32, 1)
	}
	require.Equal(t, 40000, a.Memory().Of(memory.Parameters).Live)
	require.Equal(t, 80000, b.Memory().Of(memory.Parameters).Live)
	tape := tensor.NewTape(a)
	tape.Backward(tape.Use(ps[0]).Sum())
	tape.Close()
	require.True(t, ps[1].Grad.IsZero())

	c := *ps[1] // a copy has memory of its own
	c.Make(a, tensor.Float32, 1)
	for _, p := range ps { // all go to one device, into one memory
		p.To(a)
	}
}

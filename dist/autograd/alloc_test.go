package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// Steps through all Functions allocate nothing: along the first and another dimension, even and uneven.
func TestStepAllocatesNothing(t *testing.T) {
	disttest.SteadySteps(t, dist.Run, 12, 6, func(r *dist.Rank) (func() error, error) {
		g := r.World
		tape := tensor.NewTape(r.Device)
		x := tensor.NewParam(tensor.UniformInit(-1, 1), 6, 4)
		x.Make(r.Device, tensor.Float32, 1)
		var chain []tensor.Function
		for dim := range 2 {
			chain = append(chain, &autograd.Copy{Group: g}, &autograd.Sum{Group: g},
				&autograd.ReduceScatter{Group: g, Dim: dim}, &autograd.AllGather{Group: g, Dim: dim},
				&autograd.ReduceScatter{Group: g, Dim: dim, Counts: []int{1, 5 - 2*dim}},
				&autograd.AllGather{Group: g, Dim: dim, Counts: []int{1, 5 - 2*dim}}, &autograd.AllToAll{Group: g, Split: dim, Concat: 1 - dim},
				&autograd.AllToAll{Group: g, Split: 1 - dim, Concat: dim})
		}
		for i := range chain {
			chain[i] = &untyped{chain[i]}
		}
		return func() error {
			y := tape.Use(x)
			for _, f := range chain {
				y = tape.Apply(f, y)
			}
			tape.Backward(y.Square().Sum())
			x.Consume()
			tape.Reset()
			return nil
		}, nil
	})
}

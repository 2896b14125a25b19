package fsdp_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A training loop is that of one rank, but for the division into units and the norm that clipping needs.
func Example() {
	train := func(_ context.Context, r *dist.Rank) error {
		up, down := nn.NewLinear(3, 100), nn.NewLinear(100, 1)
		model := nn.Sequential{up, nn.Tanh, down}
		s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float64})
		s.Unit(up)
		s.Unit(down)
		params, err := s.Attach(model)
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Clip: 1, Norm: s})
		tape := tensor.NewTape(r.Device)
		for range 50 {
			n := 12 / r.World.Size() // this rank's part of a global batch of 12 rows
			x := tensor.New(r.Device, tensor.Float64, n, 3)
			tensor.UniformInit(-1, 1).Fill(x, 1, uint64(n*3*r.World.Rank()))
			x = x.WithRows(r.World.Rows(n*r.World.Rank(), 12))
			in := tape.Input(x)
			l := nn.MSE(model.Forward(in), in.Sin().Slice(1, 0, 1))
			tape.Backward(l)
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		weight, err := s.Full(up.W)
		if err != nil {
			return err
		}
		r.Logf("rank 0 of %d has %d of %d elements, and %.4f", r.World.Size(), up.W.Local.Len(), weight.Len(), tensor.Floats(weight)[:3])
		return nil
	}
	for _, n := range []int{1, 4} {
		if err := dist.Run(context.Background(), dist.Config{Ranks: n, Threads: 1}, train); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// rank 0 of 1 has 300 of 300 elements, and [0.0017 0.4514 0.1680]
	// rank 0 of 4 has 100 of 300 elements, and [0.0017 0.4514 0.1680]
}

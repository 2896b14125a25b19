package ddp_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A training loop is that of one rank, but for Attach and the loader's Sharder.
func Example() {
	set, err := data.Synthetic(640, 1, tensor.Float64)
	if err != nil {
		fmt.Println(err)
		return
	}
	train := func(ctx context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(784, 16), nn.Tanh, nn.NewLinear(16, 10)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64})
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-3})
		tape := tensor.NewTape(r.Device)
		batches := data.NewLoader(set, data.Config{Batch: 63, Shuffle: true, Sharder: r.World})
		loss := []float64{0}
		for epoch := range 2 {
			for _, b := range batches.Epoch(ctx, epoch) {
				l := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y) // this rank's part of the mean
				loss[0] = l.Item()
				tape.Backward(l)
				if err := opt.Step(); err != nil {
					return err
				}
				tape.Reset()
			}
		}
		if err := r.World.SumFloats(loss); err != nil {
			return err
		}
		r.Logf("ranks %d: loss %.6f", r.World.Size(), loss[0])
		return batches.Err()
	}
	for _, n := range []int{1, 3} {
		if err := dist.Run(context.Background(), dist.Config{Ranks: n, Threads: 1}, train); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// ranks 1: loss 1.288640
	// ranks 3: loss 1.288640
}

package join_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/join"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Each rank has samples of its own, and the last one has none. All of them take ten steps, as one rank with all samples would.
func Example() {
	train := func(ctx context.Context, r *dist.Rank) error {
		var mine join.Source
		if samples := []int{100, 35, 0}[r.World.Rank()]; samples > 0 {
			set, err := data.Synthetic(samples, uint64(r.World.Rank()), tensor.Float64)
			if err != nil {
				return err
			}
			mine = data.NewLoader(set, data.Config{Batch: 10, Shuffle: true})
		}
		model := nn.Sequential{nn.NewLinear(784, 16), nn.Tanh, nn.NewLinear(16, 10)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64})
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-3})
		tape := tensor.NewTape(r.Device)
		batches := join.New(r.World, mine)
		for i, b := range batches.Epoch(ctx, 0) {
			tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y))
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
			if i == 3 || i == 4 {
				r.Logf("step %d: rank 0 has %d of %d rows", i, b.Rows, b.Global)
			}
		}
		return batches.Err()
	}
	if err := dist.Run(context.Background(), dist.Config{Ranks: 3, Threads: 1}, train); err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 3: rank 0 has 10 of 15 rows
	// step 4: rank 0 has 10 of 10 rows
}

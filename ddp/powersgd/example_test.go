package powersgd_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/ddp/powersgd"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// After ten whole steps, the 784×32 matrix travels as 784+32 numbers. Errors and start vectors are not in checkpoints: a run that
// resumes does ten whole steps again.
func Example() {
	train := func(ctx context.Context, r *dist.Rank) error {
		set, err := data.Synthetic(640, 1, tensor.Float32)
		if err != nil {
			return err
		}
		model := nn.Sequential{nn.NewLinear(784, 32), nn.Tanh, nn.NewLinear(32, 10)}
		hook := powersgd.New(powersgd.Config{Rank: 1, Start: 10})
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float32, Hook: hook})
		if err != nil {
			return err
		}
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
		tape := tensor.NewTape(r.Device)
		batches := data.NewLoader(set, data.Config{Batch: 32, Shuffle: true, Sharder: r.World})
		for i, b := range batches.Epoch(ctx, 0) {
			before := r.World.Stats().Payload["allreduce"]
			tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y))
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
			if i == 9 || i == 10 {
				r.Logf("step %d: %d bytes", i, r.World.Stats().Payload["allreduce"]-before)
			}
		}
		return batches.Err()
	}
	if err := dist.Run(context.Background(), dist.Config{Ranks: 2, Threads: 1}, train); err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 9: 101800 bytes
	// step 10: 3600 bytes
}

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

// Each rank has samples of its own, and the last one has none. All of them take ten steps, as one rank with all samples would.
func ExampleJoin() {
	train := func(ctx context.Context, r *dist.Rank) error {
		var mine ddp.Source
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
		batches := ddp.Join(r.World, mine)
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

// After ten whole steps, the 784×32 matrix travels as 784+32 numbers. Errors and start vectors are not in checkpoints: a run that
// resumes does ten whole steps again.
func ExamplePowerSGD() {
	train := func(ctx context.Context, r *dist.Rank) error {
		set, err := data.Synthetic(640, 1, tensor.Float32)
		if err != nil {
			return err
		}
		model := nn.Sequential{nn.NewLinear(784, 32), nn.Tanh, nn.NewLinear(32, 10)}
		hook := ddp.PowerSGD(ddp.PowerSGDConfig{Rank: 1, Start: 10})
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

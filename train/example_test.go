package train_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// The loop is the script's own; what stands around it is the package's.
func Example() {
	o := train.Options{Threads: 1} // a program: train.Flags(flag.CommandLine), flag.Parse, and train.Exit(o.Run(...))
	err := o.Run(dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(3, 8), nn.Tanh, nn.NewLinear(8, 1)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64})
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.03})
		tape := tensor.NewTape(r.Device)
		loader := data.NewLoader(points{}, data.Config{Batch: 6, Shuffle: true, Sharder: r.World, Device: r.Device})

		loop, err := train.Start(ctx, r, &o, ckpt.State{Params: params, Optimizer: opt, Tape: tape})
		if err != nil {
			return err
		}
		for _, b := range loop.Batches(loader, 100) {
			loss := nn.MSE(model.Forward(tape.Input(b.X)), b.Y) // this rank's part of the mean
			loop.Sum("loss", loss)
			tape.Backward(loss)
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		if err := loop.Close(); err != nil {
			return err
		}
		_, losses := loop.Values("loss")
		loop.Logf("%d steps, loss %.2f → %.2f", len(losses), losses[0], losses[99])
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 100 steps, loss 6.80 → 0.02
}

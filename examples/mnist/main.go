// Command mnist trains a small network on MNIST on one rank. Only the training loop is in this file: package train has the rest, such as
// checkpoints and signals. See ../ddp-mnist for several ranks.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

func main() {
	steps := flag.Int("steps", 938, "training steps of 64 images")
	dtype := flag.String("dtype", "float32", "float32, float64, or bfloat16 (the optimizer keeps the parameters in float32 as well)")
	o := train.Flags(flag.CommandLine)
	flag.Parse()
	train.Exit(run(o, *steps, *dtype, os.Stdout))
}

// run writes text for people to w.
func run(o *train.Options, steps int, dtype string, w io.Writer) error {
	d, err := tensor.ParseDType(dtype)
	switch {
	case err != nil:
		return train.Usagef("-dtype: %v", err)
	case steps < 1:
		return train.Usagef("-steps %d: want 1 or more", steps)
	case flag.NArg() > 0:
		return train.Usagef("unexpected argument %q", flag.Arg(0))
	}
	one := dist.Config{Ranks: 1, Exact: true, Log: w}
	return o.Run(one, func(ctx context.Context, r *dist.Rank) error { return fit(ctx, r, o, steps, d) })
}

// fit trains, and measures the accuracy.
func fit(ctx context.Context, r *dist.Rank, o *train.Options, steps int, dtype tensor.DType) error {
	trainSet, testSet, err := data.MNIST("", dtype)
	if err != nil {
		return err
	}
	dev := r.Device
	model := nn.Sequential{nn.NewLinear(784, 128), nn.ReLU, nn.NewLinear(128, 10)}
	params := nn.Init(model, dev, dtype, 1)
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
	tape := tensor.NewTape(dev, tensor.Trace(r.Trace))
	batches := data.NewLoader(trainSet, data.Config{Batch: 64, Shuffle: true, Device: dev})

	loop, err := train.Start(ctx, r, o, ckpt.State{Params: params, Optimizer: opt, Tape: tape})
	if err != nil {
		return err
	}
	for step, b := range loop.Batches(batches, steps) {
		loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
		loop.Sum("loss", loss)
		if step%100 == 0 {
			loop.Logf("step %d  loss %.4f", step, loss.Item()) // reading it waits for the device, so not in every step
		}
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	if !loop.Going() {
		return loop.Close()
	}

	right, eval := 0.0, tensor.NewTape(dev, tensor.NoGrad())
	tests := data.NewLoader(testSet, data.Config{Batch: 1000, Device: dev})
	for _, b := range tests.Epoch(ctx, 0) {
		right += nn.Hits(model.Forward(eval.Input(b.X)), b.Y)
		eval.Reset()
	}
	if err := tests.Err(); err != nil {
		return err
	}
	loop.Logf("test accuracy %.2f%%", 100*right/float64(testSet.Len()))
	return loop.Close()
}

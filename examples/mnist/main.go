// Command mnist trains a small network on MNIST on one rank: the training loop and nothing else. See ../ddp-mnist for
// several ranks.
package main

import (
	"context"
	"flag"
	"log"
	"os"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mnist: ")
	steps := flag.Int("steps", 938, "training steps of 64 images")
	dtype := flag.String("dtype", "float32", "float32, float64, or bfloat16 (the optimizer keeps the parameters in float32 as well)")
	device := dist.DeviceFlag()
	flag.Parse()
	if *steps < 1 || flag.NArg() > 0 {
		log.Printf("-steps must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	d, err := tensor.ParseDType(*dtype)
	if err != nil {
		log.Printf("-dtype: %v", err)
		os.Exit(2)
	}
	one := dist.Config{Ranks: 1, Exact: true, Device: *device}
	if err := dist.Run(context.Background(), one, func(ctx context.Context, r *dist.Rank) error { return train(ctx, r, *steps, d) }); err != nil {
		log.Fatal(err)
	}
}

func train(ctx context.Context, r *dist.Rank, steps int, dtype tensor.DType) error {
	trainSet, testSet, err := data.MNIST("", dtype)
	if err != nil {
		return err
	}
	dev := r.Device
	model := nn.Sequential{nn.NewLinear(784, 128), nn.ReLU, nn.NewLinear(128, 10)}
	params := nn.Init(model, dev, dtype, 1)
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
	tape := tensor.NewTape(dev)

	batches := data.NewLoader(trainSet, data.Config{Batch: 64, Shuffle: true, Device: dev})
	for step, b := range batches.Epoch(ctx, 0) {
		loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
		if step%100 == 0 {
			r.Logf("step %d  loss %.4f", step, loss.Item()) // waits for the device: not in every step
		}
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
		if step+1 == steps {
			break
		}
	}

	right, eval := 0.0, tensor.NewTape(dev, tensor.NoGrad())
	tests := data.NewLoader(testSet, data.Config{Batch: 1000, Device: dev})
	for _, b := range tests.Epoch(ctx, 0) {
		right += nn.Hits(model.Forward(eval.Input(b.X)), b.Y)
		eval.Reset()
	}
	if err := batches.Err(); err != nil {
		return err
	}
	r.Logf("test accuracy %.2f%%", 100*right/float64(testSet.Len()))
	return tests.Err()
}

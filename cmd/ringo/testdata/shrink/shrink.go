// Package shrink is a program that trains a small network with package train on data-parallel ranks. In the first generation, ranks kill
// or stop themselves in the middle of a step: 3@5 kills the rank that began as 3 in step 5, stop3@5 stops it. Rank 0 of those that are left
// prints the weights.
//
//	shrink STEPS FAULT...
package shrink

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// Main is the program.
func Main() {
	var o train.Options
	o.Threads = 1
	train.Exit(o.Run(dist.Config{}, func(ctx context.Context, r *dist.Rank) error { return run(ctx, r, &o) }))
}

// fault kills or stops this process, if the arguments say so.
func fault(here string) {
	if slices.Contains(os.Args[2:], here) {
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	}
	if slices.Contains(os.Args[2:], "stop"+here) {
		stop()
	}
}

func run(ctx context.Context, r *dist.Rank, o *train.Options) error {
	model := nn.Sequential{nn.NewLinear(784, 4), nn.Tanh, nn.NewLinear(4, 10)}
	if os.Args[1] == "fsdp" {
		_, err := fsdp.New(fsdp.Config{Shard: r.World}).Attach(model)
		return err
	}
	steps, _ := strconv.Atoi(os.Args[1])
	params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1})
	if err != nil {
		return err
	}
	images, err := data.Synthetic(50, 1, tensor.Float64)
	if err != nil {
		return err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Clip: 1})
	tape := tensor.NewTape(r.Device)
	batches := data.NewLoader(images, data.Config{Batch: 7, Shuffle: true, Sharder: r.World})
	l, err := train.Start(ctx, r, o, ckpt.State{Params: params, Optimizer: opt, Tape: tape})
	if err != nil {
		return err
	}
	for step, b := range l.Batches(batches, steps) {
		loss := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y)
		if r.Generation() == 1 {
			fault(fmt.Sprintf("%s@%d", os.Getenv("RINGO_RANK"), step))
		}
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	if err := l.Close(); err != nil {
		return err
	}
	sum := 0.0
	for i, p := range params {
		for _, w := range tensor.Floats(p.Local) {
			sum += w * float64(i+1)
		}
	}
	r.Logf("weights %.10f", sum)
	return nil
}

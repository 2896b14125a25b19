// Command ddp-mnist trains a 784-512-512-10 network on MNIST or, with -model cnn, a convolutional network, with data parallelism. Ranks are
// goroutines of this process, or processes if it is started by "ringo run". The result does not depend on the number of ranks.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/train"
)

func main() { train.Exit(run(parse(), os.Stdout)) }

// run trains, and writes text for people, or the JSON line, to w.
func run(o options, w io.Writer) error {
	dtype, err := o.check()
	if err != nil {
		return err
	}
	trainSet, testSet, err := o.load(dtype)
	if err != nil {
		return err
	}
	return o.run(dtype, trainSet, testSet, w)
}

// run trains on images.
func (o options) run(dtype tensor.DType, trainSet, testSet *data.Images, w io.Writer) error {
	cfg := dist.Config{Ranks: o.ranks, Log: w}
	flag.Visit(func(f *flag.Flag) { cfg.Exact = cfg.Exact || f.Name == "ranks" })
	return o.Run(cfg, func(ctx context.Context, r *dist.Rank) error {
		t, err := newTrainer(ctx, o, dtype, r, trainSet, testSet)
		if err != nil {
			return err
		}
		for _, b := range t.loop.Batches(t.images, t.steps()) {
			if err := t.advance(b); err != nil {
				return err
			}
		}
		if t.loop.Going() {
			if err := t.report(); err != nil {
				return err
			}
		}
		return t.loop.Close()
	})
}

// trainer is one rank.
type trainer struct {
	o          options
	world      *dist.Group
	model      nn.Sequential
	params     nn.Params
	opt        *optim.Optimizer
	scaler     *optim.Scaler // of the loss, in float16
	tape, eval *tensor.Tape
	images     *data.Loader
	step       func(batch ...tensor.Tensor) error // for a batch's X and Y
	batch      [2]tensor.Tensor                   // X and Y of the step
	loss       tensor.Tensor                      // of the last step: this rank's part
	loop       *train.Loop
}

func newTrainer(ctx context.Context, o options, dtype tensor.DType, r *dist.Rank, trainSet, testSet *data.Images) (t *trainer, err error) {
	t = &trainer{o: o, model: newModel(o.model), world: r.World}
	t.params, err = ddp.Attach(r.World, t.model, ddp.Config{DType: dtype, Seed: o.seed, BucketBytes: int(o.bucketMB * (1 << 20))})
	if err != nil {
		return nil, err
	}
	t.images = data.NewLoader(trainSet, data.Config{Batch: o.batch, Shuffle: true, Seed: o.seed, Sharder: r.World, Device: r.Device})
	t.tape = tensor.NewTape(r.Device, tensor.Seed(o.seed), tensor.Trace(r.Trace))
	t.eval = tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Trace(r.Trace))
	t.loss, t.step = tensor.New(r.Device, lossType(dtype)), capture.New(r.Device, t.update).Run
	if dtype == tensor.Float16 { // its steps wait for the device
		t.step, t.scaler = t.update, optim.NewScaler()
	}
	var decay optim.Schedule
	if o.model == "cnn" { // smaller steps at the end help it
		decay = schedule.Cosine(0.01, t.steps())
	}
	if o.optim == "sgd" {
		t.opt = optim.NewSGD(t.params, optim.SGDConfig{LR: o.lr, Momentum: 0.9, Schedule: decay, Scaler: t.scaler})
	} else {
		t.opt = optim.NewAdamW(t.params, optim.AdamWConfig{LR: o.lr, Schedule: decay, Scaler: t.scaler})
	}
	if t.loop, err = train.Start(ctx, r, &o.Options, ckpt.State{Params: t.params, Optimizer: t.opt, Tape: t.tape}); err != nil {
		return nil, err
	}
	t.loop.Measure(r.World)
	tests := data.NewLoader(testSet, data.Config{Batch: 1000, Sharder: r.World, Device: r.Device})
	t.loop.Evaluate(accuracy, t.images.Steps(), tests, t.hits)
	return t, nil
}

// steps returns the number of steps to do.
func (t *trainer) steps() int {
	if t.o.steps > 0 {
		return t.o.steps
	}
	return t.o.epochs * t.images.Steps()
}

// advance does a step, and does not read its loss, because that would wait for the device.
func (t *trainer) advance(b data.Batch) error {
	t.batch = [2]tensor.Tensor{b.X, b.Y}
	err := t.step(t.batch[:]...)
	t.loop.Sum("loss", t.loss)
	return err
}

// update does a step with a batch's X and Y.
func (t *trainer) update(batch ...tensor.Tensor) error {
	loss := nn.CrossEntropy(t.model.Forward(t.tape.Input(batch[0])), batch[1])
	tensor.Copy(t.loss, loss)
	scale := 1.0
	if t.scaler != nil {
		scale = t.scaler.Scale
	}
	t.tape.Backward(loss, tensor.Scale(scale)) // the gradients are summed over the ranks at the same time
	err := t.opt.Step()
	t.tape.Reset()
	return err
}

// accuracy is the name of the value that is measured after each epoch.
const accuracy = "test accuracy"

// hits returns how many images of a batch of this rank the network recognizes.
func (t *trainer) hits(b data.Batch) (float64, error) {
	defer t.eval.Reset()
	return nn.Hits(t.model.Forward(t.eval.Input(b.X)), b.Y), nil
}

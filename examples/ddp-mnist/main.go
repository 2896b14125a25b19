// Command ddp-mnist trains a 784-512-512-10 network on MNIST or, with -model cnn, a convolutional network, with data parallelism. Ranks are
// goroutines of this process, or processes if it is started by "ringo run". The result does not depend on the number of ranks.
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/train"
)

type options struct {
	train.Options
	ranks, epochs, steps, batch int
	lr, bucketMB                float64
	model, optim, dtype, data   string
	seed                        uint64
}

func main() {
	var o options
	flag.StringVar(&o.model, "model", "mlp", "mlp (three linear layers) or cnn (two convolutions and two linear layers: over 99%)")
	flag.IntVar(&o.ranks, "ranks", 2, "goroutine `ranks` (under ringo run, the launcher decides)")
	flag.IntVar(&o.epochs, "epochs", 5, "passes over the training set")
	flag.IntVar(&o.steps, "steps", 0, "training steps, instead of -epochs")
	flag.IntVar(&o.batch, "batch", 128, "rows of the global batch, over all ranks")
	flag.Float64Var(&o.lr, "lr", 0, "learning rate (0: 0.1 for sgd, 1e-3 for adamw)")
	flag.StringVar(&o.optim, "optim", "sgd", "optimizer: sgd (momentum 0.9) or adamw")
	flag.StringVar(&o.dtype, "dtype", "float32",
		"float32, float64, bfloat16 or float16 (16 bits: the optimizer keeps the parameters in float32 as well)")
	flag.Uint64Var(&o.seed, "seed", 9, "seed of parameters and order")
	flag.StringVar(&o.data, "data", "", "`directory` of IDX files, or synthetic (default: MNIST)")
	flag.Float64Var(&o.bucketMB, "bucket-mb", 25, "largest gradient bucket in MiB")
	common := train.Flags(flag.CommandLine)
	flag.BoolVar(&common.Quiet, "json", false, "print the summary as one JSON line, and nothing else")
	flag.Parse()
	o.Options = *common
	train.Exit(run(o, os.Stdout))
}

// run trains, and writes text for people, or the JSON line, to w.
func run(o options, w io.Writer) error {
	dtype, err := o.check()
	if err != nil {
		return err
	}
	images, tests, err := o.load(dtype)
	if err != nil {
		return err
	}
	return o.run(dtype, images, tests, w)
}

// run trains on images.
func (o options) run(dtype tensor.DType, images, tests *data.Images, w io.Writer) error {
	cfg := dist.Config{Ranks: o.ranks, Log: w}
	flag.Visit(func(f *flag.Flag) { cfg.Exact = cfg.Exact || f.Name == "ranks" })
	return o.Run(cfg, func(ctx context.Context, r *dist.Rank) error {
		t, err := newTrainer(ctx, o, dtype, r, images, tests)
		if err != nil {
			return err
		}
		if err := t.fit(ctx); err != nil {
			return err
		}
		if t.loop.Going() {
			if err := t.report(); err != nil {
				return err
			}
		}
		return t.loop.Close()
	})
}

// check returns an error for impossible options, and sets the default learning rate.
func (o *options) check() (tensor.DType, error) {
	dtype, err := tensor.ParseDType(o.dtype)
	switch {
	case err != nil:
		return 0, train.Usagef("-dtype: %v", err)
	case !dtype.IsFloat():
		return 0, train.Usagef("-dtype %s: not a float type", o.dtype)
	case o.model != "mlp" && o.model != "cnn":
		return 0, train.Usagef("-model %s: mlp or cnn", o.model)
	case o.optim != "sgd" && o.optim != "adamw":
		return 0, train.Usagef("-optim %s: sgd or adamw", o.optim)
	case o.ranks < 1 || o.batch < 1 || o.epochs < 1 || o.steps < 0:
		return 0, train.Usagef("-ranks, -batch and -epochs must be at least 1, -steps not negative")
	case !(o.lr >= 0) || !(o.bucketMB*(1<<20) >= 1):
		return 0, train.Usagef("-lr must not be negative, -bucket-mb must be a byte at least")
	case flag.NArg() > 0:
		return 0, train.Usagef("unexpected argument %q", flag.Arg(0))
	}
	if o.lr == 0 {
		o.lr = map[string]float64{"sgd": 0.1, "adamw": 1e-3}[o.optim]
	}
	return dtype, o.Check()
}

func (o *options) load(dtype tensor.DType) (train, test *data.Images, err error) {
	if o.data != "synthetic" {
		return data.MNIST(o.data, dtype)
	}
	if train, err = data.Synthetic(10000, o.seed, dtype); err != nil {
		return nil, nil, err
	}
	test, err = data.Synthetic(2000, o.seed+1, dtype)
	return train, test, err
}

// trainer is one rank.
type trainer struct {
	o      options
	r      *dist.Rank
	stats  *dist.Group // for sums that are printed; so the world group counts only the gradients' bytes
	model  nn.Sequential
	params nn.Params
	opt    *optim.Optimizer
	scaler *optim.Scaler // of the loss, in float16
	tape   *tensor.Tape
	step   func(in ...tensor.Tensor) error // for a batch's X and Y
	batch  [2]tensor.Tensor                // X and Y of the step
	loss   tensor.Tensor                   // of the last step: this rank's part
	eval   *tensor.Tape
	images *data.Loader
	tests  *data.Loader
	loop   *train.Loop

	wall   time.Time
	time   time.Duration // of training steps
	waited time.Duration // in communication
}

func newTrainer(ctx context.Context, o options, dtype tensor.DType, r *dist.Rank, images, tests *data.Images) (*trainer, error) {
	t := &trainer{o: o, r: r, wall: time.Now(), stats: r.World.With(dist.Name("stats"))}
	var err error
	t.model = newModel(o.model)
	t.params, err = ddp.Attach(r.World, t.model, ddp.Config{DType: dtype, Seed: o.seed, BucketBytes: int(o.bucketMB * (1 << 20))})
	if err != nil {
		return nil, err
	}
	if dtype == tensor.Float16 {
		t.scaler = optim.NewScaler()
	}
	t.images = data.NewLoader(images, data.Config{Batch: o.batch, Shuffle: true, Seed: o.seed, Sharder: r.World, Device: r.Device})
	var schedule optim.Schedule
	if o.model == "cnn" { // smaller steps at the end help it
		schedule = optim.Cosine(0.01, t.steps())
	}
	if o.optim == "sgd" {
		t.opt = optim.NewSGD(t.params, optim.SGDConfig{LR: o.lr, Momentum: 0.9, Schedule: schedule, Scaler: t.scaler})
	} else {
		t.opt = optim.NewAdamW(t.params, optim.AdamWConfig{LR: o.lr, Schedule: schedule, Scaler: t.scaler})
	}
	t.tape = tensor.NewTape(r.Device, tensor.Seed(o.seed), tensor.Trace(r.Trace))
	t.loss = tensor.New(r.Device, lossType(dtype))
	t.step = t.update
	if t.scaler == nil { // then a step never waits for the device
		t.step = tensor.Capture(r.Device, t.update).Run
	}
	t.eval = tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Trace(r.Trace))
	t.tests = data.NewLoader(tests, data.Config{Batch: 1000, Sharder: r.World, Device: r.Device})
	t.loop, err = train.Start(ctx, r, &o.Options, ckpt.State{Params: t.params, Optimizer: t.opt, Tape: t.tape})
	return t, err
}

// newModel returns the network with this name. Its input has rows of 784 pixels.
func newModel(name string) nn.Sequential {
	if name == "mlp" {
		return nn.Sequential{nn.NewLinear(784, 512), nn.ReLU, nn.NewLinear(512, 512), nn.ReLU, nn.NewLinear(512, 10)}
	}
	same := ops.Conv2dOptions{Padding: [2]int{1, 1}}
	return nn.Sequential{picture{}, nn.NewConv2d(1, 32, 3, same), nn.ReLU, nn.NewMaxPool2d(2), nn.NewConv2d(32, 64, 3, same), nn.ReLU,
		nn.NewMaxPool2d(2), nn.Flatten{}, nn.NewLinear(64*7*7, 128), nn.ReLU, nn.NewLinear(128, 10)}
}

// picture makes an image with one channel from a row of pixels.
type picture struct{}

// Forward returns [batch, 1, 28, 28] for x [batch, 784].
func (picture) Forward(x nn.T) nn.T { return x.Reshape(x.Dim(0), 1, 28, 28) }

// steps returns the number of steps to do.
func (t *trainer) steps() int {
	if t.o.steps > 0 {
		return t.o.steps
	}
	return t.o.epochs * t.images.Steps()
}

// fit trains for the given epochs or steps, and measures the accuracy after every epoch and at the end.
func (t *trainer) fit(ctx context.Context) error {
	total := t.steps()
	start, waited := time.Now(), t.r.World.Waited()
	for step, b := range t.loop.Batches(t.images, total) {
		if err := t.advance(b); err != nil {
			return err
		}
		if (step+1)%t.images.Steps() == 0 || step+1 == total {
			t.time += time.Since(start)
			t.waited += t.r.World.Waited() - waited
			if err := t.endEpoch(ctx, step); err != nil {
				return err
			}
			start, waited = time.Now(), t.r.World.Waited()
		}
	}
	done, _ := t.loop.Done()
	if measured, _ := t.loop.Values(accuracy); t.loop.Going() && len(measured) == 0 { // resumed after the last step
		return t.endEpoch(ctx, done-1)
	}
	return nil
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

// lossType is the type of the loss when the model computes in dtype.
func lossType(dtype tensor.DType) tensor.DType {
	if dtype.IsHalf() {
		return tensor.Float32
	}
	return dtype
}

// accuracy is the name of the value that endEpoch measures.
const accuracy = "test accuracy"

// endEpoch measures the accuracy on the test set after a step, and prints the results of the epoch.
func (t *trainer) endEpoch(ctx context.Context, step int) error {
	var sums [2]float64 // right, seen
	for _, b := range t.tests.Epoch(ctx, 0) {
		sums[0] += nn.Hits(t.model.Forward(t.eval.Input(b.X)), b.Y)
		sums[1] += float64(b.X.Dim(0))
		t.eval.Reset()
	}
	if err := t.tests.Err(); err != nil {
		return err
	}
	if err := t.stats.SumFloats(sums[:]); err != nil {
		return err
	}
	t.loop.Log(accuracy, sums[0]/sums[1])
	if err := t.loop.Flush(); err != nil {
		return err
	}
	steps, losses := t.loop.Values("loss")
	epoch := step / t.images.Steps()
	first, _ := slices.BinarySearch(steps, epoch*t.images.Steps()+1) // after a rebuild a step may be missing
	t.loop.Logf("epoch %d  loss %.4f  test accuracy %.2f%%", epoch+1, mean(losses[first:]), 100*sums[0]/sums[1])
	return nil
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

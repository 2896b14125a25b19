// Command ddp-mnist trains a 784-512-512-10 network on MNIST, data parallel on several ranks: goroutines of this process,
// or processes when it is started by "ringo run". Any number of ranks computes the same.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

type options struct {
	ranks, threads, epochs, steps, batch int
	lr, bucketMB                         float64
	optim, dtype, data                   string
	device                               dist.DeviceFunc
	trace, plot                          string
	seed                                 uint64
	json, resume                         bool
	save                                 string
	saveEvery                            int
}

func main() {
	var o options
	flag.IntVar(&o.ranks, "ranks", 2, "goroutine `ranks` (under ringo run, the launcher decides)")
	flag.IntVar(&o.threads, "threads", 0, "computing threads of a rank (0: cores/ranks)")
	flag.IntVar(&o.epochs, "epochs", 5, "passes over the training set")
	flag.IntVar(&o.steps, "steps", 0, "training steps, instead of -epochs")
	flag.IntVar(&o.batch, "batch", 128, "rows of the global batch, over all ranks")
	flag.Float64Var(&o.lr, "lr", 0, "learning rate (0: 0.1 for sgd, 1e-3 for adamw)")
	flag.StringVar(&o.optim, "optim", "sgd", "optimizer: sgd (momentum 0.9) or adamw")
	flag.StringVar(&o.dtype, "dtype", "float32", "float32, float64, bfloat16 or float16 (16 bits: the optimizer keeps the parameters in float32 as well)")
	flag.Uint64Var(&o.seed, "seed", 9, "seed of parameters and order")
	flag.StringVar(&o.data, "data", "", "`directory` of IDX files, or synthetic (default: MNIST)")
	flag.Float64Var(&o.bucketMB, "bucket-mb", 25, "largest gradient bucket in MiB")
	flag.BoolVar(&o.json, "json", false, "print the summary as one JSON line")
	flag.StringVar(&o.trace, "trace", "", "write a timeline for Perfetto to this `file`")
	flag.StringVar(&o.plot, "plot", "", "draw loss and accuracy to this .svg `file`")
	flag.StringVar(&o.save, "save", "", "save checkpoints to this `directory`")
	flag.IntVar(&o.saveEvery, "save-every", 100, "steps between checkpoints")
	flag.BoolVar(&o.resume, "resume", false, "go on from the latest checkpoint in the directory of -save, if there is one")
	device := dist.DeviceFlag()
	flag.Parse()
	o.device = *device
	if err := run(o, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run trains and writes what a person reads, or the JSON line, to w.
func run(o options, w io.Writer) error {
	dtype, err := o.check()
	if err != nil {
		return err
	}
	train, test, err := o.load(dtype)
	if err != nil {
		return err
	}
	return o.run(dtype, train, test, w)
}

// run trains on images.
func (o options) run(dtype tensor.DType, train, test *data.Images, w io.Writer) error {
	cfg := dist.Config{Ranks: o.ranks, Threads: o.threads, Device: o.device, Log: w}
	flag.Visit(func(f *flag.Flag) { cfg.Exact = cfg.Exact || f.Name == "ranks" })
	if o.trace != "" {
		cfg.Trace = 1 << 18
	}
	return dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error {
		t, err := newTrainer(o, dtype, r, train, test)
		if err != nil {
			return err
		}
		if o.resume {
			if err := t.resume(ctx); err != nil {
				return err
			}
		}
		if err := t.fit(ctx); err != nil {
			return err
		}
		return t.report()
	})
}

// check rejects what cannot be meant, and fills in the learning rate.
func (o *options) check() (tensor.DType, error) {
	dtype, err := tensor.ParseDType(o.dtype)
	switch {
	case err != nil:
		return 0, err
	case !dtype.IsFloat():
		return 0, fmt.Errorf("-dtype %s: not a float type", o.dtype)
	case o.optim != "sgd" && o.optim != "adamw":
		return 0, fmt.Errorf("-optim %s: sgd or adamw", o.optim)
	case o.ranks < 1 || o.batch < 1 || o.epochs < 1 || o.steps < 0 || o.threads < 0:
		return 0, fmt.Errorf("-ranks, -batch and -epochs must be at least 1, -steps and -threads not negative")
	case o.save != "" && o.saveEvery < 1 || o.resume && o.save == "":
		return 0, fmt.Errorf("-save-every must be at least 1, and -resume needs -save")
	case !(o.lr >= 0) || !(o.bucketMB*(1<<20) >= 1):
		return 0, fmt.Errorf("-lr must not be negative, -bucket-mb must be a byte at least")
	case flag.NArg() > 0:
		return 0, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.lr == 0 {
		o.lr = map[string]float64{"sgd": 0.1, "adamw": 1e-3}[o.optim]
	}
	return dtype, nil
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
	stats  *dist.Group // what is summed for people; the world group then counts the gradients' bytes alone
	model  nn.Sequential
	params nn.Params
	opt    *optim.Optimizer
	scaler *optim.Scaler // of the loss, in float16
	tape   *tensor.Tape
	step   func(in ...tensor.Tensor) error // on a batch's X and Y
	batch  [2]tensor.Tensor                // X and Y, of the step
	loss   tensor.Tensor                   // of the last step: this rank's part
	eval   *tensor.Tape
	train  *data.Loader
	test   *data.Loader

	history
	steps   int             // done
	parts   tensor.Tensor   // of the losses of the steps that history does not have yet: this rank's, on its device
	part    []tensor.Tensor // views of parts
	saver   *ckpt.Saver
	saved   int // step of the last checkpoint
	resumed int // step at which this process began

	wall   time.Time
	time   time.Duration // of training steps
	waited time.Duration // in communication
}

func newTrainer(o options, dtype tensor.DType, r *dist.Rank, train, test *data.Images) (*trainer, error) {
	t := &trainer{o: o, r: r, wall: time.Now(), stats: r.World.With(dist.Name("stats"))}
	if o.save != "" {
		t.saver = ckpt.NewSaver(r.World, o.save, ckpt.Config{Keep: 3})
	}
	var err error
	t.model = nn.Sequential{nn.NewLinear(784, 512), nn.ReLU, nn.NewLinear(512, 512), nn.ReLU, nn.NewLinear(512, 10)}
	t.params, err = ddp.Attach(r.World, t.model, ddp.Config{DType: dtype, Seed: o.seed, BucketBytes: int(o.bucketMB * (1 << 20))})
	if err != nil {
		return nil, err
	}
	if dtype == tensor.Float16 {
		t.scaler = optim.NewScaler()
	}
	if o.optim == "sgd" {
		t.opt = optim.NewSGD(t.params, optim.SGDConfig{LR: o.lr, Momentum: 0.9, Scaler: t.scaler})
	} else {
		t.opt = optim.NewAdamW(t.params, optim.AdamWConfig{LR: o.lr, Scaler: t.scaler})
	}
	t.tape = tensor.NewTape(r.Device, tensor.Seed(o.seed), tensor.Trace(r.Trace))
	t.loss = tensor.New(r.Device, lossType(dtype))
	t.step = t.update
	if r.World.Size() == 1 && t.scaler == nil { // nothing in a step waits for other ranks or for the device
		t.step = tensor.Capture(r.Device, t.update).Run
	}
	t.eval = tensor.NewTape(r.Device, tensor.NoGrad())
	t.train = data.NewLoader(train, data.Config{Batch: o.batch, Shuffle: true, Seed: o.seed, Sharder: r.World, Device: r.Device})
	t.test = data.NewLoader(test, data.Config{Batch: 1000, Sharder: r.World, Device: r.Device})
	t.parts = tensor.New(r.Device, lossType(dtype), t.train.Steps())
	for i := range t.train.Steps() {
		t.part = append(t.part, t.parts.Range(i, i+1))
	}
	return t, nil
}

// fit trains for the epochs or steps that were asked for.
func (t *trainer) fit(ctx context.Context) error {
	total := t.o.epochs * t.train.Steps()
	if t.o.steps > 0 {
		total = t.o.steps
	}
	bar := newProgress(t.r, t.o, total-t.steps)
	defer bar.close()
	for e := t.train.State().Epoch; t.steps < total; e++ {
		if err := t.epoch(ctx, e, total, bar); err != nil {
			return err
		}
		bar.epoch(e, t)
	}
	if n := len(t.Epochs); n == 0 || t.Epochs[n-1].Steps < t.steps { // resumed at the very end
		return t.endEpoch(ctx)
	}
	return nil
}

// epoch trains for an epoch, or for what is left of it after a resume, until there are total steps.
func (t *trainer) epoch(ctx context.Context, e, total int, bar *progress) error {
	start, waited := time.Now(), t.r.World.Waited()
	for i, b := range t.train.Epoch(ctx, e) {
		if err := t.advance(b); err != nil {
			return err
		}
		bar.step()
		if i+1 < t.train.Steps() { // else when the accuracy is known
			if err := t.saveIfDue(ctx); err != nil {
				return err
			}
		}
		if t.steps == total {
			break
		}
	}
	if err := t.train.Err(); err != nil {
		return err
	}
	t.time += time.Since(start)
	t.waited += t.r.World.Waited() - waited
	if err := t.endEpoch(ctx); err != nil {
		return err
	}
	return t.saveIfDue(ctx)
}

// advance does a step, and leaves its loss on the device: to read it would wait for the step.
func (t *trainer) advance(b data.Batch) error {
	t.batch = [2]tensor.Tensor{b.X, b.Y}
	err := t.step(t.batch[:]...)
	tensor.Copy(t.part[t.steps-len(t.Losses)], t.loss)
	t.steps++
	return err
}

// update does a step on a batch's X and Y.
func (t *trainer) update(batch ...tensor.Tensor) error {
	loss := nn.CrossEntropy(t.model.Forward(t.tape.Input(batch[0])), batch[1])
	tensor.Copy(t.loss, loss)
	scale := 1.0
	if t.scaler != nil {
		scale = t.scaler.Scale
	}
	t.tape.Backward(loss, tensor.Scale(scale)) // gradients are summed over the ranks while it runs
	err := t.opt.Step()
	t.tape.Reset()
	return err
}

// lossType is the type of a loss of what is computed in dtype.
func lossType(dtype tensor.DType) tensor.DType {
	if dtype.IsHalf() {
		return tensor.Float32
	}
	return dtype
}

// sumLosses reads this rank's parts of the losses and makes them those of the global batch.
func (t *trainer) sumLosses() error {
	losses := tensor.Floats(t.parts.Range(0, t.steps-len(t.Losses)))
	if err := t.stats.SumFloats(losses); err != nil {
		return err
	}
	t.Losses = append(t.Losses, losses...)
	return nil
}

// endEpoch sums the losses over the ranks and measures the accuracy on the test set.
func (t *trainer) endEpoch(ctx context.Context) error {
	if err := t.sumLosses(); err != nil {
		return err
	}
	var sums [2]float64 // right, seen
	for _, b := range t.test.Epoch(ctx, 0) {
		sums[0] += nn.Hits(t.model.Forward(t.eval.Input(b.X)), b.Y)
		sums[1] += float64(b.X.Dim(0))
		t.eval.Reset()
	}
	if err := t.test.Err(); err != nil {
		return err
	}
	if err := t.stats.SumFloats(sums[:]); err != nil {
		return err
	}
	t.Epochs = append(t.Epochs, epoch{len(t.Losses), sums[0] / sums[1]})
	return nil
}

// Command fsdp trains a small transformer, which learns to continue this program's source, with ddp and with stages 1, 2 and 3 of ZeRO. It
// prints the memory of a rank by kind and the bytes sent in a step and, in the line below, the prediction of package plan. The loss is the
// same every time, on any number of ranks.
package main

import (
	"context"
	_ "embed"
	"flag"
	"io"
	"os"
	"runtime"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/train"
)

//go:embed main.go
var source []byte

type options struct {
	train.Options
	ranks, steps, batch, width, layers, length int
	half                                       bool
}

func main() {
	var o options
	flag.IntVar(&o.ranks, "ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	device := dist.DeviceFlag()
	flag.IntVar(&o.steps, "steps", 30, "training steps of each stage")
	flag.IntVar(&o.batch, "batch", 16, "sequences of the global batch, over all ranks")
	flag.IntVar(&o.width, "width", 48, "features, a multiple of 4")
	flag.IntVar(&o.layers, "layers", 10, "blocks")
	flag.IntVar(&o.length, "length", 32, "bytes of a sequence")
	flag.BoolVar(&o.half, "half", false, "compute in bfloat16; the optimizer's values stay in float32")
	flag.Parse()
	o.Device, o.Quiet = *device, true // no other lines inside the table
	train.Exit(run(o, os.Stdout))
}

// check returns an error for impossible options.
func (o *options) check() error {
	switch {
	case flag.NArg() > 0:
		return train.Usagef("unexpected argument %q", flag.Arg(0))
	case o.ranks < 1 || o.steps < 2 || o.batch < 1 || o.width < heads || o.width%heads != 0 || o.layers < 1 || o.length < 1:
		return train.Usagef("-steps must be at least 2, -width a multiple of %d, and the others positive", heads)
	}
	return nil
}

// run writes the table to w.
func run(o options, w io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	return o.Run(dist.Config{Ranks: o.ranks, Log: w}, func(ctx context.Context, r *dist.Rank) error {
		r.Logf("%d ranks, %d parameters", r.World.Size(), nn.ParamsOf(newGPT(o.width, o.layers, o.length)).Count())
		r.Logf("              loss       KiB of a rank, at most%56s  sent", "")
		r.Logf("         first   last%s", columns(kindNames(), "total", "a step"))
		for stage := range 4 {
			p, err := o.plan(stage, r.World.Size())
			if err != nil {
				return err
			}
			forget(r.Device.Memory())
			res, err := fit(ctx, o, stage, r)
			if err != nil {
				return err
			}
			res.report(r, stage, p)
		}
		return nil
	})
}

// plan predicts the memory and bytes of training with a stage; 0 is ddp.
func (o options) plan(stage, ranks int) (*plan.Plan, error) {
	c := plan.Config{Layout: plan.Layout{FSDP: ranks}, Stage: stage}
	if stage == 0 {
		c.Layout = plan.Layout{DP: ranks}
	}
	if o.half {
		c.Params = tensor.BFloat16
	}
	m, err := plan.Transformer{Layers: o.layers, Dim: o.width, Heads: heads, Vocab: vocabulary, Batch: o.batch, Seq: o.length}.Model(c)
	if err != nil {
		return nil, err
	}
	return plan.New(m, c)
}

// forget makes the garbage collector free the memory of the stage before, so that the next one is counted alone.
func forget(m *memory.Counter) {
	for i := 0; i < 100 && m.Total().Live > m.Of(memory.Other).Live; i++ {
		runtime.GC()
	}
	m.ResetPeak()
}

// fit makes a model, and trains it with one stage.
func fit(ctx context.Context, o options, stage int, r *dist.Rank) (*result, error) {
	m := newGPT(o.width, o.layers, o.length)
	t, err := m.attach(o, stage, r)
	if err != nil {
		return nil, err
	}
	opt := optim.NewAdamW(t.params, optim.AdamWConfig{LR: 3e-3, WeightDecay: 0.01, Clip: 1, Norm: t.norm})
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	batches := data.NewLoader(text{o.steps * o.batch, o.length}, data.Config{Batch: o.batch, Sharder: r.World, Device: r.Device})
	loop, err := train.Start(ctx, r, &o.Options, ckpt.State{Params: t.params, Optimizer: opt, Tape: tape})
	if err != nil {
		return nil, err
	}
	sent := uint64(0)
	for step, b := range loop.Batches(batches, o.steps) {
		if step == o.steps-1 {
			sent = t.sent()
		}
		loss := nn.CrossEntropy(m.Forward(tape.Input(b.X)), b.Y) // this rank's part of the mean
		loop.Sum("loss", loss)
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return nil, err
		}
		tape.Reset()
	}
	if err := loop.Close(); err != nil {
		return nil, err
	}
	_, losses := loop.Values("loss")
	sum := []float64{float64(t.sent() - sent)}
	if err := r.World.SumFloats(sum); err != nil {
		return nil, err
	}
	peaks, err := peaksOf(r)
	return &result{losses[0], losses[o.steps-1], int(sum[0]), peaks}, err
}

// text is a dataset of sequences of the source; the targets are the next bytes.
type text struct{ sequences, length int }

func (t text) Len() int { return t.sequences }

func (t text) Shapes() (x, y tensor.Shape) {
	s := tensor.Shape{DType: tensor.Int64, Dims: []int{t.length}}
	return s, s
}

func (t text) Batch(idx []int, x, y tensor.Tensor) error {
	for i, k := range idx {
		at := int(tensor.RandomBits(5, uint64(k)) % uint64(len(source)-t.length))
		for j := range t.length {
			tensor.Data[int64](x)[i*t.length+j] = int64(source[at+j]) % vocabulary
			tensor.Data[int64](y)[i*t.length+j] = int64(source[at+j+1]) % vocabulary
		}
	}
	return nil
}

// Command fsdp trains a small transformer, which learns to continue this program's source, with ddp and under stages 1, 2 and 3
// of ZeRO. It prints the memory of a rank by kind and the bytes sent in a step, and below each what package plan predicted. The
// loss is the same every time and on any number of ranks.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/tensor"
)

//go:embed main.go
var source []byte

type options struct {
	ranks, steps, batch, width, layers, length int
	half                                       bool
	device                                     dist.DeviceFunc
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("fsdp: ")
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
	if flag.NArg() > 0 {
		log.Printf("unexpected argument %q", flag.Arg(0))
		os.Exit(2)
	}
	o.device = *device
	if err := o.check(); err != nil {
		log.Print(err)
		os.Exit(2)
	}
	if err := run(o, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// check rejects what cannot be meant.
func (o *options) check() error {
	if o.ranks < 1 || o.steps < 2 || o.batch < 1 || o.width < heads || o.width%heads != 0 || o.layers < 1 || o.length < 1 {
		return fmt.Errorf("-steps must be at least 2, -width a multiple of %d, and the others positive", heads)
	}
	return nil
}

func run(o options, w io.Writer) error {
	return dist.Run(context.Background(), dist.Config{Ranks: o.ranks, Device: o.device, Log: w}, func(ctx context.Context, r *dist.Rank) error {
		r.Logf("%d ranks, %d parameters", r.World.Size(), nn.ParamsOf(newGPT(o.width, o.layers, o.length)).Count())
		r.Logf("              loss       KiB of a rank, at most%56s  sent", "")
		r.Logf("         first   last%s", columns(kindNames(), "total", "a step"))
		for stage := range 4 {
			p, err := o.plan(stage, r.World.Size())
			if err != nil {
				return err
			}
			forget(r.Device.Memory())
			res, err := train(ctx, o, stage, r)
			if err != nil {
				return err
			}
			res.report(r, stage, p)
		}
		return nil
	})
}

// plan predicts what training under a stage will take; 0 is ddp.
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

// forget has the collector give back the memory of the stage before, so that the next one is counted alone.
func forget(m *tensor.Memory) {
	for i := 0; i < 100 && m.Total().Live > m.Of(tensor.OtherMemory).Live; i++ {
		runtime.GC()
	}
	m.ResetPeak()
}

// train makes a model, and trains it under one stage.
func train(ctx context.Context, o options, stage int, r *dist.Rank) (*result, error) {
	m := newGPT(o.width, o.layers, o.length)
	t, err := m.attach(o, stage, r)
	if err != nil {
		return nil, err
	}
	opt := optim.NewAdamW(t.params, optim.AdamWConfig{LR: 3e-3, WeightDecay: 0.01, Clip: 1, Norm: t.norm})
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	batches := data.NewLoader(text{o.steps * o.batch, o.length}, data.Config{Batch: o.batch, Sharder: r.World, Device: r.Device})
	losses, sent := tensor.New(r.Device, tensor.Float32, o.steps), uint64(0)
	for step, b := range batches.Epoch(ctx, 0) {
		if step == o.steps-1 {
			sent = t.sent()
		}
		loss := nn.CrossEntropy(m.Forward(tape.Input(b.X)), b.Y) // this rank's part of the mean
		tensor.Copy(losses.Range(step, step+1), loss)            // to read it now would wait for the device
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return nil, err
		}
		tape.Reset()
	}
	if err := batches.Err(); err != nil {
		return nil, err
	}
	all := tensor.Floats(losses)
	sums := []float64{all[0], all[o.steps-1], float64(t.sent() - sent)}
	if err := r.World.SumFloats(sums); err != nil {
		return nil, err
	}
	peaks, err := peaksOf(r)
	return &result{sums[0], sums[1], int(sums[2]), peaks}, err
}

// text is a dataset of sequences from the source, and the bytes that follow each byte.
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

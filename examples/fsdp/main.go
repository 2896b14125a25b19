// Command fsdp trains a small transformer, which learns to continue this program's source, under stages 1, 2 and 3 of ZeRO.
// It prints the memory of a rank and the bytes sent beside what the formulas say. The loss is the same under all stages and
// on any number of ranks.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

//go:embed main.go
var source []byte

type options struct {
	ranks, steps, batch, width, layers, length int
	half                                       bool
}

func main() {
	var o options
	flag.IntVar(&o.ranks, "ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	flag.IntVar(&o.steps, "steps", 30, "training steps of each stage")
	flag.IntVar(&o.batch, "batch", 16, "sequences of the global batch, over all ranks")
	flag.IntVar(&o.width, "width", 48, "features, a multiple of 4")
	flag.IntVar(&o.layers, "layers", 10, "blocks")
	flag.IntVar(&o.length, "length", 32, "bytes of a sequence")
	flag.BoolVar(&o.half, "half", false, "compute in bfloat16; the optimizer's values stay in float32")
	flag.Parse()
	if err := run(o, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(o options, w io.Writer) error {
	if o.ranks < 1 || o.steps < 2 || o.batch < 1 || o.width < heads || o.width%heads != 0 || o.layers < 1 || o.length < 1 {
		return fmt.Errorf("-steps must be at least 2, -width a multiple of %d, and the others positive", heads)
	}
	return dist.Run(context.Background(), dist.Config{Ranks: o.ranks, Log: w}, func(_ context.Context, r *dist.Rank) error {
		r.Logf("%d ranks, %d parameters", r.World.Size(), nn.ParamsOf(newGPT(o.width, o.layers, o.length)).Count())
		r.Logf("stage    loss            KiB of a rank                         KiB sent a step, all ranks")
		r.Logf("         first   last    values  gradients  optimizer     sum  formula        sent  formula")
		for stage := 1; stage <= 3; stage++ {
			if err := train(o, stage, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// train makes a model, trains it under one stage, and prints a line of the table.
func train(o options, stage int, r *dist.Rank) error {
	m := newGPT(o.width, o.layers, o.length)
	c := fsdp.Config{Shard: r.World, Stage: stage, Seed: 1}
	if o.half {
		c.Compute = tensor.BFloat16
	}
	s, params, err := m.shard(c)
	if err != nil {
		return err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-3, WeightDecay: 0.01, Clip: 1, Norm: s})
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	losses, sent := make([]float64, o.steps), 0.0
	for step := range o.steps {
		if step == o.steps-1 {
			sent = wire(s)
		}
		x, y := batch(o, r, step)
		loss := nn.CrossEntropy(m.Forward(tape.Input(x)), y) // this rank's part of the mean
		losses[step] = loss.Item()
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	sums := []float64{losses[0], losses[o.steps-1], wire(s) - sent}
	if err := r.World.SumFloats(sums); err != nil {
		return err
	}
	mem, state := r.Device.Memory(), stateBytes(opt)
	want := m.sizes(o, stage, r.World.Size())
	values := mem.Of(tensor.Parameters).Live + mem.Of(tensor.Gathered).Live
	grads := mem.Of(tensor.Gradients).Live + mem.Of(tensor.Communication).Live
	r.Logf("    %d   %6.3f %6.3f %9d %10d %10d %7d %8d %11d %8d", stage, sums[0], sums[1], values/1024, grads/1024, state/1024,
		(values+grads+state)/1024, want.memory()/1024, int(sums[2])/1024, want.wire()/1024)
	return nil
}

// batch returns this rank's part of a global batch of sequences from the source, and the bytes that follow each byte.
func batch(o options, r *dist.Rank, step int) (x, y tensor.Tensor) {
	first, end := o.batch*r.World.Rank()/r.World.Size(), o.batch*(r.World.Rank()+1)/r.World.Size()
	x, y = tensor.New(r.Device, tensor.Int64, end-first, o.length), tensor.New(r.Device, tensor.Int64, end-first, o.length)
	for i := range end - first {
		at := int(tensor.RandomBits(5, uint64(step*o.batch+first+i)) % uint64(len(source)-o.length))
		for k := range o.length {
			tensor.Data[int64](x)[i*o.length+k] = int64(source[at+k]) % vocabulary
			tensor.Data[int64](y)[i*o.length+k] = int64(source[at+k+1]) % vocabulary
		}
	}
	return x.WithRows(tensor.Rows{First: first, Stride: 1, Total: o.batch}), y
}

// wire returns the bytes that this rank has sent for parameters and gradients.
func wire(s *fsdp.Sharding) float64 {
	g := s.Groups()
	return float64(g[0].Stats().Wire["allgatherv"] + g[1].Stats().Wire["reducescatterv"])
}

// stateBytes returns the bytes of the optimizer's state.
func stateBytes(opt *optim.Optimizer) int {
	n := 0
	for _, x := range opt.State().Tensors {
		n += x.Tensor.Len() * x.Tensor.DType().Size()
	}
	return n
}

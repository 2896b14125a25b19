package fsdp_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// benchNet is blocks and a head, trained on x and y.
type benchNet struct {
	Blocks []nn.Layer
	Head   *nn.Linear
	x, y   func(dev tensor.Device) nn.T
}

func (w *benchNet) Forward(x nn.T) nn.T {
	for _, b := range w.Blocks {
		x = b.Forward(x)
	}
	return w.Head.Forward(x)
}

// attend is a block of a transformer.
type attend struct {
	Norm *nn.LayerNorm
	Attn *nn.Attention
	MLP  *block
}

func (a *attend) Forward(x nn.T) nn.T { return a.MLP.Forward(x.Add(a.Attn.Forward(a.Norm.Forward(x)))) }

func residual(width int) *block {
	return &block{nn.NewLayerNorm(width), nn.NewMLP(width, 4*width), nn.NewDropout(0)}
}

// benchNets are what is measured, with a rank's rows: four residual blocks of width 512, 8.4 million parameters, of which a
// step reads each 128 times; and a transformer of width 256, 3.2 million, 1024 times.
var benchNets = map[string]func() *benchNet{
	"mlp": func() *benchNet {
		w := &benchNet{Head: nn.NewLinear(512, 10), x: uniform(128, 512), y: zeros(128)}
		for range 4 {
			w.Blocks = append(w.Blocks, residual(512))
		}
		return w
	},
	"gpt": func() *benchNet {
		w := &benchNet{Head: nn.NewLinear(256, 100), x: uniform(8, 128, 256), y: zeros(8, 128)}
		for range 4 {
			w.Blocks = append(w.Blocks, &attend{nn.NewLayerNorm(256), nn.NewAttention(256, 4), residual(256)})
		}
		return w
	},
}

func uniform(dims ...int) func(dev tensor.Device) nn.T {
	return func(dev tensor.Device) nn.T {
		x := tensor.New(dev, tensor.Float32, dims...)
		tensor.UniformInit(0, 1).Fill(x, 1, 0)
		return x
	}
}

func zeros(dims ...int) func(dev tensor.Device) nn.T {
	return func(dev tensor.Device) nn.T { return tensor.New(dev, tensor.Int64, dims...) }
}

// BenchmarkStep is a training step on two goroutine ranks of one thread, AdamW. Steps of ddp and of a stage alternate; the
// metrics are medians.
func BenchmarkStep(b *testing.B) {
	for stage := 1; stage <= 3; stage++ {
		for name, net := range benchNets {
			b.Run(fmt.Sprintf("%s/stage=%d", name, stage), func(b *testing.B) { benchStep(b, stage, net) })
		}
	}
}

func benchStep(b *testing.B, stage int, net func() *benchNet) {
	var ms [2][]float64
	err := dist.Run(context.Background(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error { // with spins
		steps, err := benchSteps(r, stage, net)
		for i := 0; i < b.N+3 && err == nil; i++ {
			for k, step := range steps {
				start := time.Now()
				err = errors.Join(err, step())
				if i >= 3 && r.World.Rank() == 0 {
					ms[k] = append(ms[k], time.Since(start).Seconds()*1e3)
				}
			}
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	for k := range ms {
		slices.Sort(ms[k])
	}
	ddp, own := ms[0][b.N/2], ms[1][b.N/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ddp, "ms/ddp")
	b.ReportMetric(own, "ms/step")
	b.ReportMetric(own/ddp, "of-ddp")
}

// benchSteps returns a step of ddp and one of a stage, each of which ends with a barrier.
func benchSteps(r *dist.Rank, stage int, net func() *benchNet) (steps [2]func() error, err error) {
	for k := range steps {
		model := net()
		x, y := model.x(r.Device), model.y(r.Device)
		x = x.WithRows(r.World.Rows(x.Dim(0)*r.World.Rank(), x.Dim(0)*r.World.Size()))
		var params nn.Params
		if k == 0 {
			params, err = ddp.Attach(r.World, model, ddp.Config{})
		} else {
			s := fsdp.New(fsdp.Config{Shard: r.World, Stage: stage})
			for _, b := range model.Blocks {
				s.Unit(b)
			}
			s.Unit(model.Head)
			params, err = s.Attach(model)
		}
		if err != nil {
			return steps, err
		}
		opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3}), tensor.NewTape(r.Device)
		steps[k] = func() error {
			tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y))
			err := opt.Step()
			tape.Reset()
			return errors.Join(err, r.World.Barrier().Wait())
		}
	}
	return steps, nil
}

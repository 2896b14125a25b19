package fsdp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// wideNet is four residual blocks of width 512: 8.4 million parameters.
type wideNet struct {
	Blocks []*block
	Head   *nn.Linear
}

func newWideNet() *wideNet {
	w := &wideNet{Head: nn.NewLinear(512, 10)}
	for range 4 {
		w.Blocks = append(w.Blocks, &block{nn.NewLayerNorm(512), nn.NewMLP(512, 2048), nn.NewDropout(0)})
	}
	return w
}

func (w *wideNet) Forward(x nn.T) nn.T {
	for _, b := range w.Blocks {
		x = b.Forward(x)
	}
	return w.Head.Forward(x)
}

// BenchmarkStep is a training step on two goroutine ranks of one thread: 128 rows a rank, AdamW.
func BenchmarkStep(b *testing.B) {
	for _, name := range []string{"ddp", "stage=1", "stage=2", "stage=3"} {
		b.Run(name, func(b *testing.B) { benchStep(b, name) })
	}
}

func benchStep(b *testing.B, name string) {
	err := dist.Run(context.Background(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		model := newWideNet()
		params, err := benchAttach(r, model, name)
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
		tape := tensor.NewTape(r.Device)
		const rows = 128
		x, y := tensor.New(r.Device, tensor.Float32, rows, 512), tensor.New(r.Device, tensor.Int64, rows)
		tensor.UniformInit(0, 1).Fill(x, 1, 0)
		for i := range b.N + 3 {
			if i == 3 && r.World.Rank() == 0 {
				b.ResetTimer()
			}
			tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y))
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}

func benchAttach(r *dist.Rank, model *wideNet, name string) (nn.Params, error) {
	if name == "ddp" {
		return ddp.Attach(r.World, model, ddp.Config{})
	}
	c := fsdp.Config{Shard: r.World}
	if _, err := fmt.Sscanf(name, "stage=%d", &c.Stage); err != nil {
		return nil, err
	}
	s := fsdp.New(c)
	for _, b := range model.Blocks {
		s.Unit(b)
	}
	s.Unit(model.Head)
	return s.Attach(model)
}

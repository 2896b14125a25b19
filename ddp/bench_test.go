package ddp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkStep trains ddp-mnist's network on one batch over and over: forward, backward, all-reduce, optimizer. The
// batch is that of a rank.
func BenchmarkStep(b *testing.B) {
	for _, opt := range []string{"sgd", "adamw"} {
		for _, rows := range []int{64, 256} {
			for _, ranks := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/batch=%d/ranks=%d", opt, rows, ranks), func(b *testing.B) { benchStep(b, opt, rows, ranks) })
			}
		}
	}
}

func benchStep(b *testing.B, name string, rows, ranks int) {
	err := dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(784, 512), nn.ReLU, nn.NewLinear(512, 512), nn.ReLU, nn.NewLinear(512, 10)}
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{}))
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.01})
		if name == "adamw" {
			opt = optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3})
		}
		tape := tensor.NewTape(r.Device)
		x, y := tensor.New(r.Device, tensor.Float32, rows, 784), tensor.New(r.Device, tensor.Int64, rows)
		tensor.UniformInit(0, 1).Fill(x, 1, 0)
		x = x.WithRows(r.World.Rows(rows*r.World.Rank(), rows*ranks))
		for i := range tensor.Data[int64](y) {
			tensor.Data[int64](y)[i] = int64(i % 10)
		}
		for i := range b.N + 3 {
			if i == 3 && r.World.Rank() == 0 {
				b.ResetTimer()
			}
			tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y))
			disttest.OK(opt.Step())
			tape.Reset()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(float64(b.N*rows*ranks)/b.Elapsed().Seconds(), "samples/s")
}

package fsdp_test

import (
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

// BenchmarkStep is a training step on two goroutine ranks of one thread, 128 rows a rank, AdamW. Steps of ddp and of a
// stage alternate; the metrics are medians.
func BenchmarkStep(b *testing.B) {
	for stage := 1; stage <= 3; stage++ {
		b.Run(fmt.Sprint("stage=", stage), func(b *testing.B) {
			var ms [2][]float64
			err := onRanks(2, func(r *dist.Rank) error {
				steps, err := benchSteps(r, stage)
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
		})
	}
}

// benchSteps returns a step of ddp and one of a stage, each of which ends with a barrier.
func benchSteps(r *dist.Rank, stage int) (steps [2]func() error, err error) {
	const rows = 128
	x, y := tensor.New(r.Device, tensor.Float32, rows, 512), tensor.New(r.Device, tensor.Int64, rows)
	tensor.UniformInit(0, 1).Fill(x, 1, 0)
	for k := range steps {
		model := newWideNet()
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

// Package own is a program with a loop of its own, without train, that trains two models with an optimizer each. With -wrong each rank
// makes the weights of its rows from a mean of these rows alone, which no type sees: they are rows.
package own

import (
	"context"
	"flag"
	"math"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// Main is the program: it trains 100 steps.
func Main() {
	ranks := flag.Int("ranks", 1, "goroutine ranks")
	wrong := flag.Bool("wrong", false, "weights from own rows")
	flag.Parse()
	o := train.Options{Threads: 1}
	train.Exit(o.Run(dist.Config{Ranks: *ranks}, func(ctx context.Context, r *dist.Rank) error { return rank(ctx, r, *wrong) }))
}

// model is a Linear with an optimizer.
type model struct {
	*nn.Linear
	opt *optim.Optimizer
}

func newModel(r *dist.Rank, seed uint64) (m model, err error) {
	m.Linear = nn.NewLinear(3, 1)
	params, err := ddp.Attach(r.World, m.Linear, ddp.Config{DType: tensor.Float64, Seed: seed})
	if err == nil {
		m.opt = optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
	}
	return m, err
}

func rank(ctx context.Context, r *dist.Rank, wrong bool) error {
	a, err := newModel(r, 1)
	if err != nil {
		return err
	}
	b, err := newModel(r, 2)
	if err != nil {
		return err
	}
	const rows = 12
	x := make([]float64, 3*rows)
	for i := range x {
		x[i] = math.Sin(float64(i * i))
	}
	points, err := data.NewTensors(tensor.FromSlice(x, rows, 3), tensor.FromSlice(x[:rows], rows, 1))
	if err != nil {
		return err
	}
	batches := data.NewLoader(points, data.Config{Batch: rows, Sharder: r.World, Device: r.Device})
	tape := tensor.NewTape(r.Device)
	for epoch := range 100 {
		for _, batch := range batches.Epoch(ctx, epoch) {
			for _, m := range []model{a, b} {
				y := m.Forward(tape.Input(batch.X))
				w := weights(tensor.Floats(batch.Y), wrong)
				loss := tensor.GlobalMean(y.Mul(tape.Input(tensor.FromSlice(w, len(w), 1).WithRows(batch.Y.Rows()))).Square())
				tape.Backward(loss)
				if err := m.opt.Step(); err != nil {
					return err
				}
				tape.Reset()
			}
		}
	}
	return batches.Err()
}

// weights of rows.
func weights(y []float64, wrong bool) []float64 {
	mean := 0.0
	for _, v := range y {
		mean += v / float64(len(y))
	}
	if !wrong {
		mean = 0.1
	}
	w := make([]float64, len(y))
	for i, v := range y {
		w[i] = v - mean
	}
	return w
}

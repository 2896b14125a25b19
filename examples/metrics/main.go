// Command metrics evaluates a model on several ranks. Rank 0 scatters a dataset, and every rank computes predictions and its part of the
// loss. The loss is reduced to rank 0, and the predictions are gathered there. Rank 0 compares the results with its own for all rows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("metrics: ")
	ranks := flag.Uint("ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	rows := flag.Uint("rows", 50, "rows of the dataset; they need not divide by the ranks")
	device := dist.DeviceFlag()
	flag.Parse()
	if *ranks < 1 || flag.NArg() > 0 {
		log.Printf("-ranks must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := run(dist.Config{Ranks: int(*ranks), Device: *device, Log: os.Stdout}, int(*rows)); err != nil {
		log.Fatal(err)
	}
}

// A row of the dataset is three features, the label, and 1. In rows of padding, the last number is 0.
const (
	label   = 3
	counts  = 4
	columns = 5
)

// dataset returns rows that are close to a plane, padded to a multiple of the number of ranks: Scatter sends equal parts.
func dataset(rows, ranks int) []float64 {
	filled := (rows + ranks - 1) / ranks * ranks
	x := make([]float64, filled*columns)
	for i := range rows {
		row, t := x[i*columns:], float64(i)
		row[0], row[1], row[2] = math.Sin(t), math.Cos(2*t), math.Sin(3*t)
		row[label] = predict(row) + 0.1*math.Sin(7*t)
		row[counts] = 1
	}
	return x
}

// predict is the model.
func predict(row []float64) float64 { return 0.5*row[0] - 2*row[1] + row[2] + 0.25 }

// evaluate returns the predictions, the sum of squared errors, and the number of rows without padding.
func evaluate(x []float64) (predictions, loss []float64) {
	loss = []float64{0, 0}
	for ; len(x) > 0; x = x[columns:] {
		p := predict(x)
		predictions = append(predictions, p)
		loss[0] += x[counts] * (p - x[label]) * (p - x[label])
		loss[1] += x[counts]
	}
	return predictions, loss
}

func run(cfg dist.Config, rows int) error {
	if rows == 0 {
		return errors.New("-rows 0: no rows have no mean loss")
	}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		g, n := r.World, r.World.Size()
		each := (rows + n - 1) / n
		var all, gathered tensor.Tensor // only on rank 0; the others pass the zero Tensor
		var whole []float64
		if g.Rank() == 0 {
			whole = dataset(rows, n)
			all, gathered = tensor.FromSlice(whole, n*each, columns), tensor.FromSlice(make([]float64, n*each), n*each)
		}
		part := make([]float64, each*columns)
		if err := g.Scatter(tensor.FromSlice(part, each, columns), all, 0).Wait(); err != nil {
			return err
		}
		predictions, loss := evaluate(part)
		// Every rank calls Reduce and Gather, not only the root. Both are running before the first Wait.
		reduced := g.Reduce(tensor.FromSlice(loss, 2), dist.Sum, 0)
		got := g.Gather(gathered, tensor.FromSlice(predictions, each), 0)
		if err := errors.Join(reduced.Wait(), got.Wait()); err != nil || g.Rank() != 0 {
			return err
		}
		r.Logf("%v rows on %d ranks, %d each", loss[1], n, each)
		r.Logf("mean squared error %.6f", loss[0]/loss[1])
		r.Logf("predictions of the last rows %.3f", tensor.Data[float64](gathered)[rows-min(rows, 3):rows])
		return check(whole, loss, tensor.Data[float64](gathered))
	})
}

// check compares with one rank that evaluates everything: every prediction, and the loss up to rounding.
func check(whole, loss, got []float64) error {
	predictions, want := evaluate(whole)
	if loss[1] != want[1] || math.Abs(loss[0]-want[0]) > 1e-12*want[0] {
		return fmt.Errorf("loss %v over %v rows, on one rank %v over %v", loss[0], loss[1], want[0], want[1])
	}
	for i, p := range predictions {
		if got[i] != p {
			return fmt.Errorf("prediction %d is %v, on one rank %v", i, got[i], p)
		}
	}
	return nil
}

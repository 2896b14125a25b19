package ddp_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// A training loop is that of one rank, but for Attach and the loader's Sharder.
func Example() {
	set, err := data.Synthetic(640, 1, tensor.Float64)
	if err != nil {
		fmt.Println(err)
		return
	}
	train := func(ctx context.Context, r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(784, 16), nn.Tanh, nn.NewLinear(16, 10)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64})
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-3})
		tape := tensor.NewTape(r.Device)
		batches := data.NewLoader(set, data.Config{Batch: 63, Shuffle: true, Sharder: r.World})
		loss := []float64{0}
		for epoch := range 2 {
			for _, b := range batches.Epoch(ctx, epoch) {
				l := nn.CrossEntropy(model.Forward(tape.Input(b.X)), b.Y) // this rank's part of the mean
				loss[0] = l.Item()
				tape.Backward(l)
				if err := opt.Step(); err != nil {
					return err
				}
				tape.Reset()
			}
		}
		if err := r.World.SumFloats(loss); err != nil {
			return err
		}
		r.Logf("ranks %d: loss %.6f", r.World.Size(), loss[0])
		return batches.Err()
	}
	for _, n := range []int{1, 3} {
		if err := dist.Run(context.Background(), dist.Config{Ranks: n, Threads: 1}, train); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// ranks 1: loss 1.288640
	// ranks 3: loss 1.288640
}

// trained prints the norm of what a model learns in one step of 7 rows, on one rank and on three.
func trained(loss func(tape *tensor.Tape, g *dist.Group, model *nn.Linear, x nn.T, of tensor.Rows) nn.T) {
	train := func(_ context.Context, r *dist.Rank) error {
		model := nn.NewLinear(4, 4)
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64})
		if err != nil {
			return err
		}
		lo, hi := 7*r.World.Rank()/r.World.Size(), 7*(r.World.Rank()+1)/r.World.Size()
		x := tensor.New(r.Device, tensor.Float64, hi-lo, 4)
		for i := range x.Len() {
			tensor.Data[float64](x)[i] = float64((4*lo+i)*5%7) - 3
		}
		tape, of := tensor.NewTape(r.Device), r.World.Rows(lo, 7)
		tape.Backward(loss(tape, r.World, model, tape.Input(x.WithRows(of)), of))
		norm := 0.0
		for _, p := range params {
			for _, v := range tensor.Floats(p.Grad) {
				norm += v * v
			}
		}
		r.Logf("ranks %d: %.6f", r.World.Size(), norm)
		return nil
	}
	for _, n := range []int{1, 3} {
		if err := dist.Run(context.Background(), dist.Config{Ranks: n, Threads: 1}, train); err != nil {
			fmt.Println(err)
		}
	}
}

// The hardest rows of the batch are among the hardest of each rank: these are taken by their indices, gathered, and chosen from again.
func Example_hardestRows() {
	trained(func(tape *tensor.Tape, g *dist.Group, model *nn.Linear, x nn.T, _ tensor.Rows) nn.T {
		losses := model.Forward(x).Square().Sum(1)
		_, at := ops.TopK(losses.Detach(), min(2, losses.Len()))
		all := tape.Apply(&autograd.Gather{Group: g}, ops.Gather(losses, 0, at))
		hardest, _ := ops.TopK(all, 2)
		return hardest.Mean()
	})
	// Output:
	// ranks 1: 702.842190
	// ranks 3: 702.842190
}

// Nodes of graphs send each other messages. Here each row of the batch is a graph of two nodes, of which the first sends to the second;
// a rank has its graphs whole, so RowsLike says that what ScatterAdd added up are its nodes.
func Example_messages() {
	trained(func(tape *tensor.Tape, _ *dist.Group, model *nn.Linear, x nn.T, of tensor.Rows) nn.T {
		n := x.Dim(0)
		from, to := make([]int64, n), make([]int64, n)
		for i := range n {
			from[i], to[i] = int64(2*i), int64(2*i+1)
		}
		edges := func(ends []int64) nn.T { return tape.Input(tensor.FromSlice(ends, n).WithRows(of)) }
		nodes := model.Forward(x).Reshape(-1, 2)
		sent := tensor.RowsLike(ops.Embedding(nodes, edges(from)), x)
		added := ops.ScatterAdd(tape.Zeros(tensor.Float64, 2*n, 2), 0, edges(to).Reshape(-1, 1).Broadcast(n, 2), sent)
		return nn.GlobalMean(nodes.Add(tensor.RowsLike(added, nodes)).Tanh())
	})
	// Output:
	// ranks 1: 0.457985
	// ranks 3: 0.457985
}

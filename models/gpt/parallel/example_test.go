package parallel_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// Four ranks train a Llama: two divide each layer, and two share the parameters that each has left.
func ExampleAttach() {
	layout := parallel.Layout{FSDP: 2, TP: 2}
	err := dist.Run(context.Background(), dist.Config{Ranks: 4, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		m, err := gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: 11, Positions: 4, Width: 8, Layers: 2, Heads: 2, KVHeads: 2, Hidden: 16})
		if err != nil {
			return err
		}
		mesh, err := r.Mesh(layout.Mesh(m.Config.KVHeads))
		if err != nil {
			return err
		}
		a, err := parallel.Attach(mesh, m, parallel.Config{Sequence: true, FSDP: &fsdp.Config{DType: tensor.Float32, Seed: 1}})
		if err != nil {
			return err
		}
		opt, tape := optim.NewAdamW(a.Params, optim.AdamWConfig{LR: 0.05, Norm: r.World}), tensor.NewTape(r.Device)
		row := int64(a.Data.Rank()) // of a batch of two
		ids := tensor.FromSlice([]int64{row, row + 1, row + 2, row + 3}, 1, 4).WithRows(a.Data.Rows(int(row), 2))
		next := tensor.FromSlice([]int64{row + 1, row + 2, row + 3, row + 4}, 1, 4).WithRows(a.Data.Rows(int(row), 2))
		var losses [2]float64
		for step := range 30 {
			loss := a.Loss(m.Forward(tape.Input(ids)), next)
			losses[min(step, 1)] = loss.Item()
			tape.Backward(loss)
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		if r.World.Rank() == 0 {
			fmt.Println(losses[1] < losses[0]/10)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// 32 ranks train a model with experts on five axes at once. There are two ranks along each: with other stages, that share parameters,
// experts or sequences, and that divide layers.
func ExamplePipeline() {
	layout := parallel.Layout{PP: 2, FSDP: 2, EP: 2, Ring: 2, TP: 2}
	err := dist.Run(context.Background(), dist.Config{Ranks: 32, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m, err := gpt.New(gpt.Config{Kind: gpt.Mixtral, Vocab: 11, Positions: 8, Width: 8, Layers: 2, Heads: 2, KVHeads: 2, Hidden: 8,
			Experts: 4, Top: 2})
		if err != nil {
			return err
		}
		mesh, err := r.Mesh(layout.Mesh(m.Config.KVHeads))
		if err != nil {
			return err
		}
		p, err := parallel.NewPipeline(mesh.Group("pp"), pp.OneF1B(2, 2), m) // of m, the layers of this rank's stages are left
		if err != nil {
			return err
		}
		a, err := parallel.Attach(mesh, m, parallel.Config{Sequence: true,
			FSDP: &fsdp.Config{DType: tensor.Float32, Seed: 1, OncePerStep: true}})
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(a.Params, optim.AdamWConfig{LR: 0.1, Clip: 1, Norm: r.World})
		eval := tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Eval())
		if err := p.Start(a, opt, tensor.NewTape(r.Device, tensor.Seed(1)), eval); err != nil {
			return err
		}
		tokens := make([]int, 8*8+1)
		for i := range tokens {
			tokens[i] = i % 11
		}
		set, err := data.NewText(tokens, 8, 8)
		if err != nil {
			return err
		}
		batches := data.NewLoader(set, data.Config{Batch: 8, Sharder: a.Data})
		var losses [2]float64
		for step := range 7 {
			for _, b := range batches.Epoch(ctx, step) {
				loss, err := p.Train(b)
				if err != nil {
					return err
				}
				sum := []float64{loss}
				if err := r.World.SumFloats(sum); err != nil {
					return err
				}
				losses[min(step, 1)] = sum[0]
				if err := opt.Step(); err != nil {
					return err
				}
			}
		}
		if r.World.Rank() == 0 {
			fmt.Println(losses[1] < losses[0]/5)
		}
		return batches.Err()
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

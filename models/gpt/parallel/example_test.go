package parallel_test

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/optim"
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

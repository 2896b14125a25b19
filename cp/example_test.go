package cp_test

import (
	"context"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Two ranks have four of eight positions each, and compute the attention that one rank computes over all.
func ExampleRing() {
	err := dist.Run(context.Background(), dist.Config{Ranks: 2}, func(_ context.Context, r *dist.Rank) error {
		f := &cp.Ring{Group: r.World, HeadDim: 4}
		x := tensor.New(r.Device, tensor.Float64, 1, 8, 4)
		for i := range 32 {
			tensor.Data[float64](x)[i] = math.Sin(float64(i))
		}
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		whole := tensor.Floats(ops.CrossAttention(tape.Input(x), x, x, 4, ops.AttentionOptions{Causal: true}))

		mine := tape.Input(f.Part(x.WithRows(r.World.Rows(0, 1))))
		at := tape.Rows().Seq
		y := tensor.Floats(tape.Apply(f, mine, mine, mine))
		worst, places := 0.0, []int{}
		for i := range 4 {
			p := at.First + i
			if i >= at.Break {
				p += at.Skip
			}
			places = append(places, p)
			for k := range 4 {
				worst = max(worst, math.Abs(y[i*4+k]-whole[p*4+k]))
			}
		}
		lines, err := dist.AllGatherObject(r.World, fmt.Sprintf("positions %v, equal: %v", places, worst < 1e-14))
		if r.World.Rank() == 0 {
			for rank, line := range lines {
				fmt.Printf("rank %d: %s\n", rank, line)
			}
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// rank 0: positions [0 1 6 7], equal: true
	// rank 1: positions [2 3 4 5], equal: true
	// <nil>
}

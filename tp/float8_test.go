package tp_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// A layer that is cut is refused 8-bit floats, whichever comes first: its rank has a part of the rows that are scaled.
func TestFloat8IsRefused(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, target := range []string{"1", "2"} { // columns, rows
			const want = " is cut by tensor parallelism, or has Pre or Post: 8-bit floats would be scaled by a part of its rows"
			failed := make([]error, 2)
			require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
				up, down := nn.NewLinear(16, 32), nn.NewLinear(32, 16)
				m := nn.Sequential{nn.NewLayerNorm(16), up, down}
				failed[r.World.Rank()] = tensor.Try(func() {
					if first {
						nn.Float8(m, tensor.PerRow, target)
					}
					err := tp.Parallelize(m, tp.Config{Group: r.World}, func(p *tp.Parallel) {
						m[0] = p.Columns(m[0], up)
						p.Row(down)
					})
					if err != nil {
						panic(err)
					}
					if !first {
						nn.Float8(m, tensor.PerRow, target)
					}
					nn.Init(m, r.Device, tensor.Float32, 1)
					tape := tensor.NewTape(r.Device)
					defer tape.Close()
					m.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, 16, 16)))
				})
				return nil
			}))
			for _, err := range failed {
				op := map[bool]string{false: "nn.Float8: ", true: "nn.Forward: "}[first]
				require.ErrorContains(t, err, op+target+want)
			}
		}
	}
}

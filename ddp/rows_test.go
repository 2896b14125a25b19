package ddp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A total that is not what the ranks have together is an error of the first step, that names both; microbatches add up.
func TestWrongTotal(t *testing.T) {
	attach := map[string]func(g *dist.Group, m any) error{
		"ddp": func(g *dist.Group, m any) error {
			_, err := ddp.Attach(g, m, ddp.Config{})
			return err
		},
		"fsdp": func(g *dist.Group, m any) error {
			s := fsdp.New(fsdp.Config{Shard: g})
			s.Unit(m)
			_, err := s.Attach(m)
			return err
		},
	}
	for name, attach := range attach {
		for _, c := range []struct {
			want  string
			micro int
			total func(rank int) int
		}{
			{"", 1, func(int) int { return 9 }},
			{"", 3, func(int) int { return 27 }},
			{"the ranks had 9 rows in the first step, and their inputs say that the global batch has 12", 1, func(int) int { return 12 }},
			{"the ranks had 18 rows in the first step, and their inputs say that the global batch has 9", 2, func(int) int { return 9 }},
			{"rank 0 says that the global batch has 9 rows, rank 2 that it has 12", 1, func(rank int) int { return 9 + rank/2*3 }},
		} {
			err := dist.Run(context.Background(), dist.Config{Ranks: 3, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
				model := nn.NewLinear(4, 2)
				if err := attach(r.World, model); err != nil {
					return err
				}
				tape, rank := tensor.NewTape(r.Device), r.World.Rank()
				for m := range c.micro {
					first := rank * (rank + 1) / 2 // 1, 2 and 6 rows
					n := rank + 1
					if rank == 2 {
						n = 6
					}
					x := tensor.New(r.Device, tensor.Float32, n, 4)
					x = x.WithRows(r.World.Rows(min(first, c.total(rank)-n), c.total(rank)))
					l := tensor.GlobalMean(model.Forward(tape.Input(x)).Square())
					if m < c.micro-1 {
						tape.Backward(l, tensor.More())
					} else {
						tape.Backward(l)
					}
					tape.Reset()
				}
				return nil
			})
			if c.want == "" {
				require.NoError(t, err, name)
			} else {
				require.ErrorContains(t, err, c.want, name)
			}
		}
	}
}

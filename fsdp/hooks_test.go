package fsdp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

func TestAfterAnotherHook(t *testing.T) {
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 2}, func(_ context.Context, r *dist.Rank) error {
		model := nn.NewLinear(2, 1)
		model.B = nil
		model.W.Hook(&disttest.Doubling{P: model.W})
		s := fsdp.New(fsdp.Config{Shard: r.World})
		s.Unit(model)
		if _, err := s.Attach(model); err != nil {
			return err
		}
		tape := tensor.NewTape(r.Device)
		tape.Backward(model.Forward(tape.Input(tensor.FromSlice([]float32{3, 4}, 1, 2))))
		if got, want := model.W.Grad.Item(), []float64{2 * (3 + 3), 2 * (4 + 4)}[r.World.Rank()]; got != want {
			return fmt.Errorf("gradient %v instead of %v", got, want)
		}
		return nil
	}))
}

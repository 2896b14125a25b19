package ddp_test

import (
	"context"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// What a rank chose is looked at in a time that grows with it, not with its square: this would take minutes.
func TestLongManyChosenRows(t *testing.T) {
	reliability.SkipUnlessLong(t)
	const n = 4096
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		m := &struct{ A *nn.Linear }{nn.NewLinear(8, 32)}
		if _, err := ddp.Attach(r.World, m, ddp.Config{Seed: 1}); err != nil {
			return err
		}
		tape, x := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Float32, n, 8)
		for i := range x.Len() {
			tensor.Data[float32](x)[i] = float32(math.Sin(float64(i)))
		}
		h := m.A.Forward(tape.Input(x.WithRows(r.World.Rows(n*r.World.Rank(), 2*n)))).Tanh()
		_, at := ops.Sort(h.Detach(), 0, true)
		tape.Backward(ops.Gather(h, 0, at.Slice(0, 0, n/2)).Sum().Scale(1. / n))
		return nil
	}))
}

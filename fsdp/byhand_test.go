package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// byHand trains by an optimizer that consumes gradients, and returns rank 0's losses. It calls Param.Changed or does not, and evaluates
// before its step or does not.
func byHand(t *testing.T, stage int, evaluates, tells bool) (losses []float64) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		m := nn.Sequential{nn.NewLinear(3, 4), nn.NewLinear(4, 2)}
		cfg, params := fsdp.Config{Shard: r.World, Stage: max(stage, 1), DType: tensor.Float64, Seed: 3}, nn.Params(nil)
		if stage == 0 {
			params = disttest.Must(fsdp.Naive(m, cfg))
		} else {
			s := fsdp.New(cfg)
			s.Unit(m[0])
			s.Unit(m[1])
			params = disttest.Must(s.Attach(m))
		}
		tape := tensor.NewTape(r.Device)
		defer tape.Close()
		forward := func() tensor.Tensor {
			x := tensor.New(r.Device, tensor.Float64, 2, 3)
			tensor.UniformInit(-1, 1).Fill(x, 5, 0)
			return tensor.GlobalMean(m.Forward(tape.Input(x.WithRows(r.World.Rows(2*r.World.Rank(), 4)))).Square())
		}
		for range 5 {
			loss := forward()
			if r.World.Rank() == 0 {
				losses = append(losses, loss.Item())
			}
			tape.Backward(loss)
			tape.Reset()
			if evaluates {
				forward()
				tape.Reset()
			}
			for _, p := range params {
				if !p.HasGrad() {
					continue
				}
				for i, g := range tensor.Data[float64](p.Grad.ToLocal()) {
					tensor.Data[float64](p.Local)[i] -= 0.1 * g
				}
				if p.Consume(); tells {
					p.Changed()
				}
			}
		}
		return nil
	}))
	return losses
}

// Values that an optimizer of the program's own has changed are gathered, also if it consumes gradients and does not say Changed.
func TestOptimizersByHand(t *testing.T) {
	for stage := range 4 {
		for _, evaluates := range []bool{false, true} {
			want := byHand(t, stage, evaluates, true)
			assert.Less(t, want[4], 0.9*want[0])
			assert.Equal(t, want, byHand(t, stage, evaluates, false), fmt.Sprint("stage ", stage, ", evaluates ", evaluates))
		}
	}
}

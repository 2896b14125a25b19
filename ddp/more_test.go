package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A step on gradients that nobody summed yet, because the last Backward said More, is refused: replicas would drift. A parameter
// that only an earlier microbatch used is summed like the others.
func TestStepBeforeTheLastMicrobatchIsRefused(t *testing.T) {
	for name, attach := range map[string]attacher{"Attach": ddp.Attach, "Naive": ddp.Naive} {
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			model := nn.Sequential{nn.NewLinear(2, 3), nn.NewLinear(3, 1)}
			params := disttest.Must(attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1}))
			opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
			x := tensor.FromSlice([]float64{1, float64(r.World.Rank())}, 1, 2)
			first := func() tensor.Tensor { return model[0].Forward(tape.Input(x.WithRows(r.World.Rows(r.World.Rank(), 2)))) }
			tape.Backward(model[1].Forward(first()).Sum(), tensor.More())
			err := tensor.Try(func() { _ = opt.Step() })
			assert.ErrorContains(t, err, "not summed over the ranks yet", name)
			assert.ErrorContains(t, err, "tensor.More", name)
			tape.Reset()
			tape.Backward(first().Sum())
			return opt.Step()
		}), name)
	}
}

// What was frozen at Attach is in no bucket: its gradient, once it is unfrozen, would stay this rank's own.
func TestUnfrozenAfterAttachIsRefused(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		model := nn.Sequential{nn.NewLinear(2, 3), nn.NewLinear(3, 1)}
		late := model[0].(*nn.Linear).W
		late.Freeze()
		if _, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 1}); err != nil {
			return err
		}
		late.Unfreeze()
		tape := tensor.NewTape(r.Device)
		x := tensor.FromSlice([]float64{1, float64(r.World.Rank())}, 1, 2).WithRows(r.World.Rows(r.World.Rank(), 2))
		err := tensor.Try(func() { tape.Backward(model.Forward(tape.Input(x)).Sum()) })
		assert.ErrorContains(t, err, "0.weight was frozen at Attach, and unfrozen since")
		return nil
	}))
}

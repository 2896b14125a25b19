package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A gain that ranks of tp share, whose gradient goes through a sum over them, trains under ddp as on one rank, in microbatches
// and in a Checkpoint, too. TestCutByHeads has it under fsdp.
func TestThroughUnderDDP(t *testing.T) {
	for _, model := range []func() cutModel{newMixer, newMixerAgain} {
		j := cutJob{model: model}
		want := j.run(t)
		j.with = func(m *dist.Mesh, n cutModel, c fsdp.Config) (nn.Params, error) {
			return ddp.Attach(n.rows(m), n, ddp.Config{DType: c.DType, Seed: c.Seed, BucketBytes: 300})
		}
		for _, j.Mesh = range []string{"dp=1,fsdp=2,tp=2", "dp=1,fsdp=1,tp=4", "dp=1,fsdp=3,tp=2"} {
			disttest.RequireEqual(t, want, j.run(t), 1e-10)
		}
	}
}

// What Through does once, it does once: a gain that is used in two Checkpoints and outside of them, and runs again in
// Backward, gets the sum over tp of each of its gradients, whoever owns it.
func TestThroughInCheckpoints(t *testing.T) {
	for _, how := range []string{"nobody", "ddp", "fsdp"} {
		require.NoError(t, disttest.OnRanks(4, func(r *dist.Rank) error {
			mesh := disttest.Must(r.Mesh("dp=2,tp=2"))
			dp, tp := mesh.Group("dp"), mesh.Group("tp")
			m := &struct{ Gain, Wide *tensor.Param }{tensor.NewParam(tensor.Constant(2), 1), tensor.NewParam(tensor.Constant(1), 3)}
			m.Wide.Place(tp.Axis(), layout.Division{}) // two, and one
			m.Gain.Through(&autograd.Copy{Group: tp})
			rows, ranks := tensor.Rows{}, 1
			switch how {
			case "nobody":
				nn.Init(m, r.Device, tensor.Float64, 1)
			case "ddp":
				disttest.Must(ddp.Attach(dp, m, ddp.Config{DType: tensor.Float64}))
			case "fsdp":
				s := fsdp.New(fsdp.Config{Shard: dp, DType: tensor.Float64})
				s.Unit(m)
				disttest.Must(s.Attach(m))
			}
			if how != "nobody" {
				rows, ranks = dp.Rows(dp.Rank(), 2), 2
			}
			tape := tensor.NewTape(r.Device)
			for micro := range 2 {
				x := tape.Input(tensor.FromSlice([]float64{1}, 1, 1).WithRows(rows))
				scale := func(in ...nn.T) nn.T { return in[0].Mul(tape.Use(m.Gain)) }
				y := tape.Checkpoint(scale, tape.Checkpoint(scale, x.Mul(tape.Use(m.Wide)))).Mul(tape.Use(m.Gain)).Sum() // gain³ a feature
				if micro == 0 {
					tape.Backward(y, tensor.More())
				} else {
					tape.Backward(y)
				}
				tape.Reset()
			}
			if m.Gain.Grad.Len() == 1 { // with fsdp, of one rank
				require.Equal(t, float64(2*ranks*3*3*2*2), m.Gain.Grad.Item(), "%s: microbatches, rows, features, 3·gain²", how)
			}
			return nil
		}), how)
	}
}

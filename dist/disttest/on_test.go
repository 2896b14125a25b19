package disttest_test

import (
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A training is the same wherever its ranks are.
func TestOn(t *testing.T) {
	c := disttest.Training{Attach: func(r *dist.Rank, _ *dist.Mesh) (disttest.Attached, error) {
		model := nn.Sequential{nn.NewLinear(7, 5), nn.NewDropout(0.2)}
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, Seed: 3})
		return disttest.Attached{Params: params, Loss: func(b disttest.Batch) tensor.Tensor {
			x, y := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: 7})
			return nn.CrossEntropy(model.Forward(x), y)
		}}, err
	}}
	want := c.Run(t)
	c.Ranks = 3
	for _, name := range []string{"goroutines", "shm", "tcp", "remote", "one GPU", "GPUs", "NCCL"} {
		t.Run(name, func(t *testing.T) {
			c.On = disttest.LauncherFor(t, name, c.Ranks)
			disttest.RequireEqual(t, want, c.Run(t), 1e-10)
		})
	}
}

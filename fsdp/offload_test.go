package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// With the optimizer on another device the same bits come out, and the rank's own device has nothing of the optimizer.
func TestOffload(t *testing.T) {
	half := tensor.BFloat16
	for _, c := range []job{{cfg: fsdp.Config{Stage: 1}}, {cfg: fsdp.Config{Stage: 2}}, {cfg: fsdp.Config{Stage: 3, DType: tensor.Float64}},
		{cfg: fsdp.Config{Stage: 3}, training: training{Mesh: "dp=2,fsdp=2"}},
		{cfg: fsdp.Config{Stage: 1, Compute: half}}, {cfg: fsdp.Config{Stage: 3, Compute: half, Reduce: half}},
		{cfg: fsdp.Config{Stage: 2, HoldGrads: true}}} {
		if c.Mesh == "" {
			c.Ranks = 3
		}
		want := c.run(t)
		c.offload = true
		c.end = func(p place) error {
			mine, host := p.Rank.Device.Memory(), p.Params[0].Local.Device().Memory()
			for _, k := range []tensor.MemoryKind{tensor.Parameters, tensor.Gradients, tensor.OptimizerState} {
				if k == tensor.OptimizerState || k == tensor.Parameters && c.cfg.Stage == 3 {
					require.Zero(t, mine.Of(k), "%+v: %v", c.cfg, k)
				}
				require.Positive(t, host.Of(k).Live, "%+v: %v", c.cfg, k)
			}
			return nil
		}
		disttest.RequireEqual(t, want, c.run(t), 0)
	}
}

// Values that a model has are taken over.
func TestOffloadTakesValues(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		n := newToy()
		params := nn.Init(n, r.Device, tensor.BFloat16, 5)
		want := make([][]float64, len(params))
		for i, p := range params {
			want[i] = tensor.Floats(p.Value)
		}
		s := fsdp.New(fsdp.Config{Shard: r.World, Offload: tensor.NewCPU(1)})
		n.units(s)
		params = disttest.Must(s.Attach(n))
		for i, p := range params {
			x := disttest.Must(s.Full(p))
			require.Equal(t, want[i], tensor.Floats(x), p.Name())
		}
		return nil
	}))
}

// device is one whose memory Go code may not touch.
type device struct{ *tensor.CPU }

func (device) Host() bool     { return false }
func (device) String() string { return "a device" }

func TestOffloadToHostMemoryOnly(t *testing.T) {
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		s := fsdp.New(fsdp.Config{Shard: r.World, Offload: device{tensor.NewCPU(1)}})
		_, err := s.Attach(newChain())
		require.ErrorContains(t, err, "fsdp: Config.Offload is a device, which is not in host memory")
		return nil
	}))
}

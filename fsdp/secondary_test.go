package fsdp_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// A second copy within hosts changes where values are gathered, and not one bit of a training.
func TestHostCopyChangesNoBit(t *testing.T) {
	evaluate := func(p place) error {
		eval := tensor.NewTape(p.Rank.Device, tensor.NoGrad())
		x, _ := batch(p.Rank, tensor.Float64, 0, 4)
		for range p.Step % 3 {
			p.model.Forward(eval.Input(x))
			eval.Reset()
		}
		return nil
	}
	double := func(p place) error {
		if p.Step%4 == 2 {
			edit(p.Params, func(_ *tensor.Param, _ int, v float64) float64 { return 0.9 * v })
		}
		return nil
	}
	cases := map[string]job{
		"2 x 2":     {},
		"1 x 3":     {training: training{Mesh: "dp=1,host=1,gpu=3"}},
		"3 x 1":     {training: training{Mesh: "dp=1,host=3,gpu=1"}},
		"2 x 3":     {training: training{Mesh: "dp=1,host=2,gpu=3", Micro: 1}},
		"2 copies":  {training: training{Mesh: "dp=2,host=2,gpu=2", Micro: 1}},
		"4 micro":   {training: training{Micro: 4, Batch: 44}},
		"chain":     {model: newChain},
		"frozen":    {model: newAdapter},
		"evaluated": {before: evaluate, cfg: fsdp.Config{DType: tensor.Float64}},
		"edited":    {before: double, cfg: fsdp.Config{DType: tensor.Float64}},
		"bfloat16":  {cfg: fsdp.Config{Compute: tensor.BFloat16}},
		"offload":   {offload: true},
		"int8":      {cfg: fsdp.Config{Weights: fsdp.Int8}},
	}
	for name, j := range cases {
		if !inShort(t, name, "2 x 3", "2 copies", "frozen", "evaluated", "offload") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if j.Mesh == "" {
				j.Mesh = "dp=1,host=2,gpu=2"
			}
			want := j.run(t)
			j.near = true
			require.Equal(t, want, j.run(t))
			if j.cfg.DType == tensor.Float64 {
				one := onOne(j)
				one.Mesh = ""
				disttest.RequireEqual(t, one.run(t), want, 1e-10)
			}
		})
	}
}

func TestLongHostCopyChangesNoBit(t *testing.T) { reliability.AsLong(t, TestHostCopyChangesNoBit) }

// Each unit crosses hosts once a step, whatever its microbatches: all other gathers are within a host. In int8, each rank sends a byte an
// element, and a scale.
func TestHostTraffic(t *testing.T) {
	hostTraffic(t, 0, 4*(7*7+7))
	hostTraffic(t, fsdp.Int8, 7*7+7+4*4)
}

// hostTraffic requires that parts of a unit take so many bytes together.
func hostTraffic(t *testing.T, weights fsdp.Format, bytes uint64) {
	const n, steps, micro = 5, 4, 3
	type traffic struct{ far, farWire, near, nearWire uint64 }
	look := func(s *fsdp.Sharding) (c traffic) {
		g := s.Groups()
		far, near := g[0].Stats(), g[len(g)-1].Stats()
		return traffic{far.Calls["allgatherv"], far.Wire["allgatherv"], near.Calls["allgatherv"], near.Wire["allgatherv"]}
	}
	var mu sync.Mutex
	var before [4]traffic
	var sum traffic
	j := job{training: training{Mesh: "dp=1,host=2,gpu=2", Micro: micro, Batch: 33, Steps: 1 + steps}, model: newChain, near: true}
	j.cfg.Weights = weights
	j.before = func(p place) error {
		if p.Step == 1 {
			before[p.Rank.World.Rank()] = look(p.sharding)
		}
		return nil
	}
	j.end = func(p place) error {
		mu.Lock()
		defer mu.Unlock()
		c, b := look(p.sharding), before[p.Rank.World.Rank()]
		sum.far, sum.near = c.far-b.far, c.near-b.near
		sum.farWire, sum.nearWire = sum.farWire+c.farWire-b.farWire, sum.nearWire+c.nearWire-b.nearWire
		return nil
	}
	j.run(t)
	all, far := uint64(steps*micro*(n+n-1)), uint64(steps*n)
	require.Equal(t, traffic{far, far * bytes * 3, all - far, (all - far) * 4 * (7*7 + 7) * 2}, sum)
}

// The copy takes 1/h of the values on each of h ranks of a host, without the units that stay.
func TestHostCopyMemory(t *testing.T) {
	gathered := func(near bool) (live [4]int) {
		j := job{training: training{Mesh: "dp=1,host=2,gpu=2", Steps: 2}, near: near}
		j.end = func(p place) error {
			live[p.Rank.World.Rank()] = p.Rank.Device.Memory().Of(memory.Gathered).Live
			return nil
		}
		j.run(t)
		return live
	}
	without, with := gathered(false), gathered(true)
	for rank := range 4 {
		want := 4*((blockLen+1-rank%2)/2) + (lastLen+1-rank%2)/2
		require.Equal(t, 4*want, with[rank]-without[rank], "rank %d", rank)
	}
}

func TestHostCopySteadySteps(t *testing.T) {
	disttest.SteadySteps(t, dist.Run, 12, 6, func(r *dist.Rank) (func() error, error) {
		return stepper(r, fsdp.Config{Host: r.World}, newToy())
	})
}

func TestHostRefused(t *testing.T) {
	for want, c := range map[string]struct {
		cfg  fsdp.Config
		pick func(m *dist.Mesh, rank int) *dist.Group
	}{
		"fsdp: Config.Host is for units that are gathered for each use: leave it out with Stage 2":     {cfg: fsdp.Config{Stage: 2}},
		"fsdp: Config.Host is for units that are gathered for each use: leave it out with OncePerStep": {cfg: fsdp.Config{OncePerStep: true}},
		", which is not in Config.Shard: take the ranks of Shard on one host": {pick: func(m *dist.Mesh, _ int) *dist.Group {
			return m.Group("dp")
		}},
		"fsdp: ranks differ: Config.Host of rank ": {pick: func(m *dist.Mesh, rank int) *dist.Group {
			if rank%2 == 1 {
				return m.Group("host")
			}
			return m.Group("gpu")
		}},
		"fsdp: ranks differ: rank 1 has OncePerStep=false Host=false": {pick: func(m *dist.Mesh, rank int) *dist.Group {
			if rank%2 == 1 {
				return nil
			}
			return m.Group("gpu")
		}},
	} {
		err := disttest.OnRanks(4, func(r *dist.Rank) error {
			m := disttest.Must(r.Mesh("dp=2,host=1,gpu=2"))
			cfg, n := c.cfg, newToy()
			cfg.Shard, cfg.Replicate, cfg.Host = m.Group("host", "gpu"), m.Group("dp"), m.Group("gpu")
			if c.pick != nil {
				cfg.Host = c.pick(m, r.World.Rank())
			}
			s := fsdp.New(cfg)
			n.units(s)
			_, err := s.Attach(n)
			return err
		})
		require.ErrorContains(t, err, want)
	}
}

func TestHostIsNotCaptured(t *testing.T) {
	disttest.OnEach(t, disttest.GPUs()[:1], 2, func(t *testing.T, launch disttest.Launcher) {
		err := launch(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
			step, err := stepper(r, fsdp.Config{Host: r.World}, newToy())
			graph := capture.New(r.Device, func(...tensor.Tensor) error { return step() })
			for range 3 {
				if err == nil {
					err = graph.Run()
				}
			}
			return errors.Join(err, graph.Close())
		})
		require.ErrorContains(t, err, "with Config.Host, steps cannot be captured (capture.New): leave Host out")
	})
}

// Ranks that use units in different orders end with an error, also where one gathers within its host and another one compares.
func TestHostOrderDiffers(t *testing.T) {
	for step := range 4 {
		j := job{training: training{Mesh: "dp=1,host=2,gpu=2", Steps: 5, Micro: 1}, near: true}
		j.before = func(p place) error {
			if b := p.model.(*toy).Blocks; p.Step == step && p.Rank.World.Rank() == 1 {
				b[1], b[2] = b[2], b[1]
			}
			return nil
		}
		refused(t, j, "unit")
	}
}

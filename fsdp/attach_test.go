package fsdp_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// attached attaches m on ranks and looks at it on each.
func attached(t *testing.T, ranks int, c fsdp.Config, m func() model,
	look func(r *dist.Rank, m model, s *fsdp.Sharding, params nn.Params)) {
	t.Helper()
	require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
		c := c
		c.Shard = r.World
		n, s := m(), fsdp.New(c)
		makeOwn(r, n, c)
		n.units(s)
		params, err := s.Attach(n)
		if err == nil {
			look(r, n, s, params)
		}
		return err
	}))
}

// Shards are what Param.Shard says, cover each parameter once, differ by one element of a unit at most, and hold the
// values of one rank.
func TestShards(t *testing.T) {
	whole := map[string][]float64{}
	for _, p := range nn.Init(newToy(), cpu.New(1), tensor.Float32, 7) {
		whole[p.Name()] = tensor.Floats(p.Value)
	}
	for stage := 1; stage <= 3; stage++ {
		for _, ranks := range []int{1, 2, 5, 7} {
			covered, sizes := make(chan map[string][]float64, ranks), make(chan int, ranks)
			attached(t, ranks, fsdp.Config{
				Stage: stage, Seed: 7,
			}, func() model { return newToy() }, func(_ *dist.Rank, _ model, _ *fsdp.Sharding, params nn.Params) {
				mine, total := map[string][]float64{}, 0
				for _, p := range params {
					lo, hi := p.Placement().Range()
					require.Equal(t, hi-lo, p.Local.Len())
					require.Equal(t, whole[p.Name()][lo:hi], tensor.Floats(p.Local))
					mine[p.Name()] = whole[p.Name()][lo:hi]
					total += hi - lo
				}
				covered <- mine
				sizes <- total
			})
			all, least, most := map[string]int{}, 1<<30, 0
			for range ranks {
				for name, v := range <-covered {
					all[name] += len(v)
				}
				n := <-sizes
				least, most = min(least, n), max(most, n)
			}
			for name, v := range whole {
				require.Equal(t, len(v), all[name], name)
			}
			require.LessOrEqual(t, most-least, 6, "one element of each unit")
		}
	}
}

func TestFullAndStateDict(t *testing.T) {
	whole := nn.Init(newFrozen(), cpu.New(1), tensor.Float32, 7)
	attached(t, 3, fsdp.Config{Seed: 7}, newFrozen, func(r *dist.Rank, _ model, s *fsdp.Sharding, params nn.Params) {
		dict, err := s.StateDict()
		require.NoError(t, err)
		require.Equal(t, r.World.Rank() == 0, dict != nil)
		for i, p := range params {
			x, err := s.Full(p)
			require.NoError(t, err)
			require.Equal(t, whole[i].Value.Shape(), x.Shape())
			require.Equal(t, tensor.Floats(whole[i].Value), tensor.Floats(x))
			if dict != nil {
				require.Equal(t, tensor.Floats(x), tensor.Floats(dict[p.Name()]))
			}
		}
		_, err = s.Full(tensor.NewParam(tensor.Constant(0), 3))
		require.ErrorContains(t, err, "was never made")
	})
}

// A model that has values keeps rank 0's.
func TestRankZerosValues(t *testing.T) {
	made := func(seed uint64) model {
		n := newToy()
		nn.Init(n, cpu.New(1), tensor.Float64, seed)
		return n
	}
	want := nn.ParamsOf(made(0))
	require.NoError(t, disttest.OnRanks(3, func(r *dist.Rank) error {
		n, s := made(uint64(r.World.Rank())), fsdp.New(fsdp.Config{Shard: r.World})
		n.units(s)
		params, err := s.Attach(n)
		for i, p := range params {
			x, err := s.Full(p)
			require.NoError(t, err)
			for k, v := range tensor.Floats(want[i].Value) {
				require.Equal(t, float64(float32(v)), tensor.Floats(x)[k])
			}
		}
		return err
	}))
}

// Nobody ever holds the whole model: four ranks of one process together allocate little more than it has.
func TestNoRankHoldsTheModel(t *testing.T) {
	const ranks, layers, wide = 4, 16, 512
	const whole = layers * (wide*wide + wide) * 4
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
		c, s := &chain{}, fsdp.New(fsdp.Config{Shard: r.World})
		for range layers {
			c.Layers = append(c.Layers, nn.NewLinear(wide, wide))
		}
		c.units(s)
		_, err := s.Attach(c)
		require.InDelta(t, whole/ranks, r.Device.Memory().Of(memory.Parameters).Peak, layers*4)
		return err
	}))
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc // parameters and gradients, a part on each rank
	require.Less(t, used, uint64(2.5*whole))
}

func TestAttachErrors(t *testing.T) {
	two := func() *struct{ A, B *nn.Linear } {
		return &struct{ A, B *nn.Linear }{nn.NewLinear(3, 2), nn.NewLinear(3, 2)}
	}
	for want, c := range map[string]struct {
		cfg  fsdp.Config
		prep func(rank int, s *fsdp.Sharding, a, b *nn.Linear)
	}{
		"fsdp: b.weight is in no unit\nfsdp: b.bias is in no unit": {prep: func(_ int, s *fsdp.Sharding, a, _ *nn.Linear) { s.Unit(a) }},
		"fsdp: a.weight is in units 0 and 1; a layer belongs in one": {prep: func(_ int, s *fsdp.Sharding, a, b *nn.Linear) {
			s.Unit(a, b)
			s.Keep(a.W)
		}},
		"fsdp: a.weight is in unit 0, and ignored": {prep: func(_ int, s *fsdp.Sharding, a, b *nn.Linear) {
			s.Unit(a, b)
			s.Ignore(a)
		}},
		"fsdp: unit 1 has no parameters": {prep: func(_ int, s *fsdp.Sharding, a, b *nn.Linear) {
			s.Unit(a, b)
			s.Unit(nn.ReLU)
		}},
		"in unit 1 is not in the model": {prep: func(_ int, s *fsdp.Sharding, a, b *nn.Linear) {
			s.Unit(a, b)
			s.Unit(nn.NewLinear(3, 1))
		}},
		"fsdp: ranks differ: rank 1 has unit 1 (b) keep=true float32 float32: " +
			"b.weight[2 3] b.bias[2] where rank 0 has unit 1 (b) keep=false": {prep: func(rank int, s *fsdp.Sharding, a, b *nn.Linear) {
			s.Unit(a)
			if rank == 1 {
				s.Keep(b)
			} else {
				s.Unit(b)
			}
		}},
		"fsdp: Config.Weights is Format(7), not int8": {cfg: fsdp.Config{Weights: 7}},
		"fsdp: Config.Stage is 4, not 1, 2 or 3":      {cfg: fsdp.Config{Stage: 4}},
		"fsdp: Config.DType is bfloat16":              {cfg: fsdp.Config{DType: tensor.BFloat16}},
		"Compute=int32 and Reduce=float32":            {cfg: fsdp.Config{Compute: tensor.Int32}},
		"type Reduce=bfloat16 with values of float64": {cfg: fsdp.Config{DType: tensor.Float64, Reduce: tensor.BFloat16}},
	} {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			m, cfg := two(), c.cfg
			cfg.Shard = r.World
			s := fsdp.New(cfg)
			if c.prep != nil {
				c.prep(r.World.Rank(), s, m.A, m.B)
			}
			_, err := s.Attach(m)
			return err
		})
		require.ErrorContains(t, err, want)
	}
	_, err := fsdp.New(fsdp.Config{}).Attach(two())
	require.ErrorContains(t, err, "fsdp: Config.Shard is not set")
	attached(t, 1, fsdp.Config{}, newChain, func(r *dist.Rank, m model, s *fsdp.Sharding, _ nn.Params) {
		_, err := s.Attach(m)
		require.ErrorContains(t, err, "Attach was called before")
		again := fsdp.New(fsdp.Config{Shard: r.World})
		m.units(again)
		_, err = again.Attach(m)
		require.ErrorContains(t, err, "layers.0.weight is attached already")
	})
}

// What the device counts is the formula: bytes per parameter, plus the kept unit and two others at a time.
func TestMemoryIsTheFormula(t *testing.T) {
	type sizes struct{ params, gathered, grads, reducing int }
	const total = keptLen + 4*blockLen + lastLen
	for _, c := range []struct {
		cfg  fsdp.Config
		want func(part, kept int) sizes
	}{
		{fsdp.Config{Stage: 1}, func(int, int) sizes { return sizes{4 * total, 0, 4 * total, 0} }},
		{fsdp.Config{Stage: 1, Compute: tensor.BFloat16}, func(part, _ int) sizes { return sizes{2*total + 4*part, 0, 4 * total, 0} }},
		{fsdp.Config{Stage: 2}, func(part, _ int) sizes { return sizes{4 * total, 0, 4 * part, 4*keptLen + 2*4*lastLen} }},
		{fsdp.Config{Stage: 3}, func(part, kept int) sizes {
			return sizes{4 * part, 4*(keptLen-kept) + 2*4*lastLen, 4 * part, 4*keptLen + 2*4*lastLen}
		}},
		{fsdp.Config{Stage: 3, Compute: tensor.BFloat16, Reduce: tensor.BFloat16}, func(part, _ int) sizes {
			return sizes{4 * part, 2*keptLen + 2*2*lastLen, 2 * part, 2*keptLen + 2*2*lastLen}
		}},
	} {
		j := job{training: training{Ranks: 2, Steps: 3, Batch: 8}, cfg: c.cfg}
		j.end = func(p place) error {
			r := p.Rank
			part, half := 0, func(n int) int { return (n + 1 - r.World.Rank()) / 2 }
			for _, n := range []int{keptLen, blockLen, blockLen, blockLen, blockLen, lastLen} {
				part += half(n)
			}
			m, want := r.Device.Memory(), c.want(part, half(keptLen))
			for kind, n := range map[memory.Use]int{
				memory.Parameters: want.params, memory.Gathered: want.gathered, memory.Gradients: want.grads,
			} {
				if got := m.Of(kind); got != (memory.Bytes{Live: n, Peak: n}) {
					return fmt.Errorf("%+v: rank %d has %v of %v, want %d", c.cfg, r.World.Rank(), got, kind, n)
				}
			}
			const votes = 100 // bytes, about
			got := m.Of(memory.Communication).Live - want.reducing
			if got < 0 { // a reduction was over before the next unit needed memory
				got += c.cfg.Reduce.Size() * lastLen
			}
			if got <= 0 || got > 3*votes {
				return fmt.Errorf("%+v: rank %d has %d bytes of communication beyond %d", c.cfg, r.World.Rank(), got, want.reducing)
			}
			if got := m.Of(memory.OptimizerState).Live - 8*part; got <= 0 || got > 8*64+4*16*17 { // sums of squares, a widened gradient
				return fmt.Errorf("%+v: rank %d has %d bytes of the optimizer beyond the moments", c.cfg, r.World.Rank(), got)
			}
			return nil
		}
		j.run(t)
	}
}

package fsdp_test

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Gradients are rounded once for the sum in each host, and once for the sum over hosts, for each rank's part by itself. Those of later
// microbatches are added.
func TestReducedCodes(t *testing.T) {
	for _, n := range []int{1, 3, 511, 512, 513, 1537, 3001} { // some ranks have no part; blocks and bytes are odd
		for _, mesh := range [][2]int{{2, 2}, {1, 3}, {3, 1}, {2, 3}} {
			if n > 2000 && mesh != [2]int{2, 2} {
				continue // on one mesh, parts of both hops have several blocks
			}
			if short := n > 2000 || n == 513 || n == 1 && mesh == [2]int{2, 3}; short == reliability.Long(t) {
				continue
			}
			t.Run(fmt.Sprintf("%d on %v", n, mesh), func(t *testing.T) {
				require.NoError(t, disttest.OnRanks(mesh[0]*mesh[1], func(r *dist.Rank) error { return checkReduced(t, r, n, mesh) }))
			})
		}
	}
}

func TestLongReducedCodes(t *testing.T) { reliability.AsLong(t, TestReducedCodes) }

func checkReduced(t *testing.T, r *dist.Rank, n int, mesh [2]int) error {
	m := disttest.Must(r.Mesh(fmt.Sprintf("host=%d,gpu=%d", mesh[0], mesh[1])))
	l := newLooked(n)
	s := fsdp.New(fsdp.Config{Shard: m.Group("host", "gpu"), Host: m.Group("gpu"), Grads: fsdp.Int4, DType: tensor.Float64})
	s.Unit(l)
	disttest.Must(s.Attach(l))
	tape := tensor.NewTape(r.Device)
	rank, ranks := r.World.Rank(), r.World.Size()
	lo, hi := layout.Share(n, rank, ranks)
	want := make([]float64, hi-lo)
	for micro := range 3 {
		grad := func(rank int) []float64 { return normal(n, uint64(10*micro+rank)) }
		for host := range mesh[0] {
			sum := make([]float64, hi-lo)
			for gpu := range mesh[1] {
				for i, v := range rounded(grad(host*mesh[1] + gpu)[lo:hi], 7) {
					sum[i] += v
				}
			}
			for i, v := range rounded(sum, 7) {
				want[i] += v
			}
		}
		x := tape.Input(tensor.FromSlice(grad(rank), 1, n).WithRows(r.World.Rows(rank, ranks)))
		var opts []tensor.BackwardOption
		if micro < 2 {
			opts = append(opts, tensor.More())
		}
		tape.Backward(x.Mul(tape.Use(l.W)).Sum(), opts...)
		tape.Reset()
	}
	for i, got := range tensor.Floats(l.W.Grad.ToLocal()) {
		if math.Abs(got-want[i]) > 1e-6*(1+math.Abs(want[i])) {
			return fmt.Errorf("rank %d: element %d is %g, want %g", rank, i, got, want[i])
		}
	}
	return nil
}

func normal(n int, seed uint64) []float64 {
	x := tensor.New(cpu.New(1), tensor.Float64, n)
	tensor.NormalInit(0, 1).Fill(x, seed, 0)
	return tensor.Floats(x)
}

// Ranks train with rounded gradients nearly as with exact ones; several runs are equal to the bit. The short form has three of these.
func TestTrainingWithRoundedGradients(t *testing.T) {
	for name, j := range map[string]job{
		"2 x 2":    {},
		"2 x 3":    {training: training{Mesh: "dp=1,host=2,gpu=3", Micro: 1}},
		"2 copies": {training: training{Mesh: "dp=2,host=2,gpu=2", Micro: 1}},
		"4 micro":  {training: training{Micro: 4, Batch: 44}},
		"chain":    {model: newChain},
		"frozen":   {model: newFrozen},
		"float64":  {cfg: fsdp.Config{DType: tensor.Float64}},
		"int8":     {cfg: fsdp.Config{Weights: fsdp.Int8}},
		"offload":  {offload: true},
	} {
		if !reliability.Long(t) && name != "2 x 3" && name != "4 micro" && name != "frozen" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if j.Mesh == "" {
				j.Mesh = "dp=1,host=2,gpu=2"
			}
			if reliability.Long(t) {
				j.Steps = 60
			}
			j.near = true
			want := j.run(t)
			j.cfg.Grads = fsdp.Int4
			got := j.run(t)
			require.NotEqual(t, want.Losses, got.Losses)
			require.Equal(t, got, j.run(t))
			for end := 10; end <= len(want.Losses); end += 10 { // single batches are chaotic
				exact, now := meanOf(want.Losses[end-10:end]), meanOf(got.Losses[end-10:end])
				t.Logf("steps %d to %d: %.4f, exact %.4f", end-10, end-1, now, exact)
				require.InDelta(t, exact, now, 0.03*exact)
			}
		})
	}
}

func meanOf(x []float64) (sum float64) {
	for _, v := range x {
		sum += v / float64(len(x))
	}
	return sum
}

func TestLongTrainingWithRoundedGradients(t *testing.T) {
	reliability.AsLong(t, TestTrainingWithRoundedGradients)
}

// A rank sends codes of the whole gradient to its host, but for its own part of them, and those of its peers' parts between hosts.
func TestReducedTraffic(t *testing.T) {
	const micro, units, steps = 3, 5, 4
	var mu sync.Mutex
	var near, far uint64
	j := job{training: training{Mesh: "dp=1,host=2,gpu=2", Micro: micro, Batch: 33, Steps: steps}, model: newChain, near: true}
	j.cfg.Grads = fsdp.Int4
	j.end = func(p place) error {
		mu.Lock()
		defer mu.Unlock()
		g := p.sharding.Groups()
		near += g[len(g)-2].Stats().Wire["alltoallv"]
		far += g[len(g)-1].Stats().Wire["alltoallv"]
		return nil
	}
	j.run(t)
	const part = (7*7+7)/4/2 + 4 // bytes of a rank's part of a unit
	require.Equal(t, [2]uint64{steps * micro * units * 4 * 2 * part, steps * micro * units * 4 * part}, [2]uint64{near, far})
}

func TestRoundedGradientsSteadySteps(t *testing.T) {
	disttest.SteadySteps(t, dist.Run, 12, 6, func(r *dist.Rank) (func() error, error) {
		return stepper(r, fsdp.Config{Host: r.World, Grads: fsdp.Int4}, newToy())
	})
}

// onHosts trains a chain on 2 hosts of 2 ranks for 4 steps, with an in each Backward, and returns the gradients of each rank.
func onHosts(seed func(rank int) uint64, in func(rank, step int)) (grads [4][]float64, err error) {
	err = disttest.OnRanks(4, func(r *dist.Rank) error {
		rank, step := r.World.Rank(), 0
		mesh := disttest.Must(r.Mesh("host=2,gpu=2"))
		m := &lagging{lag: lag{func() { in(rank, step) }}}
		for range 5 {
			m.Layers = append(m.Layers, nn.NewLinear(width, width))
		}
		s := fsdp.New(fsdp.Config{Shard: mesh.Group("host", "gpu"), Host: mesh.Group("gpu"), Grads: fsdp.Int4})
		m.units(s)
		params := disttest.Must(s.Attach(m))
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Norm: s})
		tape := tensor.NewTape(r.Device, tensor.Seed(seed(rank)))
		for ; step < 4; step++ {
			x, y := batch(r, tensor.Float32, 16*step+4*rank, 4)
			tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(x)), y))
			for _, p := range params {
				grads[rank] = append(grads[rank], tensor.Floats(p.Grad.ToLocal())...)
			}
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		return nil
	})
	return grads, err
}

func sameSeed(int) uint64 { return 5 }

// Ranks take turns at being slow in Backward: the gradients are the same to the last bit.
func TestSlowPeersOfHosts(t *testing.T) {
	want, err := onHosts(sameSeed, func(int, int) {})
	require.NoError(t, err)
	for slow := range 4 {
		got, err := onHosts(sameSeed, func(rank, step int) {
			for k := 0; k < 3000 && rank == (slow+step)%4; k++ {
				runtime.Gosched()
			}
		})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// What ranks must have alike is compared, though no reduction carries it.
func TestHostsAgree(t *testing.T) {
	for odd := range 4 {
		_, err := onHosts(func(rank int) uint64 { return uint64(rank / (odd + 1)) }, func(int, int) {})
		if odd == 3 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "seed")
		}
	}
}

// A gradient that is not finite on one rank ends the training on all of them.
func TestRoundedNaN(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		errs := make([]error, 4)
		err := disttest.OnRanks(4, func(r *dist.Rank) error {
			mesh, l := disttest.Must(r.Mesh("host=2,gpu=2")), newLooked(600)
			s := fsdp.New(fsdp.Config{Shard: mesh.Group("host", "gpu"), Host: mesh.Group("gpu"), Grads: fsdp.Int4, DType: tensor.Float64})
			s.Unit(l)
			opt := optim.NewSGD(disttest.Must(s.Attach(l)), optim.SGDConfig{LR: 1, Norm: s})
			tape, values := tensor.NewTape(r.Device), make([]float64, 600)
			if r.World.Rank() == 3 {
				values[10] = bad
			}
			x := tape.Input(tensor.FromSlice(values, 1, 600).WithRows(r.World.Rows(r.World.Rank(), 4)))
			tape.Backward(x.Mul(tape.Use(l.W)).Sum())
			errs[r.World.Rank()] = opt.Step()
			return nil
		})
		require.NoError(t, err)
		for _, err := range errs {
			require.ErrorContains(t, err, "the norm of the gradients is NaN")
		}
	}
}

// A rank fails between the hops: the others get its error.
func TestFailureBetweenHops(t *testing.T) {
	for victim := range 4 {
		start := time.Now()
		_, err := onHosts(sameSeed, func(rank, step int) {
			if rank == victim && step == 2 {
				panic(&tensor.Failure{Op: "cable", Err: errCable})
			}
		})
		require.ErrorContains(t, err, errCable.Error())
		require.Less(t, time.Since(start), 10*time.Second)
	}
}

func TestGradsRefused(t *testing.T) {
	for want, c := range map[string]fsdp.Config{
		"fsdp: Config.Grads is int8, not int4":                                                      {Grads: fsdp.Int8},
		"fsdp: Config.Grads is int4, and Host, in which they are added up first, is not set":        {Grads: fsdp.Int4},
		"fsdp: Config.Grads is int4, and Reduce is bfloat16: leave Reduce out":                      {Grads: fsdp.Int4, Reduce: tensor.BFloat16},
		"fsdp: Config.Weights is int4, not int8":                                                    {Weights: fsdp.Int4},
		"fsdp: Config.Grads is for hosts of equally many ranks: rank 0 is one of 2, and rank 2 one": {Grads: fsdp.Int4},
	} {
		err := disttest.OnRanks(3, func(r *dist.Rank) error {
			host := disttest.Must(r.World.Split(r.World.Rank()/2, 0))
			c := c
			c.Shard = r.World
			if c.Reduce != 0 || want[len(want)-3:] == "one" {
				c.Host = host
			}
			l := newLooked(3)
			s := fsdp.New(c)
			s.Unit(l)
			_, err := s.Attach(l)
			return err
		})
		require.ErrorContains(t, err, want)
	}
}

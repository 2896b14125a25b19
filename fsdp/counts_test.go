package fsdp_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// traffic is what the groups of a Sharding counted, summed over ranks but for calls, which are those of rank 0.
type traffic struct{ gathers, reduces, sums, gathered, reduced, summed uint64 }

// count runs j and returns the traffic of its last steps, without what is learned in the first one.
func count(t *testing.T, j job, steps int) traffic {
	t.Helper()
	var mu sync.Mutex
	var total traffic
	var before [16]traffic
	look := func(s *fsdp.Sharding) (c traffic) {
		g := s.Groups()
		a, b := g[0].Stats(), g[1].Stats()
		c = traffic{gathers: a.Calls["allgatherv"], gathered: a.Wire["allgatherv"], reduces: b.Calls["reducescatterv"],
			reduced: b.Wire["reducescatterv"]}
		if len(g) > 2 {
			d := g[2].Stats()
			c.sums, c.summed = d.Calls["allreduce"], d.Wire["allreduce"]
		}
		return c
	}
	j.before = func(p place) error {
		if p.Step == j.Steps-steps {
			before[p.Rank.World.Rank()] = look(p.sharding)
		}
		return nil
	}
	j.end = func(p place) error {
		c, b := look(p.sharding), before[p.Rank.World.Rank()]
		mu.Lock()
		defer mu.Unlock()
		if p.Rank.World.Rank() == 0 {
			total.gathers, total.reduces, total.sums = c.gathers-b.gathers, c.reduces-b.reduces, c.sums-b.sums
		}
		total.gathered += c.gathered - b.gathered
		total.reduced += c.reduced - b.reduced
		total.summed += c.summed - b.summed
		return nil
	}
	j.run(t)
	return total
}

// Elements of toy's units: the kept one, a block, the last one.
const (
	keptLen  = 1 + 7*7 + 7
	blockLen = 7 + 7 + 7*15 + 15 + 15*7 + 7
	lastLen  = 7*16 + 16 + 16*17
)

func TestTrafficIsTheFormula(t *testing.T) {
	const steps = 2
	all := keptLen + 4*blockLen + lastLen
	for _, ranks := range []int{1, 2, 5} {
		if ranks == 2 == reliability.Long(t) {
			continue
		}
		for stage := 1; stage <= 3; stage++ {
			for _, once := range []bool{false, true} {
				j := job{training: training{Ranks: ranks, Steps: 4}, cfg: fsdp.Config{Stage: stage, OncePerStep: once}}
				gathers, gathered := 6, all // once after each step of the optimizer
				if stage == 3 && !once {    // kept: once; blocks: forward and Backward of two microbatches; last: forward
					gathers, gathered = 1+4*2*2+2, keptLen+2*2*4*blockLen+2*lastLen
				}
				reductions := 2
				if stage == 1 || once {
					reductions = 1
				}
				want := traffic{gathers: uint64(steps * gathers), reduces: uint64(steps * 6 * reductions),
					gathered: uint64(steps * gathered * 4 * (ranks - 1)), reduced: uint64(steps * reductions * all * 4 * (ranks - 1))}
				require.Equal(t, want, count(t, j, steps), "stage %d, %d ranks, once %v", stage, ranks, once)
			}
		}
	}
}

func TestLongTrafficIsTheFormula(t *testing.T) { reliability.AsLong(t, TestTrafficIsTheFormula) }

// Without kept units, N units take N gathers forward and N−1 backward. Evaluation takes N.
func TestGathers(t *testing.T) {
	const n, steps = 5, 2
	j := job{training: training{Ranks: 3, Steps: 4, Micro: 1, Batch: 8}, model: newChain}
	wire := uint64(4 * (7*7 + 7) * (3 - 1))
	require.Equal(t, traffic{gathers: steps * (n + n - 1), reduces: steps * n, gathered: steps * (n + n - 1) * wire,
		reduced: steps * n * wire}, count(t, j, steps))
}

// The short form has stage 3, in host memory.
func TestSteadySteps(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
	steps := 6
	if reliability.Long(t) {
		steps = 30
	}
	for _, c := range []fsdp.Config{
		{Stage: 1}, {Stage: 2, Compute: tensor.BFloat16}, {Stage: 3}, {Stage: 3, Compute: tensor.BFloat16, Reduce: tensor.BFloat16},
	} {
		if c.Stage < 3 && !reliability.Long(t) {
			continue
		}
		t.Run(fmt.Sprintf("stage %d %v %v", c.Stage, c.Compute, c.Reduce), func(t *testing.T) {
			disttest.SteadySteps(t, dist.Run, 12, steps, func(r *dist.Rank) (func() error, error) { return stepper(r, c, newToy()) })
			if c.Reduce == tensor.BFloat16 && unabridged(t) {
				// A lane has 64 places for operations, and keeps memory for each.
				disttest.OnEach(t, turn(t, disttest.GPUs(), "NCCL"), 2, func(t *testing.T, launch disttest.Launcher) {
					disttest.SteadySteps(t, launch, 24, 4, func(r *dist.Rank) (func() error, error) { return stepper(r, c, newChain()) })
				})
			}
		})
	}
}

func TestLongSteadySteps(t *testing.T) { reliability.AsLong(t, TestSteadySteps) }

// stepper returns a whole training step of two microbatches, with clipping.
func stepper(r *dist.Rank, c fsdp.Config, n model) (func() error, error) {
	c.Shard = r.World
	s := fsdp.New(c)
	n.units(s)
	params, err := s.Attach(n)
	if err != nil {
		return nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3, Clip: 1, Norm: s})
	tape := tensor.NewTape(r.Device)
	x, y := batch(r, c.DType, 100*r.World.Rank(), 16)
	x, y = tensortest.On(r.Device, x).WithRows(r.World.Rows(16*r.World.Rank(), 32)), tensortest.On(r.Device, y)
	forward := func() nn.T {
		in := tape.Input(x)
		if c.Compute != c.DType {
			in = in.Cast(c.Compute)
		}
		return nn.CrossEntropy(n.Forward(in), y)
	}
	return func() error {
		tape.Backward(forward(), tensor.More())
		tape.Reset()
		tape.Backward(forward())
		err := opt.Step()
		tape.Reset()
		return err
	}, nil
}

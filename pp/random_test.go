package pp_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// randomSchedule returns actions in a random order that is possible, on random ranks.
func randomSchedule(rng *rand.Rand) *pp.Schedule {
	ranks := 1 + rng.IntN(4)
	s := &pp.Schedule{Name: "random", Micros: 1 + rng.IntN(5), Actions: make([][]pp.Action, ranks), Ranks: rng.Perm(ranks)}
	for range rng.IntN(4) {
		s.Ranks = append(s.Ranks, rng.IntN(ranks))
	}
	stages := len(s.Ranks)
	split := map[[2]int]bool{}
	ready := []pp.Action{}
	for m := range s.Micros {
		ready = append(ready, pp.Action{Kind: pp.F, Micro: m})
		for i := range stages {
			split[[2]int{i, m}] = rng.IntN(2) == 0
		}
	}
	backward := func(stage, m int) {
		a := pp.Action{Kind: pp.B, Stage: stage, Micro: m}
		if split[[2]int{stage, m}] {
			a.Kind = pp.I
		}
		ready = append(ready, a)
	}
	for len(ready) > 0 {
		i := rng.IntN(len(ready))
		a := ready[i]
		ready[i] = ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		s.Actions[s.Ranks[a.Stage]] = append(s.Actions[s.Ranks[a.Stage]], a)
		switch {
		case a.Kind == pp.F && a.Stage < stages-1:
			ready = append(ready, pp.Action{Kind: pp.F, Stage: a.Stage + 1, Micro: a.Micro})
		case a.Kind == pp.F:
			backward(a.Stage, a.Micro)
		case a.Kind != pp.W && a.Stage > 0:
			backward(a.Stage-1, a.Micro)
		}
		if a.Kind == pp.I {
			ready = append(ready, pp.Action{Kind: pp.W, Stage: a.Stage, Micro: a.Micro})
		}
	}
	return s
}

// chain is layers, one for each stage, with dropout.
type chain struct {
	Layers []*nn.Linear // nil on other ranks
	Drop   []*nn.Dropout
}

func newChain(stages int, has func(stage int) bool) *chain {
	c := &chain{make([]*nn.Linear, stages), make([]*nn.Dropout, stages)}
	for i := range stages {
		if has(i) {
			c.Layers[i], c.Drop[i] = nn.NewLinear(3, 3), nn.NewDropout(0.2)
		}
	}
	return c
}

// stage computes stage i, for a microbatch of micro+1 rows.
func (c *chain) stage(i, micros int) pp.Stage {
	return func(t *tensor.Tape, micro int, x nn.T) nn.T {
		if i == 0 {
			in := tensor.New(t.Device(), tensor.Float64, micro+1, 3)
			first := micro * (micro + 1) / 2
			tensor.UniformInit(-1, 1).Fill(in, 7, uint64(first*3))
			x = t.Input(in.WithRows(tensor.Rows{First: first, Stride: 1, Total: micros * (micros + 1) / 2}))
		}
		if x = c.Drop[i].Forward(c.Layers[i].Forward(x).Tanh()); i < len(c.Layers)-1 {
			return x
		}
		return tensor.GlobalMean(x.Square())
	}
}

const chainSteps = 3

// alone trains a chain on one rank.
func (c *chain) alone(dev tensor.Device, micros int) (losses []float64) {
	opt := optim.NewSGD(nn.Init(c, dev, tensor.Float64, 1), optim.SGDConfig{LR: 0.5, Clip: 0.1})
	tape := tensor.NewTape(dev, tensor.Seed(2))
	for range chainSteps {
		sum := 0.0
		for m := range micros {
			var x nn.T
			for i := range c.Layers {
				x = c.stage(i, micros)(tape, m, x)
			}
			sum += x.Item()
			if m < micros-1 {
				tape.Backward(x, tensor.More())
			} else {
				tape.Backward(x)
			}
			tape.Reset()
		}
		losses = append(losses, sum)
		disttest.OK(opt.Step())
	}
	return losses
}

// rank trains this rank's stages, and compares them with those of whole.
func (s chained) rank(r *dist.Rank) error {
	c := newChain(len(s.Ranks), func(i int) bool { return s.Ranks[i] == r.World.Rank() })
	params := nn.Init(c, r.Device, tensor.Float64, 1)
	stages := map[int]pp.Stage{}
	for i, rank := range s.Ranks {
		if rank == r.World.Rank() {
			stages[i] = c.stage(i, s.Micros)
		}
	}
	opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.5, Clip: 0.1, Norm: r.World})
	tape := tensor.NewTape(r.Device, tensor.Seed(2))
	defer tape.Close()
	p, err := pp.New(pp.Config{Group: r.World, Schedule: s.Schedule, Stages: stages, Tape: tape, Params: params, Optimizer: opt})
	if err != nil {
		return err
	}
	defer p.Close()
	for step := range chainSteps {
		loss, err := p.Step()
		if err != nil {
			return err
		}
		if rank := s.Ranks[len(s.Ranks)-1]; rank == r.World.Rank() {
			if d := loss - s.losses[step]; d > 1e-12 || d < -1e-12 {
				return fmt.Errorf("loss %d is %v, not %v", step, loss, s.losses[step])
			}
		}
		if err := opt.Step(); err != nil {
			return err
		}
	}
	for _, x := range params {
		want := tensor.Floats(s.params.ByName(x.Name()).Value)
		for i, v := range tensor.Floats(x.Value) {
			if d := v - want[i]; !(d < 1e-12 && d > -1e-12) {
				return fmt.Errorf("%s %d is %v, not %v", x.Name(), i, v, want[i])
			}
		}
	}
	return nil
}

// chained is a schedule, and what a chain has when it was trained on one rank.
type chained struct {
	*pp.Schedule
	losses []float64
	params nn.Params
}

// Whatever Check lets pass never hangs, and trains as one rank does, also where messages take random times.
func TestRandomSchedules(t *testing.T) {
	seeds := 40
	if reliability.Long(t) {
		seeds = 5000
	}
	for seed := range seeds {
		require.NoError(t, runRandom(uint64(seed)), "seed %d", seed)
	}
}

func TestLongRandomSchedules(t *testing.T) { reliability.AsLong(t, TestRandomSchedules) }

// More messages than can be in flight between two ranks.
func TestManyMicrobatches(t *testing.T) {
	list := []*pp.Schedule{pp.GPipe(2, 100)}
	if reliability.Long(t) {
		list = append(list, pp.ZBH1(3, 100), pp.Interleaved(2, 3, 80))
	}
	for _, s := range list {
		require.NoError(t, runDelayed(s, 1), s.Name)
	}
}

func TestLongManyMicrobatches(t *testing.T) { reliability.AsLong(t, TestManyMicrobatches) }

func runRandom(seed uint64) error {
	return runDelayed(randomSchedule(rand.New(rand.NewPCG(seed, 1))), seed)
}

func runDelayed(s *pp.Schedule, seed uint64) error {
	dev := cpu.New(1)
	defer dev.Close()
	whole := newChain(len(s.Ranks), func(int) bool { return true })
	want := chained{Schedule: s, losses: whole.alone(dev, s.Micros), params: nn.ParamsOf(whole)}
	hub, touches := local.NewHub(len(s.Actions)), atomic.Uint64{}
	hub.SetFault(func(int, int, int) bool {
		for k := backend.Hash64(seed, touches.Add(1)) % 6; k > 3; k-- {
			runtime.Gosched()
		}
		return false
	})
	var engines []backend.Engine
	for i := range s.Actions {
		engines = append(engines, hub.Engine(i))
	}
	return dist.RunEngines(context.Background(), dist.Config{Threads: 1, Log: io.Discard, Timeout: time.Minute}, engines,
		func(_ context.Context, r *dist.Rank) error { return want.rank(r) })
}

// late is an owner of gradients whose sum ends when the stage before has its last gradient.
type late struct {
	begun, wait chan struct{} // nil: none
}

func (late) BeforeUse(*tensor.Param, tensor.Phase) {}
func (late) Changed(*tensor.Param)                 {}

func (late) GradReady(_ *tensor.Param, after tensor.Pending) tensor.Pending { return after }

func (l late) BackwardBegin(last bool) {
	if last && l.begun != nil {
		close(l.begun)
	}
}

func (l late) BackwardDone(last bool) error {
	if last && l.wait != nil {
		select {
		case <-l.wait:
		case <-time.After(20 * time.Second):
			return fmt.Errorf("the gradient waits for sums over ranks")
		}
	}
	return nil
}

// The gradient of a rank's last backward pass leaves before the owner of parameters sums theirs.
func TestGradientLeavesBeforeSums(t *testing.T) {
	for _, s := range []*pp.Schedule{pp.OneF1B(2, 3), pp.GPipe(2, 3), pp.ZBH1(2, 3)} {
		begun := make(chan struct{})
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			rank := r.World.Rank()
			c := newChain(2, func(i int) bool { return i == rank })
			params := nn.Init(c, r.Device, tensor.Float64, 1)
			for _, x := range params {
				disttest.OK(x.Own([]late{{begun: begun}, {wait: begun}}[rank], 0))
			}
			p := disttest.Must(pp.New(pp.Config{Group: r.World, Schedule: s, Stages: map[int]pp.Stage{rank: c.stage(rank, 3)},
				Tape: tensor.NewTape(r.Device), Params: params}))
			_, err := p.Step()
			return err
		}), s.Name)
	}
}

package fsdp_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// leaveOut makes a job that leaves block i out in a step, on the ranks where it is told to.
func leaveOut(j job, out func(step, rank, i int) bool) job {
	j.before = func(p place) error {
		step := p.Step
		p.model.(*toy).skip = func(i int) bool { return out(step, p.Rank.World.Rank(), i) }
		return nil
	}
	return j
}

// What all ranks leave out has no gradient, and the optimizer leaves it alone, as on one rank: always, from some step on,
// in some steps, and the last or first block of the order.
func TestSkippedOnAllRanks(t *testing.T) {
	for name, out := range map[string]func(step, rank, i int) bool{
		"always":   func(_, _, i int) bool { return i == 1 },
		"later":    func(step, _, i int) bool { return step >= 3 && i == 1 },
		"at first": func(step, _, i int) bool { return step < 3 && i%2 == 1 },
		"random":   func(step, _, i int) bool { return step*step*7%4 == i || step%5 == 3 },
		"by turns": func(step, _, i int) bool { return step == 0 && i == 1 || step > 0 && i == step%5 },
		"two":      func(step, _, i int) bool { return step%2 == 0 && i >= 2 },
	} {
		t.Run(name, func(t *testing.T) {
			j := leaveOut(job{cfg: fsdp.Config{DType: tensor.Float64}}, out)
			if !reliability.Long(t) && name != "later" && name != "random" {
				return
			}
			want := onOne(j).run(t)
			for _, stage := range []int{2, 3} {
				if (name == "later" && stage == 3 || name == "random" && stage == 2) == reliability.Long(t) {
					continue
				}
				j.Ranks, j.cfg.Stage = 3, stage
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		})
	}
}

func TestLongSkippedOnAllRanks(t *testing.T) { reliability.AsLong(t, TestSkippedOnAllRanks) }

// refused runs a job that must fail at once on all ranks. It returns what each of them says.
func refused(t *testing.T, j job, texts ...string) []error {
	t.Helper()
	start := time.Now()
	res, err := j.whole().Try()
	require.Error(t, err)
	for _, err := range res.Errs {
		for _, text := range texts {
			require.ErrorContains(t, err, text)
		}
	}
	require.Less(t, time.Since(start), 20*time.Second+reliability.Slack, "nobody waited for the timeout")
	return res.Errs
}

// Blocks have one size: without names, a rank would take the values of another block for its own. The short form has stage 3.
func TestSkippedOnOneRank(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		if (stage == 3) == reliability.Long(t) {
			continue
		}
		j := job{training: training{Ranks: 3, Steps: 5, Micro: 1}, cfg: fsdp.Config{Stage: stage}}
		for _, block := range []int{0, 1, 3} {
			at := func(when int) job {
				return leaveOut(j, func(step, rank, i int) bool { return step == when && rank == 1 && i == block })
			}
			name := []string{"unit 1 (blocks.0)", "unit 2 (blocks.1)", "", "unit 4 (blocks.3)"}[block]
			refused(t, at(3), name, "was used on 2 of 3 ranks")
			refused(t, at(0), "unit")
		}
		two := leaveOut(j, func(step, rank, i int) bool { return step == 3 && rank == 1 && i < 2 }) // the last two of Backward
		refused(t, two, "unit 1 (blocks.0)", "was used on 2 of 3 ranks")
		alone := leaveOut(j, func(step, rank, i int) bool { return i == 2 && (step < 3 || rank != 1) })
		errs := refused(t, alone, "unit")
		require.ErrorContains(t, errs[1], "unit 3 (blocks.2) in forward: ")
	}
}

func TestLongSkippedOnOneRank(t *testing.T) { reliability.AsLong(t, TestSkippedOnOneRank) }

func TestOrderDiffers(t *testing.T) {
	swap := func(rank, step int) func(place) error {
		return func(p place) error {
			b := p.model.(*toy).Blocks
			if p.Step == step && (rank < 0 || p.Rank.World.Rank() == rank) {
				b[1], b[2] = b[2], b[1]
			}
			return nil
		}
	}
	j := job{training: training{Ranks: 2, Steps: 5, Micro: 1}}
	j.before = swap(1, 0)
	refused(t, j, "ranks use units in different orders: unit 2 (blocks.1) in forward on one rank, unit 3 (blocks.2) in forward on another")
	j.before = swap(1, 3)
	refused(t, j, "unit")
	j.before = swap(-1, 3)
	refused(t, j, "unit 3 (blocks.2) is used at another place in Backward than in the first step: ")
	for _, cfg := range []fsdp.Config{{OncePerStep: true}, {Stage: 2}} { // what the error names
		j.cfg = cfg
		j.cfg.DType = tensor.Float64
		disttest.RequireEqual(t, onOne(j).run(t), j.run(t), 1e-10)
	}
}

// A weight whose uses are far apart need not be kept: it is gathered for each of them.
func TestTiedUnitThatIsNotKept(t *testing.T) {
	j := job{training: training{Steps: 6}, cfg: fsdp.Config{DType: tensor.Float64}}
	want := onOne(j).run(t)
	j.Ranks, j.model = 3, func() model { return &loose{*newToy()} }
	disttest.RequireEqual(t, want, j.run(t), 1e-10)
}

// loose is a toy with nothing kept.
type loose struct{ toy }

func (l *loose) units(s *fsdp.Sharding) {
	s.Unit(l.Scale, l.In)
	for _, b := range l.Blocks {
		s.Unit(b)
	}
	s.Unit(l.Wide, l.Head)
}

// forked uses its second branch on some ranks only; both are in one unit.
type forked struct {
	A, B, Head *nn.Linear
	useB       bool
}

func newForked() model {
	return &forked{A: nn.NewLinear(width, width), B: nn.NewLinear(width, width), Head: nn.NewLinear(width, classes)}
}

func (f *forked) Forward(x nn.T) nn.T {
	h := f.A.Forward(x)
	if f.useB {
		h = h.Add(f.B.Forward(x))
	}
	return f.Head.Forward(h.Tanh())
}

func (f *forked) units(s *fsdp.Sharding) {
	s.Unit(f.A, f.B)
	s.Unit(f.Head)
}

// Parameters of one unit may be used on some ranks only: the others contribute zeros. What no rank uses has no gradient.
func TestParameterUsedOnSomeRanks(t *testing.T) {
	j := job{training: training{Ranks: 3, Rule: unclipped}, cfg: fsdp.Config{DType: tensor.Float64}, model: newForked}
	j.before = func(p place) error {
		p.model.(*forked).useB = p.Step%4 == 0 || p.Step%4 != 3 && p.Rank.World.Rank() == p.Step%3
		return nil
	}
	naive := j
	naive.with = func(r *dist.Rank, n model) (nn.Params, error) {
		return ddp.Naive(r.World, n, ddp.Config{DType: tensor.Float64, Seed: 7, AllowUnused: true})
	}
	want := naive.run(t)
	for stage := 1; stage <= 3; stage++ {
		j.cfg.Stage = stage
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	}
}

// A second Backward before the optimizer's step, over other units, would lose the gradients of the first one.
func TestGradientsThatWereNotConsumed(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		attached(t, 2, fsdp.Config{Stage: stage}, newChain, func(r *dist.Rank, m model, _ *fsdp.Sharding, _ nn.Params) {
			tape, layers := tensor.NewTape(r.Device), m.(*chain).Layers
			x, y := batch(r, tensor.Float32, 0, 4)
			tape.Backward(nn.CrossEntropy(layers[:2].Forward(tape.Input(x)), y))
			tape.Reset()
			err := tensor.Try(func() { tape.Backward(nn.CrossEntropy(layers[2:].Forward(tape.Input(x)), y)) })
			require.ErrorContains(t, err, "was not consumed: between two Backwards, call Step")
		})
	}
}

// A value that is used after its unit was given up is gathered once more.
func TestGivenUpValue(t *testing.T) {
	err := disttest.OnRanks(2, func(r *dist.Rank) error {
		c := newChain().(*chain)
		s := fsdp.New(fsdp.Config{Shard: r.World})
		c.units(s)
		disttest.Must(s.Attach(c))
		tape := tensor.NewTape(r.Device)
		x, _ := batch(r, tensor.Float32, 0, 4)
		early := tape.Use(c.Layers[0].(*nn.Linear).W)
		now := tensor.Floats(tensor.Linear(tape.Input(x), early, nn.T{}))
		c.Layers[1:].Forward(tape.Input(x))
		require.Equal(t, now, tensor.Floats(tensor.Linear(tape.Input(x), early, nn.T{})))
		return nil
	})
	require.NoError(t, err)
}

// While a unit is in use, the next one is being gathered.
func TestNextUnitIsGathered(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		var do func()
		m, s := sabotaged(&do), fsdp.New(fsdp.Config{Shard: r.World}) // of five units
		m.units(s)
		disttest.Must(s.Attach(m))
		gathers := func() uint64 { return s.Groups()[0].Stats().Calls["allgatherv"] }
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		x, _ := batch(r, tensor.Float32, 0, 4)
		for pass := range 3 {
			before := gathers()
			do = func() {
				if pass > 0 { // in the first one the order is not known
					require.EqualValues(t, 3+1, gathers()-before, "behind the third of five layers")
				}
			}
			m.Forward(tape.Input(x))
			tape.Reset()
		}
		return nil
	}))
}

// What only the first microbatch of a step uses is reduced with the last one.
func TestUsedInFirstMicrobatchOnly(t *testing.T) {
	run := func(cfg fsdp.Config, mesh string) disttest.Result {
		cfg.DType = tensor.Float64
		j := job{training: training{Ranks: 4, Mesh: mesh}, cfg: cfg}
		j.before = func(p place) error {
			forwards := 0
			p.model.(*toy).skip = func(i int) bool {
				if i == 0 {
					forwards++
				}
				return i == 2 && forwards > 1
			}
			return nil
		}
		return j.run(t)
	}
	want := run(fsdp.Config{Stage: 2}, "") // reduces after each
	if reliability.Long(t) {
		disttest.RequireEqual(t, want, run(fsdp.Config{Stage: 1}, ""), 1e-10)
		disttest.RequireEqual(t, want, run(fsdp.Config{Stage: 3, OncePerStep: true}, ""), 1e-10)
	}
	disttest.RequireEqual(t, want, run(fsdp.Config{Stage: 3}, "dp=2,fsdp=2"), 1e-10)
}

func TestLongUsedInFirstMicrobatchOnly(t *testing.T) {
	reliability.AsLong(t, TestUsedInFirstMicrobatchOnly)
}

// pair is two units, of which the second is used last, if at all.
type pair struct{ A, B *nn.Linear }

// A unit that nobody used before, and that some ranks begin to use at the end of forward, has a name on all ranks.
func TestUsedByOneRankAtLast(t *testing.T) {
	failed := make([]error, 2)
	require.Error(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		m, rank := &pair{nn.NewLinear(4, 4), nn.NewLinear(4, 4)}, r.World.Rank()
		s := fsdp.New(fsdp.Config{Shard: r.World})
		s.Unit(m.A)
		s.Unit(m.B)
		disttest.Must(s.Attach(m))
		tape := tensor.NewTape(r.Device)
		y := m.A.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, 1, 4).WithRows(r.World.Rows(rank, 2))))
		failed[rank] = tensor.Try(func() {
			if rank == 1 {
				y = m.B.Forward(y)
			}
			tape.Backward(y.Sum())
		})
		return failed[rank]
	}))
	require.ErrorContains(t, failed[0], "fsdp: comparing which units were used (this rank has not used unit 1 (b)): ")
	require.ErrorContains(t, failed[1], "fsdp: agreeing on the order of units, unit 1 (b) in forward: ")
}

// anchored is a toy that keeps everything but its blocks.
type anchored struct{ toy }

func (a *anchored) units(s *fsdp.Sharding) {
	s.Keep(a.Scale, a.In, a.Wide, a.Head)
	for _, b := range a.Blocks {
		s.Unit(b)
	}
}

// A rank whose later microbatches use only units that stay gathers the others with the ranks that use them.
func TestOnlyKeptUnitsInLaterMicrobatches(t *testing.T) {
	run := func(stage int) disttest.Result {
		j := job{training: training{Ranks: 3, Micro: 3}, cfg: fsdp.Config{Stage: stage, DType: tensor.Float64}}
		j.model = func() model { return &anchored{*newToy()} }
		j.before = func(p place) error {
			forwards := 0
			p.model.(*anchored).skip = func(i int) bool {
				if i == 0 {
					forwards++
				}
				return forwards > 1 && (p.Step+p.Rank.World.Rank())%3 == 0
			}
			return nil
		}
		return j.run(t)
	}
	disttest.RequireEqual(t, run(2), run(3), 1e-10) // stage 2 gathers once a step
}

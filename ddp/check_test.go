package ddp_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// part is what a rank is given in a microbatch: n rows, and of each, if seq is not none, positions.
type part struct {
	first, n, total int
	seq             tensor.Spans
	positions       int
	number          int // of the batch
}

// trainOn does a step on parts, by rank and microbatch.
func trainOn(parts [][]part, steps int, step func(r *dist.Rank, n int, backward func() error) error) error {
	return disttest.OnRanks(len(parts), func(r *dist.Rank) error {
		model := nn.NewLinear(3, 2)
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{}))
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
		mine := parts[r.World.Rank()]
		for i := range steps {
			disttest.OK(step(r, i, func() error {
				for m, p := range mine {
					rows := r.World.Rows(p.first, p.total)
					rows.Number = p.number
					dims := []int{p.n, 3}
					if rows.Seq = p.seq; p.positions > 0 {
						dims = []int{p.n, p.positions, 3}
					}
					loss := tensor.GlobalMean(model.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, dims...).WithRows(rows))))
					if m < len(mine)-1 {
						tape.Backward(loss, tensor.More())
					} else {
						tape.Backward(loss)
					}
					tape.Reset()
				}
				return opt.Step()
			}))
		}
		return nil
	})
}

// Rows.Total that is not what the ranks have together is refused in the first step; what is right is not.
func TestRowsOfTheFirstStep(t *testing.T) {
	half := func(first int) tensor.Spans { return tensor.Spans{First: first, Total: 6} }
	for name, c := range map[string]struct {
		parts [][]part
		want  string
	}{
		"uneven":              {parts: [][]part{{{n: 3, total: 4}}, {{first: 3, n: 1, total: 4}}}},
		"a rank without rows": {parts: [][]part{{{n: 3, total: 3}}, {{first: 3, n: 0, total: 3}}}},
		"microbatches": {parts: [][]part{{{n: 3, total: 8}, {first: 4, n: 2, total: 8}},
			{{first: 3, n: 1, total: 8}, {first: 6, n: 2, total: 8}}}},
		"microbatches of their own": {parts: [][]part{{{n: 2, total: 4}, {n: 2, total: 4}},
			{{first: 2, n: 2, total: 4}, {first: 2, n: 2, total: 4}}}},
		"microbatches, other batches": {parts: [][]part{{{n: 2, total: 4}, {n: 3, total: 5}},
			{{first: 2, n: 2, total: 4}, {first: 3, n: 2, total: 5}}}},
		"microbatches that ranks divide in other ways": {parts: [][]part{{{n: 3, total: 4, number: 5}, {n: 1, total: 4, number: 6}},
			{{first: 3, n: 1, total: 4, number: 5}, {first: 1, n: 3, total: 4, number: 6}}}},
		"the same without numbers": {parts: [][]part{{{n: 3, total: 4}, {n: 1, total: 4}},
			{{first: 3, n: 1, total: 4}, {first: 1, n: 3, total: 4}}},
			want: "rank 0 has 3 of 4, rank 1 has 3 of 4, some of them twice (microbatches that ranks divide in other ways need a Rows.Number)"},
		"microbatches that overlap": {parts: [][]part{{{n: 2, total: 4}, {first: 1, n: 2, total: 4}},
			{{first: 3, n: 1, total: 4}, {first: 3, n: 1, total: 4}}}},
		"parts of a sequence": {parts: [][]part{{{n: 2, total: 2, seq: half(0), positions: 2}}, {{n: 2, total: 2, seq: half(2), positions: 4}}}},
		"two runs of a sequence": {parts: [][]part{{{n: 2, total: 2, seq: tensor.Spans{Total: 6, Break: 2, Skip: 3}, positions: 3}},
			{{n: 2, total: 2, seq: half(2), positions: 3}}}},
		"a run of a sequence on both": {parts: [][]part{{{n: 2, total: 2, seq: tensor.Spans{Total: 6, Break: 2, Skip: 3}, positions: 3}},
			{{n: 2, total: 2, seq: tensor.Spans{Total: 6, Break: 2, Skip: 1}, positions: 4}}},
			want: "rank 0 has 6 of 2×6 positions, rank 1 has 8 of 2×6 positions, some of them twice"},
		"all ranks' total": {parts: [][]part{{{n: 3, total: 8}}, {{first: 3, n: 1, total: 8}}},
			want: "rank 0 has 3 of 8, rank 1 has 1 of 8; losses divide by the total"},
		"the same rows on both": {parts: [][]part{{{n: 4, total: 4}}, {{n: 4, total: 4}}}, want: "rank 0 has 4 of 4, rank 1 has 4 of 4"},
		"one rank's rows on both": {parts: [][]part{{{n: 2, total: 4}}, {{n: 2, total: 4}}},
			want: "rank 0 has 2 of 4, rank 1 has 2 of 4, some of them twice"},
		"a microbatch is missing": {parts: [][]part{{{n: 2, total: 8}, {first: 2, n: 2, total: 8}},
			{{first: 4, n: 2, total: 8}, {first: 4, n: 2, total: 8}}}, want: "rank 0 has 4 of 8, rank 1 has 2 of 8"},
		"positions are missing": {parts: [][]part{{{n: 2, total: 2, seq: half(0), positions: 2}},
			{{n: 2, total: 2, seq: half(2), positions: 3}}}, want: "rank 0 has 4 of 2×6 positions, rank 1 has 6 of 2×6 positions"},
		"one rank":                   {parts: [][]part{{{n: 2, total: 2}}}},
		"one rank's too large total": {parts: [][]part{{{n: 2, total: 3}}}, want: "rank 0 has 2 of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			err := trainOn(c.parts, 3, func(_ *dist.Rank, _ int, backward func() error) error { return tensor.Try(func() { _ = backward() }) })
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "ddp: the rows of a step do not add up: "+c.want)
			}
		})
	}
}

// Ranks may have other numbers of chunks of the batches of one Backward, more than a tape remembers one by one.
func TestManyBatchesInOneBackward(t *testing.T) {
	for _, missing := range []int{0, 1} {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			model := nn.NewLinear(3, 2)
			disttest.Must(ddp.Attach(r.World, model, ddp.Config{}))
			tape := tensor.NewTape(r.Device)
			var loss tensor.Tensor
			for batch := range 6 {
				chunks := 2 - r.World.Rank() // of 4 rows
				for i := range chunks {
					n := 4/chunks - missing*r.World.Rank()
					rows := r.World.Rows(4*r.World.Rank()+4/chunks*i, 8)
					rows.Number = 3 + batch
					l := tensor.GlobalMean(model.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, n, 3).WithRows(rows))))
					if loss.IsZero() {
						loss = l
					} else {
						loss = loss.Add(l)
					}
				}
			}
			return tensor.Try(func() { tape.Backward(loss) })
		})
		if missing == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "do not add up: rank 0 has 4 of 8, rank 1 has 3 of 8")
		}
	}
}

// In the first six steps, and in six from step 16 on, ranks ask each other; and a step that failed, and began anew on other rows, counts
// once.
func TestChecksAreOfTheFirstSteps(t *testing.T) {
	parts := [][]part{{{n: 3, total: 4}}, {{first: 3, n: 1, total: 4}}}
	require.NoError(t, trainOn(parts, 24, func(r *dist.Rank, n int, backward func() error) error {
		before := r.World.Stats().Calls
		disttest.OK(backward())
		after := r.World.Stats().Calls
		if asked := after["allgatherv"]+after["allgather"] > before["allgatherv"]+before["allgather"]; asked != (n < 6 || n >= 16 && n < 22) {
			return fmt.Errorf("step %d: %v, before %v", n, after, before)
		}
		return nil
	}))
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		first, second := nn.NewLinear(3, 3), nn.NewLinear(3, 2)
		disttest.Must(ddp.Attach(r.World, nn.Sequential{first, second}, ddp.Config{}))
		tape := tensor.NewTape(r.Device)
		backward := func(from, total int, bad bool, more ...tensor.BackwardOption) error {
			defer tape.Reset()
			y := first.Forward(tape.Input(tensor.New(r.Device, tensor.Float32, 2, 3).WithRows(r.World.Rows(from+2*r.World.Rank(), total))))
			if bad {
				y = tape.Apply(fails{}, y).Tanh()
			}
			return tensor.Try(func() { tape.Backward(tensor.GlobalMean(second.Forward(y)), more...) })
		}
		require.Error(t, backward(0, 100, true, tensor.More()))
		require.NoError(t, backward(0, 8, false, tensor.More()))
		return backward(4, 8, false)
	}))
}

// With CheckEvery, rows are compared again: a total that is wrong from step 7 on is found in step 8.
func TestRowsOfLaterSteps(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		model := nn.NewLinear(3, 2)
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{CheckEvery: 2}))
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
		for step := range 9 {
			total := 2 + step/7
			x := tensor.New(r.Device, tensor.Float32, 1, 3).WithRows(r.World.Rows(r.World.Rank(), total))
			err := tensor.Try(func() { tape.Backward(tensor.GlobalMean(model.Forward(tape.Input(x)))) })
			if step == 8 {
				require.ErrorContains(t, err, "ddp: the rows of a step do not add up: rank 0 has 1 of 3, rank 1 has 1 of 3")
				return nil
			}
			require.NoError(t, err)
			disttest.OK(opt.Step())
			tape.Reset()
		}
		return nil
	}))
}

// fails fails in Backward.
type fails struct{}

func (fails) Name() string                                            { return "fails" }
func (fails) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }
func (fails) Backward(*tensor.Ctx, tensor.Tensor, []tensor.Tensor) {
	panic(&tensor.Failure{Op: "fails", Err: io.ErrUnexpectedEOF})
}
func (fails) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) { return in[:1], nil }

// A value that is changed on one rank only is found in steps 0, 1, 4 and so on, and in others with CheckEvery: the parameter and the ranks
// are named. Experts are compared with those that hold the same ones.
func TestValuesThatDiffer(t *testing.T) {
	const notFound = "dense: rank 2 has " // until the test compares values itself
	for _, c := range []struct {
		every, step int
		expert      bool
		want        string
	}{
		{0, 0, false, "ddp: dense must have the same values on all ranks of world, and those of rank 2 are not rank 0's"},
		{0, 0, true, "ddp: experts must have the same values on all ranks of dp, and those of rank 2 are not rank 0's"},
		{0, 1, false, "dense must have the same values"},
		{0, 2, false, "dense must have the same values"}, // in step 4
		{0, 5, false, notFound},
		{2, 1, false, "dense must have the same values"},
		{2, 3, true, "experts must have the same values"},
		{3, 7, false, notFound},
	} {
		j := experts(ddp.Attach, "dp=2,ep=2", c.every, func(m *mixture, s *disttest.State) {
			if s.Step == c.step && s.Rank.World.Rank() == 2 {
				p := m.Dense
				if c.expert {
					p = m.Experts
				}
				tensor.Data[float64](p.Value)[2] += 1e-9
			}
		})
		j.Steps = 8
		_, err := j.Try()
		require.ErrorContains(t, err, c.want)
	}
}

// What optimizers are told on one rank alone is found when its first step has changed values in another way than the others, and another
// learning rate, or what is frozen, in every step.
func TestOptimizersThatDiffer(t *testing.T) {
	for name, change := range map[string]func(c *optim.AdamWConfig, p *tensor.Param){
		"LR":          func(c *optim.AdamWConfig, _ *tensor.Param) { c.LR *= 1.001 },
		"WeightDecay": func(c *optim.AdamWConfig, _ *tensor.Param) { c.WeightDecay = 0.02 },
		"Clip":        func(c *optim.AdamWConfig, _ *tensor.Param) { c.Clip = 1e-9 },
		"Schedule":    func(c *optim.AdamWConfig, _ *tensor.Param) { c.Schedule = schedule.Warmup(3, schedule.Cosine(0.1, 20)) },
		"Freeze":      func(_ *optim.AdamWConfig, p *tensor.Param) { p.Freeze() },
		"":            func(*optim.AdamWConfig, *tensor.Param) {},
		"SetLR":       func(*optim.AdamWConfig, *tensor.Param) {},
		"late":        func(*optim.AdamWConfig, *tensor.Param) {},
	} {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			model := nn.NewLinear(3, 2)
			params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{Seed: 1}))
			c := optim.AdamWConfig{LR: 0.1, WeightDecay: 0.01, Clip: 1}
			if r.World.Rank() == 1 {
				change(&c, model.W)
			}
			opt, tape := optim.NewAdamW(params, c), tensor.NewTape(r.Device)
			for step := range 5 {
				if step == 3 && r.World.Rank() == 1 { // as its own loss says
					switch name {
					case "SetLR":
						opt.SetLR(0.05)
					case "late":
						model.W.Freeze()
					}
				}
				x := tensor.FromSlice([]float32{1, 2, 3}, 1, 3).WithRows(r.World.Rows(r.World.Rank(), 2))
				disttest.OK(tensor.Try(func() { tape.Backward(tensor.GlobalMean(model.Forward(tape.Input(x)).Square())) }))
				disttest.OK(opt.Step())
				tape.Reset()
			}
			return nil
		})
		switch name {
		case "":
			require.NoError(t, err)
		case "LR", "SetLR", "Schedule":
			require.ErrorContains(t, err, "learning rate of the last step 0.1 (rank 0) vs", name)
		case "late":
			require.ErrorContains(t, err, "frozen parameters some (rank 0) vs others (rank 1)")
		default:
			require.ErrorContains(t, err, "must have the same values on all ranks of world", name)
		}
	}
}

// Layers that compute something else on one rank are refused: the parameters' shapes do not tell.
func TestLayersThatDiffer(t *testing.T) {
	for want, change := range map[string]func(m nn.Sequential){
		"0: Float8=2": func(m nn.Sequential) { nn.Float8(m, ops.PerRow, "0") },
		"1: P=0.2":    func(m nn.Sequential) { m[1].(*nn.Dropout).P = 0.2 },
		"2: Eps=0.01": func(m nn.Sequential) { m[2].(*nn.LayerNorm).Eps = 0.01 },
	} {
		err := disttest.OnRanks(3, func(r *dist.Rank) error {
			m := nn.Sequential{nn.NewLinear(16, 32), nn.NewDropout(0.1), nn.NewLayerNorm(32)}
			if r.World.Rank() == 2 {
				change(m)
			}
			_, err := ddp.Attach(r.World, m, ddp.Config{DType: tensor.Float32})
			return err
		})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "rank 2")
	}
}

// remembering is a layer beside which a program keeps values.
type remembering struct {
	Linear *nn.Linear
	Seen   *tensor.Buffer
}

// owners attach a model in each way that sums gradients.
var owners = map[string]func(r *dist.Rank, m *remembering) (nn.Params, error){
	"ddp": func(r *dist.Rank, m *remembering) (nn.Params, error) { return ddp.Attach(r.World, m, ddp.Config{}) },
	"fsdp": func(r *dist.Rank, m *remembering) (nn.Params, error) {
		return sharded(m, fsdp.Config{Shard: r.World})
	},
	"fsdp and copies": func(r *dist.Rank, m *remembering) (nn.Params, error) {
		mesh := disttest.Must(r.Mesh("dp=2,fsdp=2"))
		return sharded(m, fsdp.Config{Shard: mesh.Group("fsdp"), Replicate: mesh.Group("dp")})
	},
}

func sharded(m *remembering, c fsdp.Config) (nn.Params, error) {
	s := fsdp.New(c)
	s.Unit(m.Linear)
	return s.Attach(m)
}

// Buffers are the same on all ranks, or the program is refused: otherwise a rank would use, and save, what it alone has seen.
func TestBuffersAreCompared(t *testing.T) {
	for name, c := range map[string]struct {
		step int // in which the error comes; −1: none
		seen func(r *dist.Rank, step int, own []float32) error
	}{
		"a queue of own rows": {0, func(r *dist.Rank, step int, own []float32) error {
			own[step%len(own)] = float32(r.World.Rank())
			return nil
		}},
		"a codebook that moves to own rows": {0, func(r *dist.Rank, _ int, own []float32) error {
			own[0] = 0.9*own[0] + 0.1*float32(1+r.World.Rank())
			return nil
		}},
		"from the second step on, on one rank": {1, func(r *dist.Rank, step int, own []float32) error {
			if step == 1 && r.World.Rank() == 3 {
				own[2]++
			}
			return nil
		}},
		"a codebook that moves to the rows of all": {-1, func(r *dist.Rank, _ int, own []float32) error {
			sum := []float64{float64(r.World.Rank())}
			err := r.World.SumFloats(sum)
			own[0] = 0.9*own[0] + 0.1*float32(sum[0])
			return err
		}},
	} {
		for owner, attach := range owners {
			steps := 0
			err := disttest.OnRanks(4, func(r *dist.Rank) error {
				m := &remembering{nn.NewLinear(3, 2), tensor.NewBuffer(tensor.Constant(0), 3)}
				params := disttest.Must(attach(r, m))
				opt, tape := optim.NewSGD(params.Trainable(), optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
				defer tape.Close()
				for step := range 3 {
					disttest.OK(c.seen(r, step, tensor.Data[float32](m.Seen.Value)))
					x := tensor.New(r.Device, tensor.Float32, 2, 3).WithRows(r.World.Rows(2*r.World.Rank(), 8))
					tape.Backward(tensor.GlobalMean(m.Linear.Forward(tape.Input(x))))
					tape.Reset()
					disttest.OK(opt.Step())
					if r.World.Rank() == 0 {
						steps++
					}
				}
				return nil
			})
			if c.step < 0 {
				require.NoError(t, err, "%s, %s", owner, name)
				continue
			}
			require.ErrorContains(t, err, "seen must have the same values on all ranks of ", "%s, %s", owner, name)
			require.Equal(t, c.step, steps, "%s, %s", owner, name)
		}
	}
}

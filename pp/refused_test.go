package pp_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// pair returns the configuration of two ranks, with a stage each.
func pair(r *dist.Rank) (pp.Config, *chain) {
	c := newChain(2, func(i int) bool { return i == r.World.Rank() })
	return pp.Config{Group: r.World, Schedule: pp.OneF1B(2, 2), Stages: map[int]pp.Stage{r.World.Rank(): c.stage(r.World.Rank(), 2)},
		Tape: tensor.NewTape(r.Device), Params: nn.Init(c, r.Device, tensor.Float64, 1)}, c
}

var unfit = map[string]func(c *pp.Config, rank int){
	"pp: schedule 1f1b is for 3 ranks, and group world has 2": func(c *pp.Config, _ int) { c.Schedule = pp.OneF1B(3, 2) },
	"pp: ranks differ: rank 1 has schedule 1f1b of 2 stages, 3 microbatches, hash ": func(c *pp.Config, rank int) {
		c.Schedule = pp.OneF1B(2, 2+rank)
	},
	"pp: ranks differ: rank 1 has schedule 1f1b of 2 stages, 2 microbatches, hash ": func(c *pp.Config, rank int) {
		if rank == 1 {
			c.Schedule = pp.GPipe(2, 2)
			c.Schedule.Name = "1f1b"
		}
	},
	"pp: rank 1 of world has stages [1] in schedule 1f1b, and stages [] in Config.Stages": func(c *pp.Config, _ int) {
		delete(c.Stages, 1)
	},
	"pp: rank 0 of world has stages [0 2] in schedule interleaved, and stages [0] in Config.Stages": func(c *pp.Config, _ int) {
		c.Schedule = pp.Interleaved(2, 2, 2)
	},
	"seed 1, step 0, CheckEvery 0 where rank 0 has schedule 1f1b of 2 stages, 2 microbatches, hash ": func(c *pp.Config, rank int) {
		c.Tape = tensor.NewTape(c.Tape.Device(), tensor.Seed(uint64(rank)))
	},
	"pp: Config.Tape is nil: it has the seed": func(c *pp.Config, rank int) {
		if rank == 1 {
			c.Tape = nil
		}
	},
	"pp: Config.Schedule is nil": func(c *pp.Config, rank int) {
		if rank == 1 {
			c.Schedule = nil
		}
	},
	"pp: Config.CheckEvery is -1, want 1 or more, or 0": func(c *pp.Config, rank int) { c.CheckEvery = -rank },
	"seed 0, step 0, CheckEvery 1 where rank 0 has ":    func(c *pp.Config, rank int) { c.CheckEvery = rank },
	"pp: Config.Tape was made with Eval or NoGrad, and schedule 1f1b trains: make it without them, and evaluate by Schedule.Forward": func(
		c *pp.Config, rank int) {
		if rank == 1 {
			c.Tape = tensor.NewTape(c.Tape.Device(), tensor.Eval())
		}
	},
	"pp: Config.Stages[1] is nil: it is the function that computes stage 1": func(c *pp.Config, rank int) {
		if rank == 1 {
			c.Stages[1] = nil
		}
	},
	"pp: Config.Params is empty: it has what Attach returned; a rank whose stages have no parameters gives an Optimizer of none": func(
		c *pp.Config, rank int) {
		if c.Optimizer = optim.NewSGD(c.Params, optim.SGDConfig{LR: 1}); rank == 1 {
			c.Params = nil
		}
	},
	"pp: Config.Params is empty": func(c *pp.Config, rank int) { c.Params = c.Params[:2*rank] },
	"pp: layers.1.weight is on ranks 0 and 1 of the pipeline, and not cut alike: they have elements 0 to 9 of [{[0 0] [3 3]}], and " +
		"elements 0 to 4 of [{[0 0] [3 3]}]; with fsdp, make it a unit of its own": func(c *pp.Config, rank int) {
		if rank == 1 {
			c.Params[0].Shard(0, 4)
		} else {
			c.Params[0].SetName("layers.1.weight")
		}
	},
	"pp: layers.1.weight is on ranks 0 and 1 of the pipeline, and their optimizers differ: adam {beta1:0.9 beta2:0.999 eps:1e-08 " +
		"decoupled:true}, LR 0.001, WeightDecay 0, Clip 0, and sgd {momentum:0 dampening:0 nesterov:false}, LR 0.1, WeightDecay 0, " +
		"Clip 0; copies of one parameter must change alike": func(c *pp.Config, rank int) {
		c.Params[0].SetName("layers.1.weight")
		if c.Optimizer = optim.NewAdamW(c.Params, optim.AdamWConfig{}); rank == 1 {
			c.Optimizer = optim.NewSGD(c.Params, optim.SGDConfig{LR: 0.1})
		}
	},
	"pp: layers.1.weight is on ranks 0 and 1 of the pipeline, and only one of them has frozen it: copies of one parameter must change " +
		"alike; call its Freeze on both, before Attach": func(c *pp.Config, rank int) {
		if c.Params[0].SetName("layers.1.weight"); rank == 1 {
			c.Params[0].Freeze()
		}
	},
	"WeightDecay 0.2, Clip 0; copies of one parameter": func(c *pp.Config, rank int) {
		c.Params[0].SetName("layers.1.weight")
		c.Optimizer = optim.NewSGD(c.Params, optim.SGDConfig{LR: 0.1, WeightDecay: 0.1 * float64(1+rank)})
	},
}

// What does not fit is an error on all ranks, before the first message.
func TestNewRefuses(t *testing.T) {
	for want, change := range unfit {
		disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
			c, _ := pair(r)
			change(&c, r.World.Rank())
			_, err := pp.New(c)
			return err
		})
	}
	_, err := pp.New(pp.Config{})
	require.ErrorContains(t, err, "pp: Config.Group is nil")
}

// A lost rank's stages are lost: the others cannot go on.
func TestNewRefusesRebuild(t *testing.T) {
	t.Setenv("RINGO_REBUILD", "1")
	err := disttest.OnRanks(2, func(r *dist.Rank) error {
		c, _ := pair(r)
		_, err := pp.New(c)
		return err
	})
	require.ErrorContains(t, err, "pp: ringo run -rebuild goes on without a lost rank, but pp divides parameters")
}

// Schedules that cannot run are refused with their reasons, on all ranks.
func TestNewRefusesBrokenSchedules(t *testing.T) {
	require.GreaterOrEqual(t, len(broken), 12)
	for text, want := range broken {
		disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
			c, _ := pair(r)
			c.Schedule = must(pp.ReadCSV("x", strings.NewReader(text)))
			_, err := pp.New(c)
			return err
		})
	}
}

// A stage that fails ends all ranks, with its error; there is no other Step.
func TestStepFails(t *testing.T) {
	disttest.EachFails(t, 2, "stage 1 has enough", func(r *dist.Rank) error {
		c, _ := pair(r)
		if run := c.Stages[1]; run != nil {
			c.Stages[1] = func(t *tensor.Tape, micro int, x nn.T) nn.T {
				if micro == 1 {
					panic(&tensor.Failure{Op: "test", Err: errors.New("stage 1 has enough")})
				}
				return run(t, micro, x)
			}
		}
		p := disttest.Must(pp.New(c))
		_, err := p.Step()
		_, again := p.Step()
		assert.ErrorContains(t, again, "pp: a Step has failed before: ")
		return err
	})
}

// An error inside a stage names the stage and the microbatch; what ranks do not do alike is named, too.
func TestStepNamesTheStage(t *testing.T) {
	for want, output := range map[string]func(c pp.Config, t *tensor.Tape, x nn.T) nn.T{
		"pp: stage 1, microbatch 1: add float64[2,3], float32[1]: ": func(_ pp.Config, t *tensor.Tape, x nn.T) nn.T {
			return x.Add(t.Input(tensor.New(t.Device(), tensor.Float32, 1)))
		},
		"pp: stage 1, microbatch 1: Backward layers.1.weight float64[3,3]: needs one element": func(
			c pp.Config, t *tensor.Tape, _ nn.T) nn.T {
			return t.Use(c.Params[0])
		},
		"pp: 1F1 returned none: a Stage returns its output, and the last one the loss": func(pp.Config, *tensor.Tape, nn.T) nn.T {
			return nn.T{}
		},
	} {
		disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
			c, _ := pair(r)
			if run := c.Stages[1]; run != nil {
				c.Stages[1] = func(t *tensor.Tape, micro int, x nn.T) nn.T {
					if micro == 1 {
						return output(c, t, x)
					}
					return run(t, micro, x)
				}
			}
			_, err := disttest.Must(pp.New(c)).Step()
			return err
		})
	}
	const alone = "; a rank that calls SetRows alone sends other messages: all ranks of the pipeline call it alike"
	err := disttest.OnRanks(2, func(r *dist.Rank) error {
		c, _ := pair(r)
		p, opt := disttest.Must(pp.New(c)), optim.NewSGD(c.Params, optim.SGDConfig{LR: 0.1})
		for range 2 {
			if _, err := p.Step(); err != nil {
				return err
			}
			disttest.OK(opt.Step())
			if r.World.Rank() == 1 {
				p.SetRows(tensor.Rows{Total: 8}, 8)
			}
		}
		return nil
	})
	require.ErrorContains(t, err, alone)
}

// What a stage sends must be the same in each step, or the receiver would cut it.
func TestOtherShapes(t *testing.T) {
	for want, other := range map[string]func(x nn.T) nn.T{
		"pp: 0F1 sends float64[1,3] to the next rank, and sent float64[2,3] in the first step with these rows; ": func(x nn.T) nn.T {
			return x.Slice(0, 0, 1)
		},
		"pp: 0F1 sends float64[2,3] to the next rank, and sent float64[2,3] in the first step with": func(x nn.T) nn.T {
			return x.Permute(1, 0).Reshape(2, 3)
		},
	} {
		disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
			c, _ := pair(r)
			step := 0
			if run := c.Stages[0]; run != nil {
				c.Stages[0] = func(t *tensor.Tape, micro int, x nn.T) nn.T {
					if x = run(t, micro, x); step == 1 && micro == 1 {
						x = other(x)
					}
					return x
				}
			}
			p, opt := disttest.Must(pp.New(c)), optim.NewSGD(c.Params, optim.SGDConfig{LR: 0.1})
			for ; step < 2; step++ {
				if _, err := p.Step(); err != nil {
					return err
				}
				disttest.OK(opt.Step())
			}
			return nil
		})
	}
}

// A microbatch that divides by a count of its own would weigh more than the others.
func TestOwnCounts(t *testing.T) {
	const want = "pp: 1F1 divides by the count 4, and another microbatch of the step by 3: Count of CrossEntropyOptions, and the number of "
	disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
		c, _ := pair(r)
		if run := c.Stages[1]; run != nil {
			c.Stages[1] = func(t *tensor.Tape, micro int, x nn.T) nn.T {
				t.Agree(float64(3 + micro))
				t.Agree(7) // of another loss
				return run(t, micro, x)
			}
		}
		_, err := disttest.Must(pp.New(c)).Step()
		return err
	})
}

type meanCase struct {
	bare, warns bool
	loss        func(t *tensor.Tape, x nn.T) nn.T
	rows        *[2]int // of the microbatches, with Rows
}

// sums adds losses that are sums, also of a single row, and means of them.
func sums(cases map[string]meanCase) {
	for name, loss := range map[string]func(x nn.T) nn.T{ // of microbatches of one row and of two
		"sum":                        func(x nn.T) nn.T { return x.Sum() },
		"sum of rows' sums":          func(x nn.T) nn.T { return x.Sum(1).Sum() },
		"sum of rows' means":         func(x nn.T) nn.T { return x.Mean(1).Sum() },
		"sum of features' sums":      func(x nn.T) nn.T { return x.Sum(0).Sum() },
		"sum of rows of one feature": func(x nn.T) nn.T { return x.Slice(1, 1, 2).Reshape(x.Dim(0)).Sum() },
		"third of a sum":             func(x nn.T) nn.T { return x.Sum(1).Sum().Scale(1. / 3) },
	} {
		for _, rows := range []*[2]int{nil, {1, 2}, {1, 1}} {
			cases[fmt.Sprintf("%s, rows %v", name, rows)] = meanCase{bare: rows == nil, rows: rows,
				loss: func(_ *tensor.Tape, x nn.T) nn.T { return loss(x) }}
			cases[fmt.Sprintf("mean of rows' sums, rows %v", rows)] = meanCase{bare: rows == nil, rows: rows, warns: true,
				loss: func(_ *tensor.Tape, x nn.T) nn.T { return x.Sum(1).Mean() }}
		}
	}
}

// A loss that is the mean of a microbatch counts once for each of them. That may be meant: it is a warning.
func TestMeansOfMicrobatches(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	mean := func(_ *tensor.Tape, x nn.T) nn.T { return x.Square().Mean() }
	labels := func(t *tensor.Tape, x nn.T) nn.T {
		return nn.CrossEntropy(x, t.Input(tensor.FromSlice([]int64{0, 2, 1}[:x.Dim(0)], x.Dim(0))))
	}
	cases := map[string]meanCase{
		"mean":                    {warns: true, loss: mean},
		"mean without rows":       {bare: true, warns: true, loss: mean},
		"labels without rows":     {bare: true, warns: true, loss: labels},
		"global mean":             {loss: func(_ *tensor.Tape, x nn.T) nn.T { return tensor.GlobalMean(x.Square()) }},
		"labels":                  {loss: labels},
		"divided by microbatches": {loss: func(t *tensor.Tape, x nn.T) nn.T { return mean(t, x).Scale(1. / 2) }},
		"labels, divided": {bare: true, loss: func(t *tensor.Tape, x nn.T) nn.T {
			return labels(t, x).Scale(1. / 2)
		}},
		"sum, divided by the batch": {bare: true, loss: func(_ *tensor.Tape, x nn.T) nn.T { return x.Square().Sum().Scale(1. / 9) }},
		"global mean of all rows": {rows: &[2]int{3, 0}, loss: func(_ *tensor.Tape, x nn.T) nn.T {
			return tensor.GlobalMean(x.Square())
		}},
		"mean of all rows": {rows: &[2]int{3, 0}, loss: mean},
	}
	sums(cases)
	for name, c := range cases {
		for _, schedule := range []*pp.Schedule{pp.OneF1B(2, 2), pp.ZBH1(2, 2)} {
			log.Reset()
			require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
				cfg, m := pair(r)
				cfg.Schedule = schedule
				if run := cfg.Stages[0]; run != nil {
					cfg.Stages[0] = func(t *tensor.Tape, micro int, x nn.T) nn.T {
						switch {
						case c.bare:
							return m.Layers[0].Forward(t.Input(tensor.New(t.Device(), tensor.Float64, micro+1, 3)))
						case c.rows != nil:
							at := tensor.Rows{First: micro * c.rows[0], Stride: 1, Total: c.rows[0] + c.rows[1]}
							return m.Layers[0].Forward(t.Input(tensor.New(t.Device(), tensor.Float64, c.rows[micro], 3).WithRows(at)))
						}
						return run(t, micro, x)
					}
				} else {
					cfg.Stages[1] = func(t *tensor.Tape, _ int, x nn.T) nn.T { return c.loss(t, m.Layers[1].Forward(x)) }
				}
				_, err := disttest.Must(pp.New(cfg)).Step()
				return err
			}), name)
			const want = " is a mean over this microbatch alone, and Step adds up those of all 2: give inputs and labels their Rows"
			require.Equal(t, c.warns, strings.Contains(log.String(), want), "%s: %s", name, log.String())
			require.Equal(t, c.warns, log.Len() > 0, name)
		}
	}
}

// One that leaves a loss out does not divide by other counts.
func TestCountsOfSomeMicrobatches(t *testing.T) {
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		c, _ := pair(r)
		if run := c.Stages[1]; run != nil {
			c.Stages[1] = func(t *tensor.Tape, micro int, x nn.T) nn.T {
				if t.Agree(3); micro == 1 {
					t.Agree(7)
				}
				return run(t, micro, x)
			}
		}
		_, err := disttest.Must(pp.New(c)).Step()
		return err
	}))
}

// A stage's output that does not depend on its input leaves the stages before it without a gradient.
func TestLostInput(t *testing.T) {
	const want = "pp: the output of stage 1 does not depend on its input: there is no gradient for stage 0"
	disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
		c, m := pair(r)
		if c.Stages[1] != nil {
			c.Stages[1] = func(t *tensor.Tape, micro int, x nn.T) nn.T { return t.Use(m.Layers[1].W).Square().Sum() }
		}
		_, err := disttest.Must(pp.New(c)).Step()
		return err
	})
}

// What types cannot see, ranks compare in the first steps.
func TestComparisons(t *testing.T) {
	p := program{kind: gpt.Llama, tied: true}
	for want, l := range map[string]layout{
		"stages clip by the norm of the whole model; set Norm of the optimizer to r.World": {mesh: "pp=2,fsdp=2", stage: 2,
			norm: func(j *job) optim.Norm { return j.att.Shards }},
		"pp: tok.weight must have the same values on all ranks of ": {mesh: "pp=3", after: func(j *job) error {
			if w := j.model.Tok; w != nil && j.mesh.Coord("pp") == 0 {
				tensor.Data[float64](w.W.Value)[0]++
			}
			return nil
		}},
		"pp: tok.weight must have the same values on all ranks of pp": {mesh: "pp=2", start: func(j *job) error {
			j.opt.SetLR(0.01 * float64(1+j.mesh.Coord("pp"))) // of a table that two stages have
			return nil
		}},
		"pp: losses are scaled by 1024 on a rank of the pipeline, and by 2048 on another one: Scale of their optimizers' Scalers must be": {
			mesh: "pp=2", config: func(c *pp.Config) { c.Optimizer.Scaler().Scale *= float64(1 + c.Group.Rank()) }},
		"pp: losses have one scale, and optimizers divide the gradients of ": {mesh: "pp=2", config: func(c *pp.Config) {
			optim.NewSGD(c.Params[:1], optim.SGDConfig{LR: 1})
			c.Optimizer = nil
		}},
	} {
		p.scaled = strings.Contains(want, "scale")
		_, err := p.training(l).Try()
		require.ErrorContains(t, err, want)
	}
	for _, l := range []layout{{mesh: "pp=2"}, {mesh: "pp=2,dp=2"}, {mesh: "pp=2,fsdp=2", stage: 2, schedule: "zbv"}} {
		_, err := program{kind: gpt.Llama, alone: true}.training(l).Try()
		require.ErrorContains(t, err, "microbatches 0 and 1 have the same rows of the batch: losses divide by", l.mesh)
	}
	disttest.EachFails(t, 2, "the rows of a step do not add up", func(r *dist.Rank) error {
		c, m := pair(r)
		if c.Stages[0] != nil {
			c.Stages[0] = m.stage(0, 3) // of three microbatches, of which there are two
		}
		_, err := disttest.Must(pp.New(c)).Step()
		return err
	})
}

// CheckEvery goes on with it.
func TestCheckEvery(t *testing.T) {
	p := program{kind: gpt.Llama, tied: true}
	for every, steps := range map[int]int{0: 10, 3: 7} { // those that are done: after steps 0, 1 and 4, and after steps 3 and 6, ranks compare
		drift := func(j *job) error {
			if j.state.Step == 5 && j.mesh.Coord("pp") == 0 {
				tensor.Data[float64](j.model.Tok.W.Value)[0]++
			}
			return nil
		}
		res, err := p.training(layout{mesh: "pp=3", after: drift, config: func(c *pp.Config) { c.CheckEvery = every }}).Try()
		require.Len(t, res.Norms, steps)
		if every > 0 {
			require.ErrorContains(t, err, "pp: tok.weight must have the same values on all ranks of ")
		}
	}
}

// A schedule of forward passes alone evaluates, without dropout and gradients.
func TestEvaluation(t *testing.T) {
	var list []*pp.Schedule
	for _, lines := range []string{"0F0,0F1,2F0,0F2,0F3,2F1,0F4,2F2,2F3,2F4\n1F0,1F1,1F2,1F3,1F4",
		"0F0,0F1,0F2,0F3,0F4,0F5,2F0,2F1,2F2,2F3,2F4,2F5\n1F0,1F1,1F2,1F3,1F4,1F5"} {
		list = append(list, must(pp.ReadCSV(lines, strings.NewReader(lines))))
	}
	for _, name := range pp.Names() {
		list = append(list, must(pp.ByName(name, 3, 2, 9)).Forward())
	}
	for _, s := range list {
		evaluate(t, s)
	}
}

// evaluate runs a schedule without backward passes in steps, and compares with one rank.
func evaluate(t *testing.T, s *pp.Schedule) {
	dev := cpu.New(1)
	defer dev.Close()
	micros, n := s.Micros, len(s.Ranks)
	whole := newChain(n, func(int) bool { return true })
	nn.Init(whole, dev, tensor.Float64, 1)
	tape, want := tensor.NewTape(dev, tensor.NoGrad()), 0.0
	for m := range micros {
		var x nn.T
		for i := range n {
			x = whole.stage(i, micros)(tape, m, x)
		}
		want += x.Item()
	}
	require.NoError(t, disttest.OnRanks(len(s.Actions), func(r *dist.Rank) error {
		c := newChain(n, func(i int) bool { return s.Ranks[i] == r.World.Rank() })
		stages := map[int]pp.Stage{}
		for i, rank := range s.Ranks {
			if rank == r.World.Rank() {
				stages[i] = c.stage(i, micros)
			}
		}
		p := disttest.Must(pp.New(pp.Config{Group: r.World, Schedule: s, Stages: stages, Tape: tensor.NewTape(r.Device),
			Params: nn.Init(c, r.Device, tensor.Float64, 1)}))
		for range 3 {
			loss := disttest.Must(p.Step())
			if s.Ranks[n-1] == r.World.Rank() {
				assert.InDelta(t, want, loss, 1e-14, s.Name)
			} else {
				assert.Zero(t, loss)
			}
		}
		return nil
	}), s.Name)
}

// Rows that do not say over which ranks the batch is divided, and steps without gradients, name what is missing.
func TestHints(t *testing.T) {
	plain := func(j *job) { j.plain = true }
	for want, l := range map[string]layout{
		"in a pipeline, does the batch have the Rows of Group.Rows?": {mesh: "pp=2,dp=2", change: plain},
		"Step after it. In a pipeline, the schedule trains, and a stage whose output is detached is frozen (Freeze)": {mesh: "pp=2",
			config: func(c *pp.Config) { c.Schedule = c.Schedule.Forward() }},
	} {
		_, err := program{kind: gpt.Llama}.training(l).Try()
		require.ErrorContains(t, err, want)
	}
	_, err := program{kind: gpt.Llama}.training(layout{mesh: "pp=2", config: func(c *pp.Config) {
		if run := c.Stages[0]; run != nil {
			c.Stages[0] = func(t *tensor.Tape, micro int, x nn.T) nn.T { return run(t, micro, x).Detach() }
		}
	}}).Try()
	require.ErrorContains(t, err, "a stage whose output is detached is frozen (Freeze)")
}

// Along the pipeline all is the same on all ranks: neither gradients are summed there, nor rows divided.
func TestAxisOfThePipeline(t *testing.T) {
	disttest.EachFails(t, 2, "ddp: ranks differ: rank 1 has layers.1", func(r *dist.Rank) error {
		c := newChain(2, func(i int) bool { return i == r.World.Rank() })
		_, err := ddp.Attach(r.World, c, ddp.Config{})
		return err
	})
	disttest.EachFails(t, 2, "the gradient lacks the sum over the ranks", func(r *dist.Rank) error {
		c, m := pair(r)
		if c.Stages[0] != nil {
			c.Stages[0] = func(t *tensor.Tape, micro int, _ nn.T) nn.T {
				return m.Layers[0].Forward(t.Input(tensor.New(t.Device(), tensor.Float64, 1, 3).WithRows(r.World.Rows(micro, 2))))
			}
		}
		_, err := disttest.Must(pp.New(c)).Step()
		return err
	})
}

package fsdp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// again has what runs a second time in Backward: Checkpoints in a Checkpoint, a Scope in one, and a tied weight that is used inside and
// outside of them.
type again struct{ toy }

func newAgain() model { return &again{*newToy()} }

func (n *again) Forward(x nn.T) nn.T {
	t := x.Tape()
	block := func(i int) func(in ...nn.T) nn.T {
		return func(in ...nn.T) nn.T { return n.Blocks[i].Forward(in[0]) }
	}
	x = n.In.Forward(x).Mul(t.Use(n.Scale))
	x = t.Checkpoint(func(in ...nn.T) nn.T {
		return n.Tied.Forward(t.Checkpoint(block(1), t.Checkpoint(block(0), in[0])))
	}, x)
	x = t.Checkpoint(func(in ...nn.T) nn.T { return t.Scope(block(2), in[0]).Mul(t.Use(n.Scale)) }, x)
	return n.Head.Forward(n.Wide.Forward(n.Tied.Forward(n.Blocks[3].Forward(x))).Tanh())
}

// deferring makes a step whose weight gradients are put off: those that a Checkpoint or a Function computes earlier come to their owner
// with the others.
func deferring(micro int, loss func(b disttest.Batch) nn.T) func(s *disttest.State) ([]float64, error) {
	return func(s *disttest.State) (losses []float64, err error) {
		for m := range micro {
			l := loss(s.Batch(s.Tape, m))
			losses = append(losses, l.Item())
			if s.Tape.Backward(l, tensor.DeferWeights()); m < micro-1 {
				s.Tape.RunDeferred(tensor.More())
			} else {
				s.Tape.RunDeferred()
			}
			s.Tape.Reset()
		}
		return losses, s.Optimizer.Step()
	}
}

// With every owner, weight gradients that are put off are those of one rank without that. The short form has two microbatches.
func TestDeferredWeightsOfCheckpoints(t *testing.T) {
	for _, micro := range []int{1, 2} {
		if micro == 1 && !reliability.Long(t) {
			continue
		}
		j := job{one: true, model: newAgain, cfg: fsdp.Config{DType: tensor.Float64}}
		j.Micro = micro
		want := j.run(t)
		j.step = func(p place) ([]float64, error) {
			return deferring(micro, func(b disttest.Batch) nn.T {
				x, y := b.Samples(disttest.Dataset{DType: tensor.Float64, Features: width})
				return nn.CrossEntropy(p.model.Forward(x), y)
			})(p.State)
		}
		disttest.RequireEqual(t, want, j.run(t), 1e-12)
		j.Ranks, j.one = 3, false
		t.Run(fmt.Sprintf("fsdp, %d microbatches", micro), func(t *testing.T) {
			j := j
			for j.cfg.Stage = 1; j.cfg.Stage <= 3; j.cfg.Stage++ {
				for _, j.cfg.OncePerStep = range []bool{false, true} {
					if j.cfg.OncePerStep != (j.cfg.Stage == 2) && !reliability.Long(t) {
						continue
					}
					disttest.RequireEqual(t, want, j.run(t), 1e-10)
				}
			}
		})
		t.Run(fmt.Sprintf("ddp, %d microbatches", micro), func(t *testing.T) {
			j.with = func(r *dist.Rank, n model) (nn.Params, error) {
				return ddp.Attach(r.World, n, ddp.Config{DType: tensor.Float64, Seed: 7, BucketBytes: 300})
			}
			disttest.RequireEqual(t, want, j.run(t), 1e-10)
		})
	}
}

func TestLongDeferredWeightsOfCheckpoints(t *testing.T) {
	reliability.AsLong(t, TestDeferredWeightsOfCheckpoints)
}

// The same where a parameter goes through a sum over tp, in a Checkpoint and, in the long form, outside of one.
func TestDeferredWeightsThroughASum(t *testing.T) {
	for k, model := range []func() cutModel{newMixerAgain, newMixer} {
		if k == 1 && !reliability.Long(t) {
			continue
		}
		j := cutJob{model: model}
		want := j.run(t)
		j.deferred, j.Mesh = true, "dp=1,fsdp=2,tp=2"
		for stage := 1; stage <= 3; stage++ {
			if j.cfg.Stage = stage; stage == 3 || reliability.Long(t) {
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
		j.with = func(m *dist.Mesh, n cutModel, c fsdp.Config) (nn.Params, error) {
			return ddp.Attach(n.rows(m), n, ddp.Config{DType: c.DType, Seed: c.Seed, BucketBytes: 300})
		}
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	}
}

func TestLongDeferredWeightsThroughASum(t *testing.T) {
	reliability.AsLong(t, TestDeferredWeightsThroughASum)
}

// schedules are orders of forward (F) and Backward (B) of four microbatches, on as many tapes as are live at a time.
var schedules = map[string]string{
	"one tape":          "F0 B0 F1 B1 F2 B2 F3 B3",
	"all forward first": "F0 F1 F2 F3 B0 B1 B2 B3",
	"last in first out": "F0 F1 F2 F3 B3 B2 B1 B0",
	"1F1B":              "F0 F1 B0 F2 B1 F3 B2 B3",
	"some of each":      "F0 F1 B1 F2 B2 F3 B0 B3",
}

// trainBy runs four steps of a schedule, and returns also how many gathers the last step took.
func trainBy(t *testing.T, j job, schedule string) (res disttest.Result, gathers uint64) {
	t.Helper()
	j.Ranks = 3
	j.step = func(p place) ([]float64, error) {
		stats := p.sharding.Groups()[0].Stats
		before := stats().Calls["allgatherv"]
		losses := oneStep(p, strings.Fields(schedule))
		if p.Rank.World.Rank() == 0 {
			gathers = stats().Calls["allgatherv"] - before
		}
		return losses, p.Optimizer.Step()
	}
	return j.run(t), gathers
}

func oneStep(p place, schedule []string) []float64 {
	var tapes [4]*tensor.Tape
	var losses [4]nn.T
	values := make([]float64, 4)
	for i, what := range schedule {
		k := int(what[1] - '0')
		switch {
		case what[0] == 'F':
			tapes[k] = tensor.NewTape(p.Rank.Device, tensor.Seed(3))
			defer tapes[k].Close()
			tapes[k].SetStep(p.Step, k)
			x, y := p.Batch(tapes[k], k).Samples(disttest.Dataset{DType: tensor.Float64, Features: width})
			losses[k] = nn.CrossEntropy(p.model.Forward(x), y)
			values[k] = losses[k].Item()
			continue
		case i < len(schedule)-1:
			tapes[k].Backward(losses[k], tensor.More())
		default:
			tapes[k].Backward(losses[k])
		}
		tapes[k].Reset()
	}
	return values
}

// Several tapes may be live, as in a pipeline: whatever the order, training is as on one rank with one tape.
func TestSeveralTapes(t *testing.T) {
	for name, m := range map[string]func() model{"chain": newChain, "toy": func() model { return newToy() }} {
		j := job{training: training{Steps: 4, Micro: 4, Batch: 36}, model: m, cfg: fsdp.Config{DType: tensor.Float64}, one: true}
		want := j.run(t)
		j.one, j.cfg.OncePerStep = false, name == "toy"
		for schedule, s := range schedules {
			for j.cfg.Stage = 1; j.cfg.Stage <= 3; j.cfg.Stage++ {
				chosen := j.cfg.Stage == 3 && name == "chain" && (schedule == "one tape" || schedule == "some of each") ||
					j.cfg.Stage == 2 && name == "toy" && schedule == "1F1B"
				if chosen == reliability.Long(t) {
					continue
				}
				got, gathers := trainBy(t, j, s)
				disttest.RequireEqual(t, want, got, 1e-10)
				if name == "chain" && j.cfg.Stage == 3 {
					each := map[bool]int{true: 5 + 4, false: 5 + 5}[schedule == "one tape"]
					require.Equal(t, uint64(4*each), gathers, schedule)
				}
			}
		}
	}
}

func TestLongSeveralTapes(t *testing.T) { reliability.AsLong(t, TestSeveralTapes) }

// A gain that ranks of tp share, whose gradient goes through a sum over them, trains under ddp as on one rank, in microbatches
// and in a Checkpoint, too. TestCutByHeads has it under fsdp. The short form has one mesh for each.
func TestThroughUnderDDP(t *testing.T) {
	for k, model := range []func() cutModel{newMixer, newMixerAgain} {
		j := cutJob{model: model}
		want := j.run(t)
		j.with = func(m *dist.Mesh, n cutModel, c fsdp.Config) (nn.Params, error) {
			return ddp.Attach(n.rows(m), n, ddp.Config{DType: c.DType, Seed: c.Seed, BucketBytes: 300})
		}
		for i, mesh := range []string{"dp=1,fsdp=2,tp=2", "dp=1,fsdp=1,tp=4", "dp=1,fsdp=3,tp=2"} {
			if j.Mesh = mesh; (i == k+1) != reliability.Long(t) {
				disttest.RequireEqual(t, want, j.run(t), 1e-10)
			}
		}
	}
}

func TestLongThroughUnderDDP(t *testing.T) { reliability.AsLong(t, TestThroughUnderDDP) }

// What Through does once, it does once: a gain that is used in two Checkpoints and outside of them, and runs again in
// Backward, gets the sum over tp of each of its gradients, whoever owns it.
func TestThroughInCheckpoints(t *testing.T) {
	for _, how := range []string{"nobody", "ddp", "fsdp"} {
		require.NoError(t, disttest.OnRanks(4, func(r *dist.Rank) error {
			mesh := disttest.Must(r.Mesh("dp=2,tp=2"))
			dp, tp := mesh.Group("dp"), mesh.Group("tp")
			m := &struct{ Gain, Wide *tensor.Param }{tensor.NewParam(tensor.Constant(2), 1), tensor.NewParam(tensor.Constant(1), 3)}
			m.Wide.Place(tp.Axis(), layout.Division{}) // two, and one
			m.Gain.Through(&autograd.Copy{Group: tp})
			rows, ranks := tensor.Rows{}, 1
			switch how {
			case "nobody":
				nn.Init(m, r.Device, tensor.Float64, 1)
			case "ddp":
				disttest.Must(ddp.Attach(dp, m, ddp.Config{DType: tensor.Float64}))
			case "fsdp":
				s := fsdp.New(fsdp.Config{Shard: dp, DType: tensor.Float64})
				s.Unit(m)
				disttest.Must(s.Attach(m))
			}
			if how != "nobody" {
				rows, ranks = dp.Rows(dp.Rank(), 2), 2
			}
			tape := tensor.NewTape(r.Device)
			for micro := range 2 {
				x := tape.Input(tensor.FromSlice([]float64{1}, 1, 1).WithRows(rows))
				scale := func(in ...nn.T) nn.T { return in[0].Mul(tape.Use(m.Gain)) }
				y := tape.Checkpoint(scale, tape.Checkpoint(scale, x.Mul(tape.Use(m.Wide)))).Mul(tape.Use(m.Gain)).Sum() // gain³ a feature
				if micro == 0 {
					tape.Backward(y, tensor.More())
				} else {
					tape.Backward(y)
				}
				tape.Reset()
			}
			if m.Gain.Grad.Len() == 1 { // with fsdp, of one rank
				require.Equal(t, float64(2*ranks*3*3*2*2), m.Gain.Grad.Item(), "%s: microbatches, rows, features, 3·gain²", how)
			}
			return nil
		}), how)
	}
}

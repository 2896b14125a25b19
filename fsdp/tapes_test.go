package fsdp_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

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
		j.one, j.cfg.HoldGrads = false, name == "chain"
		for schedule, s := range schedules {
			for j.cfg.Stage = 1; j.cfg.Stage <= 3; j.cfg.Stage++ {
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

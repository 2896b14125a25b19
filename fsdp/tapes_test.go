package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
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

// trainBy runs four steps of a schedule and returns the parameters, and how many gathers the last step took.
func trainBy(t *testing.T, c fsdp.Config, schedule string, m func() model) (res []float64, gathers uint64) {
	t.Helper()
	require.NoError(t, onRanks(3, func(r *dist.Rank) error {
		c := c
		c.Shard, c.DType, c.Seed = r.World, tensor.Float64, 7
		n, s := m(), fsdp.New(c)
		n.units(s)
		params, err := s.Attach(n)
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.05, Clip: 0.5, Norm: s})
		var tapes [4]*tensor.Tape
		for k := range tapes {
			tapes[k] = tensor.NewTape(r.Device, tensor.Seed(3))
		}
		gathered := func() uint64 { return s.Groups()[0].Stats().Calls["allgatherv"] }
		var before uint64
		for step := range 4 {
			before = gathered()
			if err := oneStep(r, n, tapes[:], step, schedule); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
		}
		if r.World.Rank() == 0 {
			gathers = gathered() - before
		}
		for _, p := range params {
			x, err := s.Full(p)
			if err != nil {
				return err
			}
			if r.World.Rank() == 0 {
				res = append(res, tensor.Floats(x)...)
			}
		}
		return nil
	}))
	return res, gathers
}

func oneStep(r *dist.Rank, n model, tapes []*tensor.Tape, step int, schedule string) error {
	var losses [4]nn.T
	for left := len(schedule); left > 0; left -= 3 {
		at := len(schedule) - left
		k := int(schedule[at+1] - '0')
		tape := tapes[k]
		if schedule[at] == 'F' {
			first, rows := disttest.Part(9, r.World.Rank(), r.World.Size())
			x, y := batch(r, tensor.Float64, 36*step+9*k+first, rows)
			tape.SetStep(step, k)
			losses[k] = nn.CrossEntropy(n.Forward(tape.Input(x.WithRows(r.World.Rows(9*k+first, 36)))), y)
			continue
		}
		if left > 3 {
			tape.Backward(losses[k], tensor.More())
		} else {
			tape.Backward(losses[k])
		}
		tape.Reset()
	}
	return nil
}

// Several tapes may be live, as in a pipeline: whatever the order, a step has the same gradients up to their rounding.
func TestSeveralTapes(t *testing.T) {
	for name, m := range map[string]func() model{"chain": newChain, "toy": func() model { return newToy() }} {
		want, _ := trainBy(t, fsdp.Config{}, schedules["one tape"], m)
		for schedule, s := range schedules {
			for stage := 1; stage <= 3; stage++ {
				got, gathers := trainBy(t, fsdp.Config{Stage: stage, HoldGrads: name == "chain"}, s, m)
				require.InDeltaSlice(t, want, got, 1e-10, "%s, %s, stage %d", name, schedule, stage)
				if name == "chain" && stage == 3 {
					each := map[bool]int{true: 5 + 4, false: 5 + 5}[schedule == "one tape"]
					require.Equal(t, uint64(4*each), gathers, schedule)
				}
			}
		}
	}
}

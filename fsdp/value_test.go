package fsdp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/tensor"
)

// Param.Value is read only while it is right: after a step an error names the parameter, where other ranks have newer parts; a forward pass
// gathers it again, and frozen values stay.
func TestValueAfterStep(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		for _, ranks := range []int{1, 3} {
			j := job{training: training{Steps: 10}, cfg: fsdp.Config{DType: tensor.Float64, Stage: stage}, model: newAdapter}
			want := onOne(j).run(t)
			j.Ranks, j.before = ranks, func(p place) error {
				if err := readValues(p, stage == 3, p.Step > 0 && ranks > 1, ranks > 1); err != nil {
					return err
				}
				x, _ := batch(p.Rank, tensor.Float64, 100, 2)
				eval := tensor.NewTape(p.Rank.Device, tensor.Eval(), tensor.NoGrad())
				p.model.Forward(eval.Input(x))
				return readValues(p, stage == 3, true, false)
			}
			disttest.RequireEqual(t, want, j.run(t), 1e-10)
		}
	}
}

// readValues reads all values. freed are those of units that do not stay; the frozen ones of other units are there if frozen is set, and
// those that train unless stale is set.
func readValues(p place, freed, frozen, stale bool) error {
	for i, q := range p.Params {
		full, err := p.sharding.Full(q)
		if err != nil {
			return err
		}
		var got []float64
		err = tensor.Try(func() { got = tensor.Floats(q.Value) })
		there := !stale
		if q.Frozen() {
			there = frozen || !stale
		}
		if freed && i > 1 { // behind the stem
			if there = false; !stale && frozen { // the last unit may be there still
				continue
			}
		}
		why := fmt.Sprintf("memory of %s is not there: fsdp gathers the value for a forward pass, and it was changed or freed since, or not "+
			"gathered yet: read Local, this rank's part, or the whole that Full of fsdp.Sharding returns", q.Name())
		switch {
		case there && (err != nil || !slices.Equal(got, tensor.Floats(full))):
			return fmt.Errorf("step %d: %s is not as Full says: %w", p.Step, q.Name(), err)
		case !there && (err == nil || !strings.Contains(err.Error(), why)):
			return fmt.Errorf("step %d: %s: %w", p.Step, q.Name(), err)
		}
	}
	return nil
}

// SetValue is for before Attach: it would take a parameter out of its unit.
func TestSetValueAfterAttach(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		j := job{training: training{Ranks: 2, Steps: 3, Micro: 1}, cfg: fsdp.Config{DType: tensor.Float64, Stage: stage}}
		j.before = func(p place) error {
			w := p.model.(*toy).Blocks[1].MLP.Up.W
			return tensor.Try(func() { w.SetValue(tensor.New(p.Rank.Device, tensor.Float64, w.Dims()...)) })
		}
		_, err := j.whole().Try()
		require.ErrorContains(t, err, "blocks.1.mlp.up.weight has another tensor as Value than Attach gave it: call SetValue before Attach, or "+
			"write this rank's part behind it (tensor.Copy to Local, and Changed)")
	}
}

// A buffer that one rank alone changes is named.
func TestBuffersThatDiffer(t *testing.T) {
	for stage := 1; stage <= 3; stage++ {
		j := job{training: training{Ranks: 2, Steps: 3, Micro: 1}, cfg: fsdp.Config{DType: tensor.Float64, Stage: stage}, model: newFrozen}
		j.before = func(p place) error {
			mean := p.model.(*frozen).Mean
			if full, err := p.sharding.Full(&mean.Param); err != nil || full != mean.Value {
				return fmt.Errorf("not all of the buffer: %w", err)
			}
			if p.Step == 1 && p.Rank.World.Rank() == 1 {
				tensor.Data[float64](mean.Value)[2]++
				mean.Changed()
			}
			return nil
		}
		_, err := j.whole().Try()
		require.ErrorContains(t, err, "fsdp: mean must have the same values on all ranks of world, and those of rank 1 are not rank 0's")
	}
}

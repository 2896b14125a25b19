package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// write changes a value, without a word.
func write(x tensor.Tensor) {
	if x.Len() > 0 {
		tensor.Data[float64](x)[0] += 1e-3
	}
}

// edits are what programs do before their steps, and what is wrong with it.
var edits = map[string]struct {
	every int // Config.CheckEvery
	edit  func(a *adapter, step int)
	want  string
	steps int // that rank 0 has done before the error
}{
	"nothing": {every: 1, edit: func(*adapter, int) {}},
	"a teacher, by Changed": {every: 1, edit: func(a *adapter, _ int) {
		write(a.Stem.W.Local)
		a.Stem.W.Changed()
	}},
	"a part that is frozen for some steps": {every: 1, edit: func(a *adapter, step int) {
		up := a.Layers[2].Up
		if freeze(up); step == 3 || step == 4 {
			up.W.Unfreeze()
			up.B.Unfreeze()
		}
	}},
	"one that trains": {every: 1, edit: func(a *adapter, _ int) { write(a.Layers[0].Up.W.Local) }},
	"an element before the second step": {want: "layers.1.base.weight is frozen, and its values were changed", steps: 1,
		edit: func(a *adapter, step int) {
			if step == 1 {
				write(a.Layers[1].Base.W.Local)
			}
		}},
	"an optimizer that says nothing": {want: "stem.bias is frozen, and its values were changed", steps: 1,
		edit: func(a *adapter, _ int) { write(a.Stem.B.Local) }},
	"what is gathered and stays": {want: "stem.weight is frozen, and its values were changed", steps: 1,
		edit: func(a *adapter, step int) {
			if step == 1 {
				write(a.Stem.W.Value)
			}
		}},
	"before the fourth step": {every: 2, want: "layers.0.base.bias is frozen, and its values were changed", steps: 4,
		edit: func(a *adapter, step int) {
			if step == 3 {
				write(a.Layers[0].Base.B.Local)
			}
		}},
	"after a change that was announced": {every: 1, want: "stem.weight is frozen", steps: 3, edit: func(a *adapter, step int) {
		if write(a.Stem.W.Local); step < 3 {
			a.Stem.W.Changed()
		}
	}},
}

// Values of frozen parameters that change, and nobody said so, are an error in the second step, and later with CheckEvery.
func TestFrozenValuesThatChange(t *testing.T) {
	for name, c := range edits {
		for stage := range 4 { // 0 is ddp
			t.Run(fmt.Sprintf("%s, stage %d", name, stage), func(t *testing.T) {
				j := job{training: training{Ranks: 2, Steps: 6, Micro: 1}, model: newAdapter,
					cfg: fsdp.Config{DType: tensor.Float64, Stage: stage, CheckEvery: c.every}}
				j.before = func(p place) error {
					c.edit(p.model.(*adapter), p.Step)
					return nil
				}
				if stage == 0 {
					j.with = func(r *dist.Rank, n model) (nn.Params, error) {
						return ddp.Attach(r.World, n, ddp.Config{DType: tensor.Float64, CheckEvery: c.every, AllowUnused: true})
					}
				}
				res, err := j.whole().Try()
				if c.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, "rank ")
				require.ErrorContains(t, err, "call Changed of the parameter")
				require.Len(t, res.Norms, c.steps)
			})
		}
	}
}

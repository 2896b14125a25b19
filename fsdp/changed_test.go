package fsdp_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// taught is a student that learns from a teacher, too. Either may be a unit that stays gathered.
type taught struct {
	Student, Teacher, Head *nn.Linear
	keep                   string
}

func newTaught(keep string) func() model {
	return func() model {
		n := &taught{nn.NewLinear(width, width), nn.NewLinear(width, width), nn.NewLinear(width, classes), keep}
		for _, p := range nn.Within(n.Teacher) {
			p.Freeze()
		}
		return n
	}
}

func (n *taught) Forward(x nn.T) nn.T {
	y := n.Student.Forward(x)
	return n.Head.Forward(y.Add(n.Teacher.Forward(x).Tanh().Mul(y)))
}

func (n *taught) units(s *fsdp.Sharding) {
	for i, l := range []*nn.Linear{n.Student, n.Teacher} { // each alone, so that ranks have the same part of both
		if n.keep == []string{"student", "teacher"}[i] {
			s.Keep(l)
		} else {
			s.Unit(l)
		}
	}
	s.Unit(n.Head)
}

// edit changes values, and says so.
func edit(params []*tensor.Param, to func(p *tensor.Param, i int, v float64) float64) {
	for _, p := range params {
		values := tensor.Data[float64](p.Local)
		for i, v := range values {
			values[i] = to(p, i, v)
		}
		p.Changed()
	}
}

// What a user changes in Param.Local between steps is used in the next one, also where a unit stays gathered, as on one rank.
// The short form has each stage once.
func TestChangedValuesAreUsed(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]func(p place, n *taught) error{
		"momentum teacher": func(_ place, n *taught) error {
			of := map[*tensor.Param]*tensor.Param{n.Teacher.W: n.Student.W, n.Teacher.B: n.Student.B}
			edit(nn.Within(n.Teacher), func(p *tensor.Param, i int, v float64) float64 {
				return 0.7*v + 0.3*tensor.Data[float64](of[p].Local)[i]
			})
			return nil
		},
		"clipped values": func(_ place, n *taught) error {
			edit(nn.Within(n.Student), func(_ *tensor.Param, _ int, v float64) float64 { return max(-0.1, min(0.1, v)) })
			return nil
		},
		"values swapped by hand": func(p place, _ *taught) error {
			edit(p.Params, func(_ *tensor.Param, _ int, v float64) float64 { return v * []float64{2, 0.5}[p.Step%2] })
			return nil
		},
		"only the teacher's bias": func(p place, n *taught) error {
			edit([]*tensor.Param{n.Teacher.B}, func(_ *tensor.Param, _ int, v float64) float64 { return v + 0.1 })
			return nil
		},
		"back to a checkpoint": func(p place, _ *taught) error {
			st := ckpt.State{Params: p.Params, Step: 3}
			switch {
			case p.Step == 3 && p.sharding == nil: // one rank
				s := ckpt.NewSaver(p.Rank.World, dir, ckpt.Config{})
				if err := s.Save(context.Background(), st); err != nil {
					return err
				}
				return s.Close()
			case p.Step == 6 || p.Step == 7:
				_, err := ckpt.Load(context.Background(), p.Rank.World, filepath.Join(dir, "step-00000003"), &st, ckpt.LoadConfig{})
				return err
			}
			return nil
		},
	} {
		before := func(p place) error { return change(p, p.model.(*taught)) }
		one := job{one: true, cfg: fsdp.Config{DType: tensor.Float64}, model: newTaught(""), before: before}
		one.Rule = sgd
		want := one.run(t)
		if unedited := one; reliability.Long(t) {
			unedited.before = nil
			require.Error(t, unedited.run(t).Differs(want, 1e-3), "%s: the change matters", name)
		}
		for k, keep := range []string{"student", "", "teacher"} {
			for stage := 1; stage <= 3; stage++ {
				if (stage == k+1) == reliability.Long(t) {
					continue
				}
				j := job{cfg: fsdp.Config{Stage: stage, DType: tensor.Float64}, model: newTaught(keep), before: before}
				j.Ranks, j.Rule = stage%2+2, sgd
				require.NoError(t, j.run(t).Differs(want, 1e-10), "%s, %q stays, stage %d", name, keep, stage)
			}
		}
	}
}

func TestLongChangedValuesAreUsed(t *testing.T) { reliability.AsLong(t, TestChangedValuesAreUsed) }

// A target network that is copied without a word is used by all ranks as on one rank, or its forgotten Changed is an error: where values
// stay gathered, ranks would go on with the old ones.
func TestForgottenChanged(t *testing.T) {
	before := func(p place) error {
		if n := p.model.(*taught); p.Step == 3 {
			for i, q := range nn.Within(n.Teacher) {
				tensor.Copy(q.Local, nn.Within(n.Student)[i].Local)
			}
		}
		return nil
	}
	one := job{one: true, cfg: fsdp.Config{DType: tensor.Float64}, model: newTaught(""), before: before}
	one.Rule = sgd
	want := one.run(t)
	for _, keep := range []string{"", "teacher"} {
		for stage := 1; stage <= 3; stage++ {
			j := job{cfg: fsdp.Config{Stage: stage, DType: tensor.Float64}, model: newTaught(keep), before: before}
			j.Ranks, j.Rule = stage%2+2, sgd
			if stage == 3 && keep == "" {
				require.NoError(t, j.run(t).Differs(want, 1e-10))
				continue
			}
			_, err := j.whole().Try()
			require.ErrorContains(t, err, "weight is frozen, and its values were changed since they were gathered", "%q, stage %d", keep, stage)
			require.ErrorContains(t, err, "call Changed of the parameter")
		}
	}
}

func sgd(p nn.Params, n optim.Norm) *optim.Optimizer {
	return optim.NewSGD(p.Trainable(), optim.SGDConfig{LR: 0.1, Momentum: 0.9, Clip: 1, Norm: n})
}

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

// Values of frozen parameters that change, and nobody said so, are an error in the second step, and later with CheckEvery. The short form
// has ddp and stage 3.
func TestFrozenValuesThatChange(t *testing.T) {
	for name, c := range edits {
		for stage := range 4 { // 0 is ddp
			if (stage%3 == 0) == reliability.Long(t) {
				continue
			}
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

func TestLongFrozenValuesThatChange(t *testing.T) { reliability.AsLong(t, TestFrozenValuesThatChange) }

// What a rank has of a gradient is not read as if it were the whole, in any stage; on one rank it is the whole.
func TestPartsOfGradients(t *testing.T) {
	before := func(p place) error {
		for _, q := range p.Params {
			if p.Step == 0 {
				continue
			}
			err := tensor.Try(func() { tensor.Data[float64](q.Grad) })
			if part := q.Local.Len() < q.Len(); part != (err != nil) {
				return fmt.Errorf("%v: a part %v: %w", q, part, err)
			}
			if n := len(tensor.Data[float64](q.Grad.ToLocal())); n != q.Local.Len() {
				return fmt.Errorf("%v: a gradient of %d elements for %d", q, n, q.Local.Len())
			}
		}
		return nil
	}
	for stage := range 4 { // 0: one rank, without fsdp
		j := job{training: training{Steps: 3}, one: stage == 0, cfg: fsdp.Config{Stage: stage, DType: tensor.Float64}, before: before}
		if stage > 0 {
			j.Ranks = 3
		}
		j.Rule = sgd
		j.run(t)
	}
}

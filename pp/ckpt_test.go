package pp_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// checkpoint is what a rank saves and loads.
func (j *job) checkpoint() ckpt.State {
	st := ckpt.State{Step: j.state.Step, Params: j.state.Params, Optimizer: j.opt, Tape: j.state.Tape}
	if j.pipe != nil {
		st.Tape = j.tape
	}
	return st
}

// saving makes a layout save before some steps, and returns the parameters that it has there.
func (l layout) saving(dir string, steps ...int) (layout, map[int]disttest.Values) {
	saved := map[int]disttest.Values{}
	l.before = func(j *job) error {
		for _, step := range steps {
			if step != j.state.Step {
				continue
			}
			all, err := disttest.Wholes(j.rank.World, j.state.Params)
			if j.rank.World.Rank() == 0 {
				saved[step] = all
			}
			s := ckpt.NewSaver(j.rank.World, dir, ckpt.Config{})
			if err := errors.Join(err, s.Save(context.Background(), j.checkpoint()), s.Close()); err != nil {
				return err
			}
		}
		return nil
	}
	return l, saved
}

// loading makes a layout go on from a step that was saved. Without the checkpoint it would have other values and other random numbers.
// also, if not nil, gets the reports of the ranks.
func (l layout) loading(dir string, step int, also func(j *job, r *ckpt.Report) error) layout {
	l.seed = 4
	l.start = func(j *job) error {
		st := j.checkpoint()
		r, err := ckpt.Load(context.Background(), j.rank.World, stepDir(dir, step), &st, ckpt.LoadConfig{Strategy: ckpt.Owned})
		j.state.Step = st.Step
		if err == nil && also != nil {
			err = also(j, r)
		}
		return err
	}
	return l
}

func stepDir(dir string, step int) string { return filepath.Join(dir, fmt.Sprintf("step-%08d", step)) }

// A checkpoint of a pipeline, with the optimizer, goes on in other layouts, and theirs in the pipeline.
func TestCheckpoints(t *testing.T) {
	p, from := program{layers: 5, tied: true, drop: true}, layout{mesh: "pp=2,fsdp=2", stage: 3, once: true}
	layouts := map[string]layout{"interleaved": {mesh: "pp=2", schedule: "interleaved"}}
	if reliability.Long(t) {
		p.layers, from.mesh = 8, "pp=2,fsdp=2,kv=2"
		layouts = map[string]layout{"one rank": {}, "ddp": {mesh: "dp=3"}, "pp": {mesh: "pp=4"},
			"interleaved, fsdp": {mesh: "pp=2,fsdp=2", stage: 2, once: true, schedule: "interleaved"}}
	}
	first, second := 3, 6 // steps that are saved
	want := p.training(layout{}).Run(t)
	dir := t.TempDir()
	saves, at := from.saving(dir, first)
	disttest.RequireEqual(t, want, p.training(saves).Run(t), 1e-10)
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // to flush checkpoints takes time, but no CPU
			back := t.TempDir()
			l, again := l.loading(dir, first, nil).saving(back, second)
			disttest.RequireEqual(t, want.Since(first, at[first]), p.training(l).Run(t), 1e-10)
			disttest.RequireEqual(t, want.Since(second, again[second]), p.training(from.loading(back, second, nil)).Run(t), 1e-10)
		})
	}
}

func TestLongCheckpoints(t *testing.T) { reliability.AsLong(t, TestCheckpoints) }

// Each rank reads its layers alone: all together read what is in the files, and the tied table twice. ckpt verify knows this before.
func TestCheckpointBytes(t *testing.T) {
	p, dir := program{layers: 8, tied: true}, t.TempDir()
	steps := func(l layout) disttest.Training {
		c := p.training(l)
		c.Steps = 2
		return c
	}
	l, _ := layout{mesh: "pp=2,fsdp=2,kv=2", stage: 3, once: true}.saving(dir, 1)
	steps(l).Run(t)
	v, err := inspect.Verify(t.Context(), stepDir(dir, 1), inspect.VerifyConfig{Layout: "pp=4"})
	require.NoError(t, err)
	require.True(t, v.OK, v.Errors)
	_, err = steps(layout{mesh: "pp=4", start: func(j *job) error {
		st := j.checkpoint()
		_, err := ckpt.Load(context.Background(), j.rank.World, stepDir(dir, 1), &st, ckpt.LoadConfig{})
		return err
	}}).Try()
	require.ErrorContains(t, err, "where ranks have different layers, as stages of a pipeline, set LoadConfig.Strategy to ckpt.Owned")
	var read [4]int64
	steps(layout{mesh: "pp=4"}.loading(dir, 1, func(j *job, r *ckpt.Report) error {
		mine := int64(0) // values, and two moments
		for _, x := range j.state.Params {
			mine += 3 * 8 * int64(x.Len())
		}
		assert.Equal(t, mine, r.BytesRead)
		read[j.rank.World.Rank()] = mine
		return nil
	})).Run(t)
	sum := int64(0)
	for i, n := range read {
		sum += n
		require.Equal(t, n, v.Ranks[i].Bytes, v.Ranks[i].Place)
	}
	const table = 3 * 8 * words * 8
	require.Equal(t, v.Bytes+table, sum)
	require.LessOrEqual(t, float64(sum), 1.03*float64(v.Bytes))
	t.Logf("4 ranks read %d bytes of %d: %.4f", sum, v.Bytes, float64(sum)/float64(v.Bytes))
}

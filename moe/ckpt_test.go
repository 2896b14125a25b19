package moe_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// resumed does a step after so many, from the checkpoint in dir if there are some, and writes the next one. It says what ranks read.
func (j job) resumed(t *testing.T, dir string, step int) (disttest.Result, []int64) {
	t.Helper()
	c, read := j.training(new(seen)), make([]int64, 8)
	attach := c.Attach
	c.Steps = step + 1
	c.Attach = func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error) {
		a, err := attach(r, mesh)
		a.Start = func(s *disttest.State) error {
			if s.Step = step; step == 0 {
				return nil
			}
			from, state := filepath.Join(dir, fmt.Sprintf("step-%08d", step)), ckpt.State{Params: s.Params, Optimizer: s.Optimizer, Tape: s.Tape}
			report, err := ckpt.Load(t.Context(), r.World, from, &state, ckpt.LoadConfig{})
			if err == nil {
				read[r.World.Rank()] = report.BytesRead
			}
			return err
		}
		a.End = func(s *disttest.State) error {
			state := ckpt.State{Params: s.Params, Optimizer: s.Optimizer, Tape: s.Tape, Step: s.Step}
			return ckpt.NewSaver(r.World, dir, ckpt.Config{}).Save(t.Context(), state)
		}
		return a, err
	}
	return c.Run(t), read
}

// A training goes on with its experts on other ranks, from files that have them one by one; no rank reads those of others.
func TestCheckpointsMoveAlongExperts(t *testing.T) {
	j, dir, all := named("deepseek", 0), t.TempDir(), disttest.Result{}
	one := j.training(new(seen))
	layouts := []job{{mesh: "ep=4"}, {mesh: "ep=2"}, {}, {mesh: "ep=8"}, {mesh: "ep=2,tp=3"}, {mesh: "dp=2,ep=2", fsdp: true},
		{mesh: "dp=3"}, {mesh: "ep=4", fsdp: true}, {mesh: "tp=2,ep=4"}, {mesh: "ep=2"}}
	if !reliability.Long(t) {
		layouts = layouts[:6]
	}
	one.Steps = len(layouts) // each on another one
	want := one.Run(t)
	for i, l := range layouts {
		got, read := j.on(l).resumed(t, dir, i)
		if i == 3 {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "step-00000004")))
			_, one := j.resumed(t, dir, i)
			require.Less(t, float64(slices.Max(read)), 0.37*float64(one[0]), "of what one rank reads, of which experts are most")
		}
		if i > 0 {
			got.First = all.First
		}
		got.Losses, got.Micro, got.Norms = append(all.Losses, got.Losses...), append(all.Micro, got.Micro...), append(all.Norms, got.Norms...)
		all = got
	}
	disttest.RequireEqual(t, want, all, 1e-10)
	for layout, errs := range map[string]string{
		"ep=4": "", "ep=2,tp=2,fsdp=3": "", "ep=8,dp=2": "", "ep=3": "8 experts do not divide over 3 ranks: the number of ranks must divide 8",
	} {
		v, err := inspect.Verify(t.Context(), filepath.Join(dir, fmt.Sprintf("step-%08d", one.Steps-1)), inspect.VerifyConfig{Layout: layout})
		require.NoError(t, err)
		if errs != "" {
			require.Contains(t, v.Misfits[0], errs)
			continue
		}
		require.Empty(t, append(v.Errors, v.Misfits...), layout)
		require.NotEqual(t, v.Ranks[0].Bytes, v.Bytes, layout)
	}
	dense := t.TempDir()
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		params := nn.Init(nn.NewLinear(3, 2), r.Device, tensor.Float32, 1)
		return ckpt.NewSaver(r.World, dense, ckpt.Config{}).Save(t.Context(), ckpt.State{Params: params})
	}))
	v, err := inspect.Verify(t.Context(), filepath.Join(dense, "step-00000000"), inspect.VerifyConfig{Layout: "ep=2"})
	require.NoError(t, err)
	require.Contains(t, v.Misfits[0], "it is not known which tensors are experts")
}

func TestLongCheckpointsMoveAlongExperts(t *testing.T) {
	reliability.AsLong(t, TestCheckpointsMoveAlongExperts)
}

// Files name the experts as Hugging Face's models do, each a matrix.
func TestNamesOfFiles(t *testing.T) {
	for mixtral, want := range map[bool][]string{
		false: {"moe.experts.0.down_proj.weight [5 6]", "moe.experts.1.gate_proj.weight [6 5]", "moe.experts.1.up_proj.weight [6 5]",
			"moe.gate.e_score_correction_bias [2]", "moe.gate.weight [2 5]", "moe.shared_experts.down_proj.weight [5 3]"},
		true: {"moe.experts.0.w1.weight [6 5]", "moe.experts.1.w2.weight [5 6]", "moe.experts.1.w3.weight [6 5]"},
	} {
		dir := t.TempDir()
		job{Config: moe.Config{
			Features: 5, Hidden: 6, Experts: 2, Shared: 3, Router: router.Config{Top: 1, Bias: true}, Mixtral: mixtral,
		}}.resumed(t, dir, 0)
		_, list, err := inspect.List(filepath.Join(dir, "step-00000001"))
		require.NoError(t, err)
		var names []string
		for _, x := range list {
			names = append(names, fmt.Sprint(x.Name, " ", x.Shape))
		}
		for _, w := range want {
			require.Contains(t, names, w)
		}
	}
}

package moe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A training goes on with its experts on other ranks, from files that have them one by one; no rank reads those of others.
func TestCheckpointsMoveAlongExperts(t *testing.T) {
	c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 8, Router: routers["deepseek"], Shared: 6, Balance: 0.1}, rate: 0.01}
	want, err := c.run()
	require.NoError(t, err)
	c.dir = t.TempDir()
	var losses []float64
	for i, l := range []training{{ep: 4}, {ep: 2}, {ep: 1}, {ep: 8}, {dp: 2, ep: 2, fsdp: true}, {ep: 2, tp: 3}, {dp: 3}, {ep: 4, fsdp: true}, {tp: 2, ep: 4}, {ep: 2}} {
		at := c.on(l)
		at.dir, at.from, at.to = c.dir, i, i+1
		got, err := at.run()
		require.NoError(t, err, "%v", at)
		losses = append(losses, got.losses...)
		if i == 3 {
			all := c.on(training{})
			all.dir, all.from, all.to = t.TempDir(), i, i+1
			require.NoError(t, os.CopyFS(all.dir, os.DirFS(c.dir)))
			require.NoError(t, os.RemoveAll(filepath.Join(all.dir, fmt.Sprintf("step-%08d", i+1))))
			one, err := all.run()
			require.NoError(t, err)
			require.Less(t, float64(slices.Max(got.read)), 0.37*float64(one.read[0]), "of what one rank reads, of which experts are most")
		}
	}
	require.InDeltaSlice(t, want.losses, losses, 1e-10)
	for layout, errs := range map[string]string{"ep=4": "", "ep=2,tp=2,fsdp=3": "", "ep=8,dp=2": "", "ep=3": "8 experts do not divide over 3 ranks: the number of ranks must divide 8"} {
		v, err := inspect.Verify(context.Background(), filepath.Join(c.dir, "step-00000009"), inspect.VerifyConfig{Layout: layout})
		require.NoError(t, err)
		if errs != "" {
			require.Contains(t, v.Errors[0], errs)
			continue
		}
		require.Empty(t, v.Errors, layout)
		require.NotEqual(t, v.Ranks[0].Bytes, v.Bytes, layout)
	}
	dense := t.TempDir()
	require.NoError(t, goroutines(1, func(ctx context.Context, r *dist.Rank) error {
		return ckpt.NewSaver(r.World, dense, ckpt.Config{}).Save(ctx, ckpt.State{Params: nn.Init(nn.NewLinear(3, 2), r.Device, tensor.Float32, 1)})
	}))
	v, err := inspect.Verify(context.Background(), filepath.Join(dense, "step-00000000"), inspect.VerifyConfig{Layout: "ep=2"})
	require.NoError(t, err)
	require.Contains(t, v.Errors[0], "it is not known which tensors are experts")
}

// Files name the experts as Hugging Face's models do, each a matrix.
func TestNamesOfFiles(t *testing.T) {
	for mixtral, want := range map[bool][]string{
		false: {"moe.experts.0.down_proj.weight [5 6]", "moe.experts.1.gate_proj.weight [6 5]", "moe.experts.1.up_proj.weight [6 5]", "moe.gate.e_score_correction_bias [2]",
			"moe.gate.weight [2 5]", "moe.shared_experts.down_proj.weight [5 3]"},
		true: {"moe.experts.0.w1.weight [6 5]", "moe.experts.1.w2.weight [5 6]", "moe.experts.1.w3.weight [6 5]"},
	} {
		c := training{Config: moe.Config{Features: 5, Hidden: 6, Experts: 2, Shared: 3, Router: router.Config{Top: 1, Bias: true}, Mixtral: mixtral}, to: 1, dir: t.TempDir()}
		_, err := c.run()
		require.NoError(t, err)
		_, list, err := inspect.List(filepath.Join(c.dir, "step-00000001"))
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

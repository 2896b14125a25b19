package ckpt

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// manyTensors are those of a large model with AdamW.
const manyTensors = 2160

// claimsOf are what ranks that hold flat shares of tensors say of them before a save.
func claimsOf(ranks, tensors int) []claim {
	const n = 1 << 14
	claims := make([]claim, ranks)
	for r := range claims {
		claims[r].Items = make([]claimItem, tensors)
		for i := range claims[r].Items {
			flat := [2]int{share(n, r, ranks), share(n, r+1, ranks)}
			x := claimItem{Model: true, Name: fmt.Sprintf("layers.%d.weight", i), DType: safetensors.F32, Shape: []int{n}}
			if ranks > 1 {
				x.Boxes, x.Flat = wholePart(x.Shape).boxes, flat
			}
			claims[r].Items[i] = x
		}
	}
	return claims
}

// Saves of the same tensors have one plan. If one rank has others, all ranks plan anew, and the checkpoint has what they have.
func TestPlanOnce(t *testing.T) {
	dir, l := t.TempDir(), layouts["ddp2"]
	onRanks(t, 2, func(g *dist.Group) error {
		s := newSaver(g, disk{}, dir, Config{})
		save := func(version int, without string) *plan {
			st := newState(t, g, l, version)
			st.Optimizer = nil
			st.Params = slices.DeleteFunc(st.Params, func(p *tensor.Param) bool { return p.Name() == without && g.Rank() == 1 })
			require.NoError(t, s.Save(t.Context(), *st))
			return s.planned.plan
		}
		first := save(1, "")
		require.Same(t, first, save(2, ""))
		other := save(3, "scale")
		require.NotSame(t, first, other)
		require.Same(t, other, save(4, "scale"))
		require.NotSame(t, other, save(5, ""))
		return s.Close()
	})
	for version := 1; version <= 5; version++ {
		path := filepath.Join(dir, stepName(version))
		require.True(t, mustVerify(t, path, VerifyConfig{}).OK)
		onRanks(t, 3, func(g *dist.Group) error {
			st := newState(t, g, layouts["fsdp3"], 0)
			st.Optimizer, st.Extra = nil, nil
			_, err := Load(t.Context(), g, path, st, LoadConfig{})
			require.NoError(t, err)
			require.Equal(t, version, st.Step)
			want := newState(t, g, layouts["fsdp3"], version)
			for i, p := range st.Params {
				require.Equal(t, tensor.Floats(want.Params[i].Local), tensor.Floats(p.Local), "%d: %s", version, p.Name())
			}
			return nil
		})
	}
}

// BenchmarkPlan plans a save of 2,160 tensors on 64 ranks.
func BenchmarkPlan(b *testing.B) {
	claims := claimsOf(64, manyTensors)
	for b.Loop() {
		_, err := newPlan(claims, nil, maxFileBytes)
		require.NoError(b, err)
	}
}

// BenchmarkPlanAgain plans the next save of them.
func BenchmarkPlanAgain(b *testing.B) {
	claims := claimsOf(64, manyTensors)
	p, err := newPlan(claims, nil, maxFileBytes)
	require.NoError(b, err)
	mine := claims[0]
	for r := range claims {
		claims[r].Items = nil
	}
	for b.Loop() {
		_, err := mine.structure(nil)
		require.NoError(b, err)
		_, _ = structures(claims)
		require.NoError(b, compare(claims))
		p.setState(claims)
	}
}

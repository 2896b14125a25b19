package ckpt

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// How tensor parallelism cuts a tensor is found out from what the ranks have, fused and transposed tensors included.
func TestRulesOfThemselves(t *testing.T) {
	for _, name := range []string{"tp2", "tp2fsdp2", "tp2dp2", "fsdp3", "ddp2"} {
		l, given, found := layouts[name], t.TempDir(), t.TempDir()
		onRanks(t, l.ranks, func(g *dist.Group) error {
			st := newState(t, g, l, 1)
			require.NoError(t, NewSaver(g, given, Config{}).Save(context.Background(), *st))
			st.TP = nil
			return NewSaver(g, found, Config{}).Save(context.Background(), *st)
		})
		a, b := examine(disk{}, filepath.Join(given, "step-00000001")), examine(disk{}, filepath.Join(found, "step-00000001"))
		defer a.Close()
		defer b.Close()
		rules := 0
		for key, x := range b.tensors {
			if x.rule != nil {
				rules++
			}
			if l.tp < 2 {
				require.Nil(t, x.rule, "%s: %s", name, key)
				continue
			}
			require.Equal(t, a.tensors[key].rule, x.rule, "%s: %s", name, key)
		}
		require.Equal(t, l.tp > 1, rules > 0)
	}
}

// A tensor that files make of three parameters, each of which two ranks have cut, has three parts and not six shares. Claims on nothing
// do not count.
func TestRuleOfAFusedTensor(t *testing.T) {
	box := func(lo, hi int) []tensor.Box { return []tensor.Box{{Lo: []int{lo, 0}, Hi: []int{hi, 5}}} }
	fused := &owned{claimItem: claimItem{Shape: []int{12, 5}}}
	for i := range 6 {
		fused.ranks = append(fused.ranks, i%2)
		fused.parts = append(fused.parts, claimItem{Shape: []int{12, 5}, Boxes: box(2*i, 2*i+2), Flat: [2]int{0, 10}})
	}
	require.Zero(t, fused.shares())
	require.Equal(t, &Rule{Parts: []int{4, 4, 4}}, fused.rule(2))
	plain := &owned{claimItem: claimItem{Shape: []int{5, 5}}, ranks: []int{0, 1, 2}, parts: []claimItem{
		{Shape: []int{5, 5}, Boxes: box(0, 3), Flat: [2]int{0, 15}}, {Shape: []int{5, 5}, Boxes: box(0, 5)}, {Shape: []int{5, 5}, Boxes: box(3, 5), Flat: [2]int{0, 10}}}}
	require.Equal(t, 2, plain.shares())
	require.Equal(t, &Rule{}, plain.rule(4), "fewer shares than others have")
	plain.parts[0].Boxes, plain.parts[2].Boxes = box(0, 2), box(2, 5)
	require.Nil(t, plain.rule(2), "the first ranks have more")
}

package ckpt

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Save finds from the ranks' parts how tensor parallelism cuts a tensor, also if the tensor is fused or transposed.
func TestRulesOfThemselves(t *testing.T) {
	for _, name := range []string{"tp2", "tp2fsdp2", "tp2dp2", "fsdp3", "ddp2"} {
		l, given, found := layouts[name], t.TempDir(), t.TempDir()
		onRanks(t, l.ranks, func(g *dist.Group) error {
			st := newState(t, g, l, 1)
			require.NoError(t, NewSaver(g, given, Config{}).Save(context.Background(), *st))
			st.TP = nil
			return NewSaver(g, found, Config{}).Save(context.Background(), *st)
		})
		a, b := storage.Examine(disk.OS{}, filepath.Join(given, "step-00000001")),
			storage.Examine(disk.OS{}, filepath.Join(found, "step-00000001"))
		defer a.Close()
		defer b.Close()
		rules := 0
		for key, x := range b.Tensors {
			if x.Rule != nil {
				rules++
			}
			if l.tp < 2 {
				require.Nil(t, x.Rule, "%s: %s", name, key)
				continue
			}
			require.Equal(t, a.Tensors[key].Rule, x.Rule, "%s: %s", name, key)
		}
		require.Equal(t, l.tp > 1, rules > 0)
	}
}

// If files join three parameters, each cut by two ranks, the tensor has three parts, not six shares. Empty parts do not
// count.
func TestRuleOfAFusedTensor(t *testing.T) {
	box := func(lo, hi int) []tensor.Box { return []tensor.Box{{Lo: []int{lo, 0}, Hi: []int{hi, 5}}} }
	ownedBy := func(x writeItem, ranks []int, parts []writeItem) *owned {
		o := &owned{writeItem: x}
		for i := range parts {
			o.parts = append(o.parts, ownedPart{writeItem: &parts[i], rank: ranks[i]})
		}
		return o
	}
	rule := func(o *owned, most int) *Rule {
		list, whole, err := o.byBox()
		require.NoError(t, err)
		return o.rule(list, whole, most)
	}
	var parts []writeItem
	for _, i := range []int{0, 2, 4, 1, 3, 5} {
		parts = append(parts, writeItem{Shape: []int{12, 5}, Boxes: box(2*i, 2*i+2), Flat: [2]int{0, 10}})
	}
	fused := ownedBy(writeItem{Shape: []int{12, 5}}, []int{0, 0, 0, 1, 1, 1}, parts)
	require.Zero(t, fused.shares())
	require.Equal(t, &Rule{Parts: []int{4, 4, 4}}, rule(fused, 2))
	parts = []writeItem{{Shape: []int{5, 5}, Boxes: box(0, 3), Flat: [2]int{0, 15}}, {Shape: []int{5, 5}, Boxes: box(0, 5)},
		{Shape: []int{5, 5}, Boxes: box(3, 5), Flat: [2]int{0, 10}}}
	plain := ownedBy(writeItem{Shape: []int{5, 5}}, []int{0, 1, 2}, parts)
	require.Equal(t, 2, plain.shares())
	require.Equal(t, &Rule{}, rule(plain, 4), "fewer shares than others have")
	parts[0].Boxes, parts[0].Flat, parts[2].Boxes, parts[2].Flat = box(0, 2), [2]int{0, 10}, box(2, 5), [2]int{0, 15}
	require.Nil(t, rule(plain, 2), "the first ranks have more")
}

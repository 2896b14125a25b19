package ckpt

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Save stores how tensor parallelism cuts a tensor, also if the tensor is fused or transposed.
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

// A stored tensor has the parts of its segments, in its order, whichever ranks have them. Parts that reach over the end of a segment, and
// segments that are whole on every rank, are no rule.
func TestRuleOfAFusedTensor(t *testing.T) {
	rule := func(names string, params ...*tensor.Param) *Rule {
		o := &owned{}
		for _, p := range params {
			first := 0
			for _, s := range p.Stored() {
				if s.Name == names {
					o.parts = append(o.parts, ownedPart{writeItem: &writeItem{First: s.First, Rule: segmentRule(p, first, s)}})
				}
				first += s.Rows
			}
		}
		return o.rule()
	}
	param := func(rows int, c *Rule, as ...tensor.Stored) *tensor.Param {
		p := tensor.NewParam(tensor.Constant(0), rows, 6)
		if c != nil {
			p.Place(layout.Axis{Axes: 1, Rank: 1, Ranks: 2}, *c)
		}
		p.SetStored(as)
		return p
	}
	q, k := param(8, &Rule{Unit: 2}, of("qkv", 8, 0, 16)), param(4, &Rule{Unit: 2}, of("qkv", 4, 8, 16))
	v := param(4, &Rule{Unit: 2}, of("qkv", 4, 12, 16))
	require.Equal(t, &Rule{Parts: []int{8, 4, 4}, Unit: 2}, rule("qkv", v, q, k, q, v))
	require.Nil(t, rule("qkv", q, k, param(4, nil, of("qkv", 4, 12, 16))), "one is whole")
	require.Nil(t, rule("qkv", q, k, param(4, &Rule{Dim: 1}, of("qkv", 4, 12, 16))), "two dimensions")
	two := param(10, &Rule{Parts: []int{4, 6}}, of("k", 4, 0, 4), of("v", 6, 0, 6))
	require.Equal(t, &Rule{}, rule("k", two))
	require.Equal(t, &Rule{}, rule("v", two))
	require.Nil(t, rule("v", param(10, &Rule{}, of("k", 4, 0, 4), of("v", 6, 0, 6))), "rank 1 has none of k")
	require.Equal(t, &Rule{Dim: 1}, rule("v", param(10, &Rule{Dim: 1}, of("k", 4, 0, 4), of("v", 6, 0, 6))))
	experts := tensor.NewParam(tensor.Constant(0), 2, 3, 4)
	experts.SetStored([]tensor.Stored{{Name: "0", Rows: 1, Total: 1, Squeeze: true}, {Name: "1", Rows: 1, Total: 1, Squeeze: true}})
	experts.Place(layout.Axis{Axes: 1, Rank: 0, Ranks: 2}, layout.Division{})
	require.Nil(t, rule("0", experts))
	require.Equal(t, &Rule{}, ruleOf(experts))
	experts.Place(layout.Axis{Axes: 2, Rank: 0, Ranks: 2}, layout.Division{Dim: 2})
	require.Equal(t, &Rule{Dim: 1}, rule("1", experts))
	require.Nil(t, ruleOf(experts))
}

// Rules that are read can be written and read again, and take no more memory than their text justifies.
func FuzzParseRules(f *testing.F) {
	for _, text := range []string{`{"*.weight":{"dim":1,"parts":[8,4,4],"unit":2},"b":{}}`, `{"[":{}}`, `{"a":{"dims":1}}`, "{}{}", "null"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		reliability.Bounded(t, len(text), func() {
			rules, err := ParseRules(text)
			if err != nil {
				return
			}
			again, err := json.Marshal(rules)
			require.NoError(t, err)
			same, err := ParseRules(again)
			require.NoError(t, err)
			require.Len(t, same, len(rules))
		})
	})
}

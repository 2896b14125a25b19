package tp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
)

// Sequences whose positions are divided over ranks, and attention by heads, train as on one rank: under ddp and fsdp, beside layers that are
// divided, with parts that differ.
func TestUlyssesEqualsOneRank(t *testing.T) {
	for name, layouts := range map[string][]layout{
		"gpt2":  {{dp: 1, cp: 2, kv: 1, rep: 1}, {dp: 2, cp: 3, kv: 1, rep: 1}, {dp: 1, fsdp: 2, cp: 2, kv: 1, rep: 1}, {dp: 1, cp: 3, kv: 2, rep: 1}},
		"llama": {{dp: 1, cp: 3, kv: 1, rep: 1}, {dp: 1, fsdp: 3, cp: 2, kv: 1, rep: 1}, {dp: 1, cp: 2, kv: 3, rep: 1, seq: true}},
		"gqa":   {{dp: 2, cp: 2, kv: 1, rep: 1}, {dp: 1, cp: 2, kv: 1, rep: 1}},
	} {
		want, err := training{config: models[name]}.run()
		require.NoError(t, err)
		for i, l := range layouts {
			got, err := training{layout: l, config: models[name], again: i == 0}.run() // the first one computes blocks again
			require.NoError(t, err, "%s, %s", name, l.mesh())
			require.Equal(t, want.first, got.first)
			requireClose(t, want, got, name+", "+l.mesh())
		}
	}
}

// The naive way trains as on one rank, too.
func TestNaiveEqualsOneRank(t *testing.T) {
	for name, layouts := range map[string][]layout{
		"gpt2": {{dp: 1, kv: 2, rep: 1, naive: true}, {dp: 2, kv: 3, rep: 1, naive: true}},
		"gqa":  {{dp: 1, kv: 5, rep: 1, naive: true}, {dp: 1, fsdp: 2, kv: 2, rep: 1, naive: true}},
	} {
		want, err := training{config: models[name]}.run()
		require.NoError(t, err)
		for _, l := range layouts {
			got, err := training{layout: l, config: models[name]}.run()
			require.NoError(t, err, "%s, %s", name, l.mesh())
			require.Equal(t, want.first, got.first)
			requireClose(t, want, got, name+", "+l.mesh())
		}
	}
}

// A program that forgets one of Ulysses' parts is refused.
func TestWrongUlysses(t *testing.T) {
	type change = func(m *gpt.Model, mesh *dist.Mesh)
	for _, c := range []struct {
		change change
		want   string
	}{
		{func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[1].Attn.Spread, m.Blocks[1].Attn.Join = nil, nil }, "would see this rank's part of its sequence only"},
		{func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[0].Attn.Spread = nil }, "would see this rank's part of its sequence only"},
		{func(m *gpt.Model, _ *dist.Mesh) { m.Blocks[1].Attn.Join = nil }, "reshape"},
	} {
		res, err := training{layout: layout{dp: 1, cp: 2, kv: 1, rep: 1}, config: models["gpt2"], break_: c.change}.run()
		require.ErrorContains(t, err, c.want)
		require.Empty(t, res.norms)
	}
}

package tp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A model whose layers are divided trains as on one rank, from values that have the same bits: by heads, hidden features and words, with
// tokens that are whole or divided between them, under ddp, fsdp and both.
func TestEqualsOneRank(t *testing.T) {
	for name, layouts := range map[string][]layout{
		"gpt2":  {{dp: 1, kv: 2, rep: 1}, {dp: 2, kv: 3, rep: 1}, {dp: 1, fsdp: 3, kv: 2, rep: 1}, {dp: 2, fsdp: 2, kv: 2, rep: 1}},
		"llama": {{dp: 1, kv: 6, rep: 1}, {dp: 2, kv: 2, rep: 1}, {dp: 1, fsdp: 2, kv: 3, rep: 1}},
		"gqa":   {{dp: 1, kv: 2, rep: 1}, {dp: 1, kv: 2, rep: 2}, {dp: 2, kv: 2, rep: 3}, {dp: 1, fsdp: 2, kv: 2, rep: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, err := training{config: models[name]}.run()
			require.NoError(t, err)
			require.Less(t, want.losses[9], 0.97*want.losses[0], "it learns")
			require.Greater(t, want.norms[0], 0.4, "clipping does something")
			for _, whole := range layouts {
				for _, l := range whole.forms() {
					what := l.String()
					got, err := training{layout: l, config: models[name]}.run()
					require.NoError(t, err, what)
					require.Equal(t, want.first, got.first, "%s: initial values", what)
					requireClose(t, want, got, what)
				}
			}
		})
	}
}

// Adapters are divided with their layers.
func TestLoRAEqualsOneRank(t *testing.T) {
	for name, layouts := range map[string][]layout{
		"gpt2":  {{dp: 2, kv: 3, rep: 1}, {dp: 1, fsdp: 2, kv: 2, rep: 1}},
		"llama": {{dp: 1, kv: 2, rep: 1}, {dp: 1, fsdp: 3, kv: 2, rep: 1}},
		"gqa":   {{dp: 1, kv: 2, rep: 2}, {dp: 1, fsdp: 2, kv: 2, rep: 2}},
	} {
		want, err := training{config: models[name], lora: true}.run()
		require.NoError(t, err)
		require.NotEqual(t, want.losses[0], want.losses[9])
		for _, whole := range layouts {
			for _, l := range whole.forms() {
				what := fmt.Sprintf("%s, %v", name, l)
				got, err := training{layout: l, config: models[name], lora: true}.run()
				require.NoError(t, err, what)
				require.Equal(t, want.first, got.first, "%s: initial values", what)
				requireClose(t, want, got, what)
			}
		}
	}
}

// Blocks whose activations are computed again in backward communicate again, and train the same.
func TestCheckpointsEqualOneRank(t *testing.T) {
	for name, whole := range map[string]layout{"gpt2": {dp: 2, kv: 2, rep: 1}, "gqa": {dp: 1, fsdp: 2, kv: 2, rep: 2}} {
		want, err := training{config: models[name]}.run()
		require.NoError(t, err)
		for _, l := range whole.forms() {
			got, err := training{layout: l, config: models[name], again: true}.run()
			require.NoError(t, err)
			requireClose(t, want, got, fmt.Sprintf("%s, %v", name, l))
		}
	}
}

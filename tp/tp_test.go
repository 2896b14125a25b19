package tp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tp"
)

// A model whose layers are divided trains as on one rank, from values that have the same bits: by heads, hidden features and words, with
// tokens that are whole or divided between them (a mesh has one of these forms), under ddp, fsdp and both. So it does with adapters, which
// are divided with their layers; with blocks that are computed again, and communicate again; with sequences that are divided, in parts that
// differ (Ulysses); and in the naive way.
func TestEqualsOneRank(t *testing.T) {
	for _, c := range []struct {
		job
		meshes string
	}{
		{job{model: "gpt2"}, "kv=2 dp=2,kv=3 fsdp=3,kv=2 dp=2,fsdp=2,kv=2 dp=2,cp=3 fsdp=2,cp=2 cp=3,kv=2"},
		{job{model: "llama"}, "kv=6 dp=2,kv=2 fsdp=2,kv=3 fsdp=3,cp=2 cp=2,kv=3"},
		{job{model: "gqa"}, "kv=2 kv=2,rep=2 dp=2,kv=2,rep=3 fsdp=2,kv=2,rep=2 cp=2"},
		{job{model: "gpt2", lora: true}, "dp=2,kv=3 fsdp=2,kv=2"},
		{job{model: "llama", lora: true}, "kv=2 fsdp=3,kv=2"},
		{job{model: "gqa", lora: true}, "kv=2,rep=2 fsdp=2,kv=2,rep=2"},
		{job{model: "gpt2", again: true}, "dp=2,kv=2 cp=2"},
		{job{model: "llama", again: true}, "cp=3"},
		{job{model: "gqa", again: true}, "fsdp=2,kv=2,rep=2 dp=2,cp=2"},
		{job{model: "gpt2", ones: true}, "dp=1 kv=2 cp=2 dp=2 fsdp=1 fsdp=2"},
		{job{model: "gqa", ones: true, again: true}, "dp=1 kv=2 dp=2 fsdp=1,cp=2"},
		{job{model: "gpt2", naive: true}, "kv=2 dp=2,kv=3"},
		{job{model: "gqa", naive: true}, "kv=5 fsdp=2,kv=2"},
	} {
		t.Run(fmt.Sprintf("%s, lora %v, again %v, naive %v, ones %v", c.model, c.lora, c.again, c.naive, c.ones), func(t *testing.T) {
			t.Parallel()
			want := job{model: c.model, lora: c.lora}.training().Run(t)
			if require.NotEqual(t, want.Losses[0], want.Losses[9]); !c.lora {
				require.Greater(t, want.Norms[0], 0.4, "clipping does something")
				require.Less(t, want.Losses[9], 0.97*want.Losses[0], "it learns")
			}
			for i, mesh := range strings.Fields(c.meshes) {
				c.mesh, c.cfg = mesh, tp.Config{}
				if !c.naive && (c.ones || strings.Contains(mesh, "kv")) {
					c.cfg = forms[i%len(forms)]
				}
				disttest.RequireEqual(t, want, c.training().Run(t), 1e-10)
			}
		})
	}
}

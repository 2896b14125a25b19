package ckpt

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReshard saves and loads on one layout after another: every bit comes back, also of the optimizer.
func TestReshard(t *testing.T) {
	chain := []string{"fsdp4", "ddp2", "fsdp3", "ddp1", "tp2fsdp2", "tp2", "fsdp1", "tp2dp2", "ddp4", "fsdp2", "ddp3"}
	strategies := []Strategy{Sharded, Broadcast, Owned}
	path := save(t, t.TempDir(), layouts[chain[0]], 3)
	for i, next := range chain[1:] {
		loadAll(t, path, layouts[next], 3, LoadConfig{Strategy: strategies[i%3]})
		path = save(t, t.TempDir(), layouts[next], 3)
	}
	loadAll(t, path, layouts[chain[0]], 3, LoadConfig{})
}

func TestFolder(t *testing.T) {
	path := save(t, t.TempDir(), layouts["tp2fsdp2"], 1)
	list, err := os.ReadDir(path)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	require.Equal(t, 9, len(names))
}

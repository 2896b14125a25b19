package ckpt

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestReshard saves and loads on one layout after another. Every bit is restored, also of the optimizer. The short form has half of them.
func TestReshard(t *testing.T) {
	chain := []string{"fsdp4", "ddp2", "fsdp3", "ddp1", "tp2fsdp2", "tp2", "fsdp1", "tp2dp2", "ddp4", "fsdp2", "ddp3"}
	if !reliability.Long(t) {
		chain = chain[:6]
	}
	strategies := []Strategy{Sharded, Broadcast, Owned}
	path := save(t, t.TempDir(), layouts[chain[0]], 3)
	for i, next := range chain[1:] {
		loadAll(t, path, layouts[next], 3, LoadConfig{Strategy: strategies[i%3]})
		path = save(t, t.TempDir(), layouts[next], 3)
	}
	loadAll(t, path, layouts[chain[0]], 3, LoadConfig{})
}

func TestLongReshard(t *testing.T) { reliability.AsLong(t, TestReshard) }

// TestFolder: files have the names that Hugging Face's libraries expect, and are divided by size.
func TestFolder(t *testing.T) {
	path := save(t, t.TempDir(), layouts["tp2fsdp2"], 1)
	names, err := disk.OS{}.ReadDir(path)
	require.NoError(t, err)
	require.Equal(t, []string{"config.json", broken1, broken2, storage.IndexName}, names[:4])
	require.Equal(t, []string{"optimizer-00006-of-00006.safetensors", storage.ManifestName}, names[9:])

	step, list, err := inspect.List(path)
	require.NoError(t, err)
	require.Equal(t, 1, step)
	require.Equal(t, inspect.Info{Name: "tok.weight", Kind: "model", DType: "F32", Shape: []int{17, 16}, File: broken1, Bytes: 17 * 16 * 4,
		Shards: 4}, list[0])
	require.Equal(t, "optimizer", list[len(list)-1].Kind)
	_, list, err = inspect.List(filepath.Join(path, broken1))
	require.NoError(t, err)
	require.Len(t, list, 1)
}

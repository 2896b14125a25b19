package ckpt

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
)

// Small files must be the same on all ranks, and must not have names of the checkpoint's own files.
func TestWrongFiles(t *testing.T) {
	for name, want := range map[string]string{
		"a/b":                "is not the name of a file in the folder",
		"":                   "is not the name of a file in the folder",
		storage.ManifestName: "is a name of the checkpoint itself",
		storage.IndexName:    "is a name of the checkpoint itself",
		"extra.safetensors":  "is a name of the checkpoint itself",
		"RINGO.JSON":         "is a name of the checkpoint itself",
		"a\x00b":             "is no name of a file",
		"config.json":        "ranks differ: rank 1 has files",
		"a file of one rank": "ranks differ: rank 1 has files",
	} {
		l := layouts["ddp2"]
		dir := t.TempDir()
		onRanks(t, l.ranks, func(g *dist.Group) error {
			st := newState(t, g, l, 1)
			if name != "config.json" {
				delete(st.Files, "config.json")
			}
			switch {
			case name == "config.json" && g.Rank() == 1:
				st.Files[name] = []byte("other")
			case name != "config.json" && (g.Rank() == 1 || !strings.Contains(name, "one rank")):
				st.Files[name] = nil
			}
			require.ErrorContains(t, NewSaver(g, dir, Config{}).Save(context.Background(), *st), want, name)
			return nil
		})
	}
}

// A conversion copies settings from a folder of another program, and no other files.
func TestConvertTakesSettings(t *testing.T) {
	a := save(t, t.TempDir(), layouts["ddp1"], 2)
	require.NoError(t, os.Remove(filepath.Join(a, storage.ManifestName)))
	others := filepath.Join(t.TempDir(), "others")
	require.NoError(t, os.Rename(a, others))
	a = others
	for _, name := range []string{"tokenizer.json", "merges.txt", "README.md"} {
		require.NoError(t, os.WriteFile(filepath.Join(a, name), []byte(name), 0o666))
	}
	to := filepath.Join(t.TempDir(), "to")
	for range 2 { // from another program's folder, and from the converted one
		require.NoError(t, inspect.Convert(context.Background(), a, to, inspect.ConvertConfig{ModelOnly: true}))
		names, err := disk.OS{}.ReadDir(to)
		require.NoError(t, err)
		require.Subset(t, names, []string{"config.json", "merges.txt", storage.ManifestName, "tokenizer.json"})
		require.NotContains(t, names, "README.md")
		require.True(t, mustVerify(t, to, inspect.VerifyConfig{}).OK)
		a, to = to, filepath.Join(t.TempDir(), "again")
	}
	require.NoError(t, os.WriteFile(filepath.Join(a, "merges.txt"), []byte("other"), 0o666))
	v := mustVerify(t, a, inspect.VerifyConfig{})
	require.Contains(t, strings.Join(v.Errors, ""), "merges.txt: the SHA-256 is not that of ringo.json")
}

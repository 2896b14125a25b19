package ckpt

import (
	"context"
	"errors"
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
		"a/b/c":                   "is not the name of a file in the folder",
		"../b":                    "is not the name of a file in the folder",
		"a/..":                    "is not the name of a file in the folder",
		"a/":                      "is not the name of a file in the folder",
		"/b":                      "is not the name of a file in the folder",
		"ringo.json/b":            "is a name of the checkpoint itself",
		"a/b.safetensors":         "is a name of the checkpoint itself",
		"1_Pooling/config.json/b": "is not the name of a file in the folder",
		"":                        "is not the name of a file in the folder",
		storage.ManifestName:      "is a name of the checkpoint itself",
		storage.IndexName:         "is a name of the checkpoint itself",
		"extra.safetensors":       "is a name of the checkpoint itself",
		"RINGO.JSON":              "is a name of the checkpoint itself",
		"a\x00b":                  "is no name of a file",
		"config.json":             "ranks differ: rank 1 has files",
		"a file of one rank":      "ranks differ: rank 1 has files",
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

// A file may be in a folder below: it is hashed, copied by a conversion, and compared. A link in the folder's place is refused.
func TestFilesBelow(t *testing.T) {
	const name = "1_Pooling/config.json"
	root, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	onRanks(t, 2, func(g *dist.Group) error {
		st := newState(t, g, layouts["fsdp2"], 2)
		st.Files[name] = []byte("below")
		s := NewSaver(g, root, Config{})
		return errors.Join(s.Save(context.Background(), *st), s.Close())
	})
	a := filepath.Join(root, storage.StepName(2))
	require.NoError(t, inspect.Convert(context.Background(), a, to, inspect.ConvertConfig{ModelOnly: true}))
	for _, dir := range []string{a, to} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, "below", string(text))
		require.True(t, mustVerify(t, dir, inspect.VerifyConfig{}).OK)
	}
	problems := func() string { return strings.Join(mustVerify(t, to, inspect.VerifyConfig{}).Errors, "\n") }
	below := filepath.Join(to, "1_Pooling")
	require.NoError(t, os.WriteFile(filepath.Join(to, name), []byte("other"), 0o666))
	require.Contains(t, problems(), name+": the SHA-256 is not that of ringo.json")
	require.NoError(t, os.WriteFile(filepath.Join(below, "more.json"), nil, 0o666))
	require.Contains(t, problems(), "1_Pooling/more.json: the file is not part of the checkpoint")
	require.NoError(t, os.RemoveAll(below))
	require.NoError(t, os.Symlink(filepath.Join(a, "1_Pooling"), below))
	require.Contains(t, problems(), `"1_Pooling" is no folder`)
}

// A conversion of a folder of sentence-transformers has the settings of its modules, and no other folder. Tensors of a module are refused.
func TestConvertTakesModules(t *testing.T) {
	a, to := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "to")
	require.NoError(t, os.CopyFS(a, os.DirFS("../models/bert/testdata/mean")))
	require.NoError(t, os.Mkdir(filepath.Join(a, "onnx"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(a, "onnx", "config.json"), nil, 0o666))
	require.NoError(t, inspect.Convert(context.Background(), a, to, inspect.ConvertConfig{}))
	require.True(t, mustVerify(t, to, inspect.VerifyConfig{}).OK)
	for _, name := range []string{"modules.json", "1_Pooling/config.json", "2_Normalize/config.json"} {
		want, err := os.ReadFile(filepath.Join(a, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(to, name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.NoDirExists(t, filepath.Join(to, "onnx"))

	convert := func() error { return inspect.Convert(context.Background(), a, to+"2", inspect.ConvertConfig{}) }
	require.NoError(t, os.WriteFile(filepath.Join(a, "1_Pooling", "model.safetensors"), nil, 0o666))
	require.ErrorContains(t, convert(), `modules.json: "1_Pooling/model.safetensors" is not copied`)
	require.NoError(t, os.WriteFile(filepath.Join(a, "modules.json"), []byte("["), 0o666))
	require.ErrorContains(t, convert(), "modules.json")
	require.NoDirExists(t, to+"2")
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

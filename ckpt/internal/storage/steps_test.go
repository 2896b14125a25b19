package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
)

// RemoveStale removes the temporary files of one file, and not those of files with a longer name, or everything that
// is temporary.
func TestRemoveStale(t *testing.T) {
	dir := t.TempDir()
	keep := []string{TmpName("a-b"), TmpName("a-b-c"), TmpName("ab"), TmpName(StepName(3)), "a", "a-12345678"}
	for _, name := range append([]string{TmpName("a"), TmpName("a")}, keep...) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	require.NoError(t, RemoveStale(disk.OS{}, dir, "a"))
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.ElementsMatch(t, keep, names)

	require.NoError(t, RemoveStale(disk.OS{}, dir, ""))
	names, err = disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "a-12345678"}, names)
}

// The error for a folder that is no checkpoint says how to get one from it.
func TestWayOut(t *testing.T) {
	for names, want := range map[string]string{
		"config.json pytorch_model.bin": "; PyTorch wrote pytorch_model.bin: " +
			"ringo ckpt convert DIR/pytorch_model.bin NEW makes a checkpoint of it, and mv NEW/model* DIR puts it beside config.json",
		"pytorch_model.bin":     "; PyTorch wrote pytorch_model.bin: ringo ckpt convert DIR/pytorch_model.bin NEW makes a checkpoint of it",
		"config.json last.ckpt": "; PyTorch wrote last.ckpt: ringo ckpt convert DIR/last.ckpt NEW makes a checkpoint of it",
		"pytorch_model-00001-of-00002.bin pytorch_model.bin.index.json": "; PyTorch wrote it, in several files: write it again in Python, " +
			"by from_pretrained and save_pretrained of transformers",
		".metadata __0_0.distcp":    "; it is of torch.distributed.checkpoint: ringo ckpt convert DIR NEW makes a checkpoint of it",
		"adapter_model.safetensors": "; it has adapters alone: name DIR/adapter_model.safetensors, for a model of peft.Apply",
		"step-00000003/x step-4/x":  "; it has several: name one, such as DIR/step-00000003",
		"\x1b.pt":                   `; PyTorch wrote "\x1b.pt": ringo ckpt convert DIR/"\x1b.pt" NEW makes a checkpoint of it`,
		"README.md":                 "",
	} {
		dir := filepath.Join(t.TempDir(), "DIR")
		for _, name := range strings.Fields(names) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o777))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
		}
		_, err := Open(disk.OS{}, dir)
		require.EqualError(t, err, dir+" is not sound: there is neither ringo.json nor model.safetensors.index.json nor model.safetensors: "+
			"no complete checkpoint"+strings.ReplaceAll(want, "DIR", dir))
	}
	file := filepath.Join(t.TempDir(), "x.pt")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	_, err := Open(disk.OS{}, file)
	require.ErrorContains(t, err, "ringo ckpt convert "+file+" NEW makes a checkpoint of it")
}

package storage

import (
	"os"
	"path/filepath"
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

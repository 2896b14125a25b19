package columns_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
)

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	_, err := bounded.ReadFile(path, 3)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("abc"), 0o666))
	text, err := bounded.ReadFile(path, 3)
	require.NoError(t, err)
	require.Equal(t, "abc", string(text))
	_, err = bounded.ReadFile(path, 2)
	require.EqualError(t, err, path+": longer than 2 bytes")
	_, err = bounded.ReadFile(filepath.Dir(path), 3)
	require.EqualError(t, err, filepath.Dir(path)+" is not a regular file")
	_, err = bounded.ReadFile(os.DevNull, 3)
	require.ErrorContains(t, err, "is not a regular file")
}

func TestHidden(t *testing.T) {
	for name, want := range map[string]bool{".x": true, ".DS_Store": true, "Thumbs.db": true, "desktop.ini": true, "__MACOSX": true,
		"x.png": false, "Thumbs.db.png": false, "_SUCCESS": false} {
		require.Equal(t, want, bounded.Hidden(name), name)
	}
}

//go:build unix

package columns_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Nobody writes into the pipe: opening it would never end.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pt")
	require.NoError(t, syscall.Mkfifo(path, 0o666))
	_, _, err := bounded.Open(path)
	require.EqualError(t, err, path+" is not a regular file")
	_, err = bounded.ReadFile(path, 3)
	require.EqualError(t, err, path+" is not a regular file")
}

package ckpt_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist/disttest"
)

// TestProcessesJoinSave: ranks in processes that return during a save in the background leave a complete checkpoint.
func TestProcessesJoinSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	disttest.Processes(t, 2, "RINGO_CKPT_TEST_LEAVE="+dir) // TestMain of package ckpt
	path, err := ckpt.Latest(dir)
	require.NoError(t, err)
	v, err := inspect.Verify(t.Context(), path, inspect.VerifyConfig{})
	require.NoError(t, err)
	require.Empty(t, v.Errors)
}

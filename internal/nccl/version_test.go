package nccl_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/nccl"
)

func TestVersions(t *testing.T) {
	emu.Only(t, "NCCL has one version")
	emu.Start(t, emu.Config{})
	path := os.Getenv("RINGO_NCCL_LIB")
	for version, want := range map[string]string{"2708": "2.7.8", "21705": "2.17.5", "22105": "2.21.5"} {
		t.Setenv("EMU_NCCL_VERSION", version)
		_, err := nccl.Open(path)
		require.ErrorIs(t, err, nccl.ErrMissing)
		assert.ErrorContains(t, err, "is NCCL "+want+", but 2.22.3 or newer is needed")
	}
	t.Setenv("EMU_NCCL_VERSION", "22203")
	lib, err := nccl.Open(path)
	require.NoError(t, err)
	assert.Equal(t, "NCCL 2.22.3 ("+path+")", lib.String())
	_, err = nccl.Open("/nowhere/libnccl.so.2")
	require.ErrorIs(t, err, nccl.ErrMissing)
	assert.ErrorContains(t, err, "pip install nvidia-nccl")
	_, err = nccl.Open(os.Getenv("RINGO_NVRTC_LIB"))
	assert.ErrorContains(t, err, "has no symbol ncclGetVersion")
}

package peer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

// NVIDIA's compiler compiles the kernels.
func TestNVRTC(t *testing.T) {
	c := emu.NVRTC(t)
	for _, arch := range []string{"sm_80", "sm_90", "sm_100"} {
		t.Run(arch, func(t *testing.T) { require.NoError(t, peer.CompileAll(c, arch)) })
	}
}

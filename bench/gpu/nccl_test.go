package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

// TestNCCL measures calls of the emulated NCCL, from Go and from C: the cost of calling it without cgo (with -v).
func TestNCCL(t *testing.T) {
	emu.Start(t, emu.Config{})
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("this test needs gcc")
	}
	path := filepath.Join(t.TempDir(), "caller")
	require.NoError(t, buildCaller(path))
	dev, closer, err := openDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, section: "nccl", length: 0.01}
	m.caller = func() (*exec.Cmd, error) { return exec.Command(path), nil }
	require.NoError(t, measureNCCL(m))
	require.Len(t, m.rows, 6)
	for i, r := range m.rows {
		t.Logf("%s: %s %.4g %s", r.what, r.variant, r.median, r.unit)
		assert.Equal(t, []string{"ringo", "C", "ringo"}[i%3], r.variant)
		assert.True(t, r.low <= r.median && r.median <= r.high, r)
		if i%3 < 2 {
			assert.Positive(t, r.low)
		}
	}

	m.rows, m.caller = nil, packedCaller
	assert.ErrorContains(t, measureNCCL(m), "there is no archive here")
	assert.Len(t, m.rows, 2)
}

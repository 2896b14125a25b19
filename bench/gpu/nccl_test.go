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

// TestNCCLPair measures sums of two ranks that share a GPU, in a process that begins with NCCL's variable. An older NCCL is named.
func TestNCCLPair(t *testing.T) {
	emu.Only(t, "on a GPU the section itself runs")
	emu.Start(t, emu.Config{})
	file := testPrograms(t)
	out, err := program(t, file, "bench", "-small", "-python", "", "-window", "1us", ncclPair)
	require.NoError(t, err, out)
	assert.Regexp(t, `(?m)^ncclpair\t256\.00 KiB, two ranks on one device\tringo\tGB/s\t`, out)
	assert.Regexp(t, `(?m)^ncclpair\t8\.00 KiB, two ranks on one device\tringo\tcalls/s\t`, out)

	out, err = program(t, file, "measure", "-small", "-window", "1us", ncclPair)
	require.Error(t, err, "without the variable")
	assert.Contains(t, out, "Duplicate GPU")
	assert.NotContains(t, out, "ncclpair\t")

	t.Setenv("EMU_NCCL_VERSION", "22907")
	out, err = program(t, file, "bench", "-small", "-python", "", ncclPair)
	require.NoError(t, err, out)
	assert.Contains(t, out, "ncclpair\tnothing measured: two ranks on one device need NCCL 2.30, and this is\tringo\tversion\t2.29\t")
}

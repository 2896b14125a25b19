package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

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

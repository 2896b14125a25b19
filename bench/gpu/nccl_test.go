package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/bench/gpu/measure"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// overNCCL are the sections that measure nothing on the CPU.
var overNCCL = []string{measure.NCCLPair, "stages", "ring"}

// TestNCCLPair measures sums of two ranks that share a GPU, in a process that begins with NCCL's variable. An older NCCL is named.
func TestNCCLPair(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Only(t, "on a GPU the section itself runs")
	emu.Start(t, emu.Config{})
	file := testPrograms(t)
	out, err := program(t, file, "bench", "-small", "-python", "", "-window", "1us", measure.NCCLPair)
	require.NoError(t, err, out)
	assert.Regexp(t, `(?m)^ncclpair\t256\.00 KiB, two ranks on one device\tringo\tGB/s\t`, out)
	assert.Regexp(t, `(?m)^ncclpair\t8\.00 KiB, two ranks on one device\tringo\tcalls/s\t`, out)

	out, err = program(t, file, "measure", "-small", "-window", "1us", measure.NCCLPair)
	require.Error(t, err, "without the variable")
	assert.Contains(t, out, "Duplicate GPU")
	assert.NotContains(t, out, "ncclpair\t")

	t.Setenv("EMU_NCCL_VERSION", "22907")
	out, err = program(t, file, "bench", "-small", "-python", "", measure.NCCLPair)
	require.NoError(t, err, out)
	assert.Contains(t, out, "ncclpair\tnothing measured: two ranks on one device need NCCL 2.30, and this is\tringo\tversion\t2.29\t")
}

// TestTwoGPUs measures a ring and, in the long form, a pipeline, of which two ranks on GPUs of their own must have the losses and gradients
// of one. With one GPU, the sections say so.
func TestTwoGPUs(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Only(t, "on GPUs the sections themselves run")
	emu.Start(t, emu.Config{}) // two devices
	file := testPrograms(t)
	args := []string{"bench", "-small", "-python", "", "-window", "1us", "ring"}
	if reliability.Long(t) {
		args = append(args, "stages")
	}
	sections := args[6:]
	out, err := program(t, file, args...)
	require.NoError(t, err, out)
	for _, row := range []string{
		"stages\t1F1B of 8 microbatches, one rank\tringo\tsteps/s", "stages\t1F1B of 8 microbatches, two ranks\tringo\tsteps/s",
		"stages\tbubble, two ranks\tringo\t%", "stages\tbubble in the drawing\tringo\t%\t11.11",
		"ring\tattention and backward, one rank\tringo\tsteps/s", "ring\tattention and backward, two ranks\tringo\tsteps/s",
		"ring\tstep of two ranks by half of one rank's\tringo\ttimes",
	} {
		if section, _, _ := strings.Cut(row, "\t"); slices.Contains(sections, section) {
			assert.Regexp(t, "(?m)^"+row+"\t", out)
		}
	}

	t.Setenv("EMU_DEVICES", "1")
	out, err = program(t, file, args...)
	require.NoError(t, err, out)
	for _, section := range sections {
		assert.Contains(t, out, section+"\tnothing measured: two ranks need a GPU each, and there is\tringo\tGPU\t1\t")
	}
	assert.NotContains(t, out, "steps/s")
}

func TestLongTwoGPUs(t *testing.T) { reliability.AsLong(t, TestTwoGPUs) }

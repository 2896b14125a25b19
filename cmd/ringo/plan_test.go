package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlan: ringo plan prints the plan as tables or as JSON.
func TestPlan(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := run(t, "plan", "-layout", "dp=8,fsdp=8,tp=2", "-batch", "512", "-vocab", "50304", "-stage", "2",
		"-params", "bfloat16")
	require.Zero(t, code, stderr)
	for _, want := range []string{"dp=8,fsdp=8,tp=2, fsdp stage 2, 128 ranks, parameters in bfloat16, gradients sent in float32",
		"2·P + 4·P/8", "allreduce over tp", "reducescatter over fsdp"} {
		assert.Contains(t, stdout, want)
	}
	stdout, stderr, code = run(t, "plan", "-layout", "fsdp=4,ep=8", "-experts", "8", "-batch", "512")
	require.Zero(t, code, stderr)
	for _, want := range []string{
		"fsdp=4,ep=8, fsdp stage 3, 32 ranks", "of them of experts", "allgather over fsdp×ep", "allgather over fsdp ", "alltoall over ep",
	} {
		assert.Contains(t, stdout, want)
	}
	stdout, stderr, code = run(t, "plan", "-layout", "fsdp=4,ring=2,cp=4", "-seq", "65536")
	require.Zero(t, code, stderr)
	for _, want := range []string{"fsdp=4,ring=2,cp=4, fsdp stage 3, 32 ranks", "allgather over fsdp×ring×cp", "send over ring",
		"alltoall over cp"} {
		assert.Contains(t, stdout, want)
	}
	stdout, stderr, code = run(t, "plan", "-layout", "pp=4,dp=2", "-batch", "64", "-micro", "16")
	require.Zero(t, code, stderr)
	for _, want := range []string{"pp=4,dp=2, ddp, 8 ranks", "memory is that of rank 0 of the pipeline, where P = ",
		"rank of the pipeline  layers", "ranks wait 15.8% of the time", "send over pp", "allreduce over dp"} {
		assert.Contains(t, stdout, want)
	}
	stdout, stderr, code = run(t, "plan", "-layers", "2", "-dim", "8", "-heads", "2", "-vocab", "16", "-seq", "4", "-layout", "fsdp=2",
		"-reduce", "bfloat16", "-json")
	require.Zero(t, code, stderr)
	var p struct {
		Stage, Parameters, Total int
		Reduce                   string
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &p))
	assert.Equal(t, [2]int{3, 16*8 + 4*8 + 16 + 2*(12*64+13*8)}, [2]int{p.Stage, p.Parameters})
	assert.Equal(t, "bfloat16", p.Reduce)
	assert.Greater(t, p.Total, 0)
}

// For an impossible layout or model, the error is one sentence, and the exit status is 2.
func TestPlanErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"12 heads do not divide over tp=5 ranks (see ringo plan -h)":                                  {"-layout", "tp=5"},
		`layout "sp=2": the axes are pp, dp, fsdp, ep, ring, cp and tp, not "sp" (see ringo plan -h)`: {"-layout", "sp=2"},
		`layout "dp=0": "dp=0" should be an axis with a size, such as tp=2 (see ringo plan -h)`:       {"-layout", "dp=0"},
		"stage 2 needs an fsdp axis in the layout, such as fsdp=4 (see ringo plan -h)":                {"-layout", "dp=4", "-stage", "2"},
		`unknown dtype "int8" (float32, float64, bfloat16, float16) (see ringo plan -h)`:              {"-params", "int8"},
		"gradients of bfloat16 parameters cannot be reduced in float32 without fsdp (see ringo plan": {"-params", "bfloat16",
			"-reduce", "float32"},
		"6 experts do not divide over ep=4 ranks (see ringo plan -h)":                   {"-layout", "ep=4", "-experts", "6"},
		`pp: no schedule "2f2b" of 2 ranks, 2 chunks, 8 microbatches; there are [1f1b `: {"-layout", "pp=2", "-schedule", "2f2b"},
		"-schedule forward trains nothing (see ringo plan -h)":                          {"-layout", "pp=2", "-schedule", "forward"},
		"the 4 ranks that share a copy do not divide into hosts of 3 (see ringo plan":   {"-layout", "fsdp=4", "-host", "3", "-int8", "-int4"},
		"0 heads: at least 1 (see ringo plan -h)":                                       {"-heads", "0"},
		"unexpected argument foo":                                                       {"foo"},
		"unknown flag -nope":                                                            {"--nope"},
	} {
		stdout, stderr, code := run(t, append([]string{"plan"}, args...)...)
		assert.Equal(t, 2, code, want)
		assert.Contains(t, stderr, "ringo: "+want)
		assert.Regexp(t, `^[^\n]*\n$`, stderr)
		assert.Empty(t, stdout)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/sim"
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
	stdout, stderr, code = run(t, "plan", "-layout", "pp=4,fsdp=2", "-batch", "64", "-micro", "16")
	require.Equal(t, 0, code, stderr)
	for _, want := range []string{"pp=4,fsdp=2, fsdp stage 3, 8 ranks", "gathered", "allgather over fsdp", "reducescatter over fsdp"} {
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

// With -topo the plan has times, the arithmetic of its layout, and the fastest layouts of as many ranks.
func TestPlanOnTopology(t *testing.T) {
	t.Parallel()
	args := []string{"plan", "-layout", "dp=4,tp=8", "-batch", "512", "-heads", "16", "-dim", "1024", "-vocab", "50304", "-topo", "hgx-h100x4"}
	stdout, stderr, code := run(t, args...)
	require.Zero(t, code, stderr)
	for _, want := range []string{"\ntime of a step on hgx-h100x4, predicted: ", " FLOP over 32 ranks of 400 TFLOP/s\n",
		"4 all-reduces of 128·1024·1024·4 bytes in each of 12 layers and 1 microbatches", "(pp−1)/m = 0/1 of the above",
		"4 bytes a parameter summed and 4 gathered over 4 ranks", "the fastest of as many ranks"} {
		assert.Contains(t, stdout, want)
	}
	stdout, stderr, code = run(t, append(args, "-json")...)
	require.Zero(t, code, stderr)
	var p struct {
		Total int
		Time  timing
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &p))
	assert.Greater(t, p.Total, 0)
	require.Len(t, p.Time.Layouts, 6)
	mine, best := p.Time.Layouts[0], p.Time.Layouts[1]
	assert.Equal(t, [2]string{"dp=4,tp=8", "pp=1,dp=32,tp=1"}, [2]string{mine.Layout, best.Layout})
	assert.InDelta(t, mine.Step, mine.Compute+mine.Tensor+mine.Bubble+mine.Stages+mine.Data, 1e-9)
	assert.Less(t, best.Step, mine.Step)
	stdout, stderr, code = run(t, "plan", "-layout", "dp=4,ep=8", "-experts", "8", "-batch", "512", "-topo", "hgx-h100x4")
	require.Zero(t, code, stderr)
	// 32 ranks with 16 sequences each; a pair of ranks swaps an eighth, in seven steps of two latencies of 500 ns each at 370 GB/s.
	each := 7 * (1000 + 16*1024*2*768*4/8/370.)
	assert.Contains(t, stdout, fmt.Sprintf("\n  experts   %10v  4 all-to-alls of 16·1024·2·768·4 bytes over 8 ranks, in each of these",
		sim.Time(4*12*each*1000)))
	assert.Contains(t, stdout, " gathered over 32 ranks (those of experts: 4), less half of the time above\n")
	assert.Contains(t, stdout, "\n  pp=1,dp=4,ep=8,tp=1 ", "among the fastest layouts")

	for want, more := range map[string][]string{
		"-topo hgx-h100x3: 32 ranks do not fit on 3 hosts of 8":      {"-topo", "hgx-h100x3"},
		`-topo: no topology is called "dgx"; there are hgx-h100`:     {"-topo", "dgxx4"},
		"-topo: the time of ring and cp is not predicted":            {"-layout", "dp=4,cp=8"},
		"-topo: the time of -host, -int8 and -int4 is not predicted": {"-layout", "fsdp=32", "-int8"},
		"-tflops 0: what a rank computes is from 0.001 to 1e6":       {"-tflops", "0"},
		"-tflops +Inf: what a rank computes is from 0.001 to 1e6":    {"-tflops", "Inf"},
		"-topo hgx-h100x0: 32 ranks do not fit on 0 hosts of 8":      {"-topo", "hgx-h100x0"},
		"-topo: the time of -schedule zb-h1 is not predicted, only":  {"-layout", "pp=4,dp=8", "-schedule", "zb-h1"},
	} {
		_, stderr, code := run(t, append(args, more...)...)
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, "ringo: "+want)
	}
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
		"-micro, -schedule and -chunks need pp in -layout":                              {"-layout", "dp=4", "-micro", "8"},
		"-micro, -schedule and -chunks need pp in -layout (see":                         {"-chunks", "2"},
		"-micro, -schedule and -chunks need pp in -layout (see ringo p":                 {"-schedule", "1f1b"},
		"-schedule forward trains nothing (see ringo plan -h)":                          {"-layout", "pp=2", "-schedule", "forward"},
		"the 4 ranks that share a copy do not divide into hosts of 3 (see ringo plan":   {"-layout", "fsdp=4", "-host", "3", "-int8", "-int4"},
		"-topk needs -experts (see ringo plan -h)":                                      {"-topk", "2"},
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

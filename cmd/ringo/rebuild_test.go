//go:build linux || darwin

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRebuild kills ranks in the middle of a step: the others go on, without a restart, and compute what one rank alone does.
func TestRebuild(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	program := program(t, "shrink")
	weights := regexp.MustCompile(`weights .*`)
	alone, stderr, code := run(t, "run", "-n", "1", program, "11", "-1")
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, weights, alone)
	for dead, left := range map[string]string{"0": "1", "2": "0", "0 3": "1"} { // and the rank that prints then
		n, who := "4", strings.Fields(dead)
		if len(who) > 1 {
			n = "5"
		}
		args := append([]string{"run", "-n", n, "-rebuild", "-timeout", "20s", program, "11", "5"}, who...)
		stdout, stderr, code := run(t, args...)
		require.Equal(t, 0, code, stdout+stderr)
		assert.Regexp(t, `3 ranks go on without rank \d \(pid \d+\)`, stderr)
		assert.Regexp(t, `ringo: the job ended well, without rank `+strings.Join(who, `.*rank `)+` \(pid \d+\)\n$`, stderr)
		assert.Contains(t, stdout, "["+left+"] go on at step 5 with 3 ranks\n")
		assert.Equal(t, weights.FindString(alone), weights.FindString(stdout))
	}
}

// TestRebuildCannot shows what ends a job in spite of -rebuild: too few ranks that are left, and a package that divides parameters.
func TestRebuildCannot(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	program := program(t, "shrink")
	stdout, stderr, code := run(t, "run", "-n", "2", "-rebuild", "-timeout", "20s", program, "11", "5", "0")
	assert.Equal(t, 128+9, code, stdout+stderr)
	assert.Regexp(t, `ringo: rank 0 \(pid \d+\) was killed by signal killed\nand 1 rank failed because of it\n$`, stderr)
	assert.Contains(t, stderr, "-rebuild: ")
	_, stderr, code = run(t, "run", "-n", "2", "-rebuild", program, "fsdp")
	assert.Equal(t, 1, code, stderr)
	assert.Contains(t, stderr, "fsdp: ringo run -rebuild goes on without a lost rank, but fsdp divides")
	_, stderr, code = run(t, "run", "-n", "2", "-rebuild", "-nodes", "2", "-rdzv", "127.0.0.1:1", program)
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "on one host only")
}

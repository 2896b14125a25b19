//go:build linux || darwin

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestRebuild kills ranks in the middle of a step. The others continue without a restart, and compute what one rank computes.
func TestRebuild(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	program := program(t, "shrink")
	alone := weightsAlone(t, program)
	cases := map[string]string{"0": "1"} // the dead ranks, and the rank that prints then
	if reliability.Long(t) {
		cases["2"], cases["0 3"] = "0", "1"
	}
	for dead, left := range cases {
		n, who := "4", strings.Fields(dead)
		if len(who) > 1 {
			n = "5"
		}
		args := []string{"run", "-n", n, "-rebuild", "-timeout", "20s", program, "11"}
		for _, rank := range who {
			args = append(args, rank+"@5")
		}
		stdout, stderr, code := run(t, args...)
		require.Equal(t, 0, code, stdout+stderr)
		assert.Regexp(t, `3 ranks go on without rank \d \(pid \d+\)`, stderr)
		assert.Regexp(t, `ringo: the job ended well, without rank `+strings.Join(who, `.*rank `)+` \(pid \d+\)\n$`, stderr)
		assert.Contains(t, stdout, "["+left+"] go on at step 5 with 3 ranks\n")
		assert.NotContains(t, stdout, "resumed")
		assert.Equal(t, alone, weights.FindString(stdout))
		for _, line := range regexp.MustCompile(`rank \d \(pid \d+\) was killed`).FindAllString(stderr, -1) {
			assert.Equal(t, 1, strings.Count(stderr, line), stderr)
		}
	}
}

func TestLongRebuild(t *testing.T) { reliability.AsLong(t, TestRebuild) }

var weights = regexp.MustCompile(`weights .*`)

// weightsAlone returns the output of one rank that is not killed.
func weightsAlone(t *testing.T, program string) string {
	stdout, stderr, code := run(t, "run", "-n", "1", program, "11")
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, weights, stdout)
	return weights.FindString(stdout)
}

// TestLongRebuildThenRestart loses one rank, and the others continue without it. Then it loses too many: all ranks start again, also the
// lost one. TestRebuild and TestRestarts are its short forms.
func TestLongRebuildThenRestart(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	needsProcesses(t)
	program := program(t, "shrink")
	stdout, stderr, code := run(t, "run", "-n", "4", "-rebuild", "-max-restarts", "1", "-timeout", "20s", program, "11", "3@5", "0@8", "1@8")
	require.Equal(t, 0, code, stdout+stderr)
	assert.Regexp(t, `ringo: 3 ranks go on without rank 3 \(pid \d+\)\n`, stderr)
	said := regexp.MustCompile(`(?m)^\[2\] .*\n`).ReplaceAllString(stderr, "") // rank 2 may see that the others are gone before it is ended
	assert.Regexp(t,
		`ringo: rank [01] \(pid \d+\) was killed by signal killed\nringo: restart 1 of 1: generation 1 is over, generation 2 begins\n$`, said)
	assert.Equal(t, weightsAlone(t, program), weights.FindString(stdout))
}

// TestLongRebuildStopped stops a rank: the others reach their timeout and continue without it, and it is killed.
func TestLongRebuildStopped(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	needsProcesses(t)
	program := program(t, "shrink")
	for stopped, left := range map[string]string{"0": "1", "3": "0"} {
		stdout, stderr, code := run(t, "run", "-n", "4", "-rebuild", "-timeout", "5s", program, "11", "stop"+stopped+"@5")
		require.Equal(t, 0, code, stdout+stderr)
		assert.Contains(t, stdout, "["+left+"] go on at step 5 with 3 ranks\n")
		assert.Regexp(t, `ringo: the job ended well, without rank `+stopped+` \(pid \d+\)\n$`, stderr)
		assert.Equal(t, weightsAlone(t, program), weights.FindString(stdout))
	}
}

// TestRebuildCannot shows what ends a job in spite of -rebuild: too few ranks left, and a package that divides parameters.
func TestRebuildCannot(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	program := program(t, "shrink")
	if reliability.Long(t) { // TestRebuildNoQuorum of dist is the short form
		stdout, stderr, code := run(t, "run", "-n", "2", "-rebuild", "-timeout", "20s", program, "11", "0@5")
		assert.Equal(t, 128+9, code, stdout+stderr)
		assert.Regexp(t, `ringo: rank 0 \(pid \d+\) was killed by signal killed \(and 1 rank failed because of it\)\n$`, stderr)
		assert.Contains(t, stderr, "-rebuild: ")
	}
	_, stderr, code := run(t, "run", "-n", "2", "-rebuild", program, "fsdp")
	assert.Equal(t, 1, code, stderr)
	assert.Contains(t, stderr, "fsdp: ringo run -rebuild goes on without a lost rank, but fsdp divides")
	_, stderr, code = run(t, "run", "-n", "2", "-rebuild", "-nodes", "2", "-rdzv", "127.0.0.1:1", program)
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "on one host only")
}

func TestLongRebuildCannot(t *testing.T) { reliability.AsLong(t, TestRebuildCannot) }

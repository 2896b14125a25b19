//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestRestarts: a job crashes in the same step again and again. Each start resumes, and the last failure is the result.
func TestRestarts(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	program := program(t, "restart")
	logs := t.TempDir()
	stdout, stderr, code := run(t, "run", "-n", "2", "-max-restarts", "2", "-timeout", "20s", "-log-dir", logs, program, t.TempDir(), "9",
		"7", "7", "7")
	assert.Equal(t, 1, code, stdout+stderr)
	assert.Contains(t, stdout, "[0] generation 1, rank 0 of 2, pid ")
	jobs, err := filepath.Glob(filepath.Join(logs, "job-*"))
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	logs = jobs[0]
	for _, gen := range []string{"2", "3"} {
		assert.FileExists(t, filepath.Join(logs, "generation-"+gen+"-rank-1.log"))
	}
	assert.Equal(t, 3, strings.Count(stdout, "[1] error: rank 1: crash in step 7\n"))
	assert.Regexp(t, `ringo: rank 1 \(pid \d+\) failed: crash in step 7\nringo: restart 1 of 2: generation 1 is over, generation 2 begins\n`,
		stderr)
	assert.Regexp(t, `ringo: restart 2 of 2: generation 2 is over, generation 3 begins\n`, stderr)
	assert.Regexp(t, `ringo: generation 3 was the last: restarts without progress are limited to 2\n`+
		`rank 1 \(pid \d+\) failed: crash in step 7 \(and 1 rank failed because of it\)\n$`, stderr)
	log, err := os.ReadFile(filepath.Join(logs, "generation-1-rank-1.log"))
	require.NoError(t, err)
	assert.Regexp(t, `(?s)^(.*\n)?generation 1, rank 1 of 2, pid \d+: step 0\n`, string(log)) // stdout and stderr have no order
	assert.Contains(t, "\n"+string(log), "\nerror: rank 1: crash in step 7\n")
	for kind, want := range map[string]int{"log": 6, "state": 6} {
		list, err := filepath.Glob(filepath.Join(logs, "*."+kind))
		require.NoError(t, err)
		assert.Len(t, list, want, kind)
	}
}

// A wrong command line of the script is not started again: no restart repairs it.
func TestWrongFlagIsNotRestarted(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	wrong := [][]string{{"-sizes", "1K", "-ops", "none"}}
	if reliability.Long(t) {
		wrong = append(wrong, []string{"-no-such-flag"}, []string{"-sizes", "none"})
	}
	for _, flags := range wrong {
		_, stderr, code := run(t, append([]string{"run", "-n", "2", "-max-restarts", "8", os.Args[0], "bench"}, flags...)...)
		assert.Equal(t, 2, code, stderr)
		assert.Contains(t, stderr, "ringo: no restart: status 2 means a wrong command line\n", flags)
		assert.NotContains(t, stderr, "restart 1 of", flags)
	}
}

func TestLongWrongFlagIsNotRestarted(t *testing.T) {
	reliability.AsLong(t, TestWrongFlagIsNotRestarted)
}

// TestProgress: a job crashes more often than it may be restarted, but each time later, and it succeeds.
func TestProgress(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	program := program(t, "restart")
	crashes := []string{"7", "9"}
	if reliability.Long(t) {
		crashes = append(crashes, "11", "13")
	}
	stdout, stderr, code := run(t, append([]string{"run", "-n", "2", "-max-restarts", "1", "-timeout", "20s", program, t.TempDir(), "14"},
		crashes...)...)
	assert.Equal(t, 0, code, stdout+stderr)
	for i, step := range append([]string{"0"}, crashes...) {
		assert.Regexp(t, fmt.Sprintf(`\[0\] generation %d, rank 0 of 2, pid \d+: step %s\n`, i+1, step), stdout)
	}
	assert.Equal(t, len(crashes), strings.Count(stderr, "restart 1 of 1"), stderr)
	assert.Contains(t, stdout, fmt.Sprintf("[1] generation %d, rank 1 ends\n", len(crashes)+1))
}

func TestLongProgress(t *testing.T) { reliability.AsLong(t, TestProgress) }

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
)

// TestStackOfALateRank: a rank hangs in its own code, and the others wait for it. ringo prints where it is, and keeps what each rank did.
func TestStackOfALateRank(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	logs := t.TempDir()
	stdout, stderr, code := run(t, "run", "-n", "3", "-timeout", "1s", "-log-dir", logs, program(t, "stuck"), "1")
	assert.Equal(t, 1, code, stdout+stderr)
	assert.Contains(t, stdout, "rank 2 did not arrive within 1s")
	assert.Regexp(t, `(?s)ringo: rank 2 \(pid \d+\), for which others waited, was here:\nringo: goroutine \d+ \[chan receive.*`+
		`stuck\.hangs\(.*rank \d \(pid \d+\) failed: `, stderr)

	for rank, want := range []string{"allreduce by \\S+ seq 2 .* in flight\n", "allreduce by \\S+ seq 2 .* in flight\n", "barrier .*took"} {
		files, err := filepath.Glob(filepath.Join(logs, "job-*", fmt.Sprintf("generation-1-rank-%d.state", rank)))
		require.NoError(t, err)
		require.Len(t, files, 1)
		text, err := os.ReadFile(files[0])
		require.NoError(t, err)
		assert.Regexp(t, `^the last operations:\n(.*\n)*.*`+want, string(text))
		assert.Equal(t, rank == 2, strings.Contains(string(text), "stuck.hangs("), string(text))
	}
}

// TestStalledJob: all ranks hang in their own code, so no operation has a timeout.
func TestStalledJob(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	stdout, stderr, code := run(t, "run", "-n", "2", "-stall", "2s", program(t, "stuck"), "2")
	assert.Equal(t, 1, code, stdout+stderr)
	assert.Regexp(t, `(?s)^ringo: no rank got further within 2s \(-stall\)\nrank 0 \(pid \d+\): last barrier .* took .*stuck\.hangs\(.*`+
		`\nrank 1 \(pid \d+\): last barrier .*stuck\.hangs\([^\n]*\n[^\n]*\n`, stderr)
}

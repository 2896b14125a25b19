//go:build linux || darwin

package main

import (
	"bufio"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestAllReduce(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	stdout, stderr, code := run(t, "run", "-n", "3", "-timeout", "20s", program(t, "allreduce"))
	assert.Equal(t, 0, code, stdout+stderr)
	for _, want := range []string{"[0] rank 0 of 3, ", "[1] rank 1 of 3, ", "[2] rank 2 of 3, "} {
		assert.Contains(t, stdout, want)
	}
	assert.Equal(t, 3, strings.Count(stdout, "sums are right"))
}

// TestRankKilled kills a rank between or in operations, rank 0 alone in the short form: every other rank ends with an error that names it.
func TestRankKilled(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	program := program(t, "allreduce")
	victims := 1
	if reliability.Long(t) {
		victims = 3
	}
	for victim := range victims {
		f := faultyJob(t, program, "60s", victim, syscall.SIGKILL)
		assert.Equal(t, 128+9, f.code)
		assert.Contains(t, f.stderr, f.named+" was killed by signal killed (and 2 ranks failed because of it)\n")
		assert.Less(t, f.took, time.Second+reliability.Slack)
		f.requireOthersFailed(t)
	}
}

func TestLongRankKilled(t *testing.T) { reliability.AsLong(t, TestRankKilled) }

// TestLongRankStopped stops a rank: every other rank fails after the timeout, and ringo ends the stopped one.
func TestLongRankStopped(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	needsProcesses(t)
	program := program(t, "allreduce")
	for victim := range 3 {
		f := faultyJob(t, program, "2s", victim, syscall.SIGSTOP)
		assert.Equal(t, 1, f.code)
		assert.Contains(t, f.stderr, "no progress")
		assert.Contains(t, f.stderr, f.named+" did not end by itself and was killed; its last heartbeat was")
		assert.Regexp(t, `rank \d .*failed.* \(and 2 ranks failed because of it\)\n$`, f.stderr)
		assert.Less(t, f.took, 3*time.Second+reliability.Slack) // the timeout, two checks for progress, and some extra time
		f.requireOthersFailed(t)
	}
}

// fault is the result of a job of three ranks after one of them got a signal.
type fault struct {
	victim int
	named  string // the name of the victim in ringo's messages
	stdout string
	stderr string
	code   int
	took   time.Duration
}

func faultyJob(t *testing.T, program, timeout string, victim int, sig syscall.Signal) fault {
	t.Helper()
	cmd, _, stderr, _ := command(t, "run", "-n", "3", "-timeout", timeout, program, "forever")
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	pids := map[int]int{}
	var stdout strings.Builder
	lines := bufio.NewScanner(out)
	started := regexp.MustCompile(`^\[(\d)\] rank \d of 3, pid (\d+): sums`)
	for len(pids) < 3 && lines.Scan() {
		stdout.WriteString(lines.Text() + "\n")
		if m := started.FindStringSubmatch(lines.Text()); m != nil {
			rank, _ := strconv.Atoi(m[1])
			pids[rank], _ = strconv.Atoi(m[2])
		}
	}
	require.Len(t, pids, 3, stdout.String())
	start := time.Now()
	require.NoError(t, syscall.Kill(pids[victim], sig))
	for lines.Scan() {
		stdout.WriteString(lines.Text() + "\n")
	}
	_ = cmd.Wait()
	took := time.Since(start)
	t.Logf("rank %d %v: all is over after %v\n%s", victim, sig, took, stderr)
	for _, pid := range pids {
		assert.Equal(t, syscall.ESRCH, syscall.Kill(pid, 0), "process %d is left", pid)
	}
	named := "rank " + strconv.Itoa(victim) + " (pid " + strconv.Itoa(pids[victim]) + ")"
	return fault{victim: victim, named: named, stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode(), took: took}
}

// requireOthersFailed requires an error on each other rank that names the victim and the operation.
func (f fault) requireOthersFailed(t *testing.T) {
	t.Helper()
	for rank := range 3 {
		if rank == f.victim {
			continue
		}
		line := regexp.MustCompile(`(?m)^\[` + strconv.Itoa(rank) + `\] error: .*`).FindString(f.stdout)
		t.Log(line)
		assert.Regexp(t, `rank `+strconv.Itoa(f.victim)+`\b`, line, f.stdout)
		assert.Regexp(t, `allreduce seq \d+`, line, f.stdout)
	}
}

//go:build linux || darwin

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// shownJob is what the page of a job gets.
type shownJob struct {
	Job struct {
		Program, State, Text           string
		Generation, Ranks, Step, Total int
	}
	Rates, Values []struct {
		Name   string
		Steps  []int
		Values []float64
	}
	Kinds  []string
	Memory [][]int
	Comm   []struct {
		Name                 string
		Calls, Payload, Wire uint64
		Flight, Waited       int64
	}
	Slow struct {
		Steps, Ranks, Times []int
		Own, Took           []int64
	}
	Status []string
}

// servedJob is a running `ringo run -serve`.
type servedJob struct {
	cmd    *exec.Cmd
	url    string
	stderr *bytes.Buffer
	read   sync.WaitGroup // waits for the end of its output
	out    *bytes.Buffer
}

// startServed starts `ringo run -serve 127.0.0.1:0 args…` and finds the address of the page.
func startServed(t *testing.T, args ...string) *servedJob {
	t.Helper()
	cmd, out, stderr, _ := command(t, append([]string{"run", "-serve", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = nil
	pipe, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	j := &servedJob{cmd: cmd, stderr: stderr, out: out}
	in := bufio.NewReader(pipe)
	line, err := in.ReadString('\n')
	require.NoError(t, err, line)
	j.url = regexp.MustCompile(`^ringo: live view at (http://127\.0\.0\.1:\d+/\w{26}/)\n$`).FindStringSubmatch(line)[1]
	j.read.Go(func() { _, _ = io.Copy(stderr, in) })
	return j
}

// end waits for the job and returns its exit status.
func (j *servedJob) end() int {
	j.read.Wait()
	_ = j.cmd.Wait()
	return j.cmd.ProcessState.ExitCode()
}

// look reads the state of the job.
func (j *servedJob) look(t require.TestingT) (s shownJob) {
	answer, err := http.Get(j.url + "state")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&s))
	return s
}

// await returns the state of the job when it is as wanted.
func (j *servedJob) await(t *testing.T, wanted func(s shownJob) bool) (s shownJob) {
	t.Helper()
	require.Eventually(t, func() bool { s = j.look(t); return wanted(s) }, 60*time.Second, 20*time.Millisecond)
	return s
}

// follow reads the output of a rank and the job's state, as the page does, until the job is over.
func (j *servedJob) follow(t *testing.T, rank string) (lines string, last shownJob) {
	t.Helper()
	answer, err := http.Get(j.url + "events?rank=" + rank)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	for event := range strings.SplitSeq(string(text), "\n\n") {
		if data, ok := strings.CutPrefix(event, "event: lines\ndata: "); ok {
			lines = data
		}
		if data, ok := strings.CutPrefix(event, "event: state\ndata: "); ok {
			last = shownJob{}
			require.NoError(t, json.Unmarshal([]byte(data), &last))
		}
	}
	return lines, last
}

// TestServe watches a job that crashes in step 50, begins again, waits in step 40, and ends.
func TestServe(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	gate := filepath.Join(t.TempDir(), "go")
	j := startServed(t, "-n", "3", "-max-restarts", "1", "-threads", "1", "-timeout", "20s", program(t, "watched"), "60", "50", "40", gate)
	first := j.await(t, func(s shownJob) bool { return s.Job.Step == 40 && len(s.Slow.Steps) == 40 }) // each rank reports for itself
	assert.Equal(t, 1, first.Job.Generation)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	lines, last := j.follow(t, "1")
	require.Equal(t, 0, j.end(), j.stderr.String())

	assert.Equal(t, "running", first.Job.State)
	assert.Equal(t, []int{3, 60}, []int{first.Job.Ranks, first.Job.Total})
	assert.Equal(t, "watched", first.Job.Program)
	checkServed(t, first, 40)
	assert.Equal(t, []string{"running", "running", "running"}, first.Status)
	assert.Greater(t, first.Slow.Times[1], 20, "%v", first.Slow)
	assert.Greater(t, first.Slow.Own[1], int64(3000))
	assert.Len(t, first.Slow.Steps, 40)

	assert.Equal(t, 2, last.Job.Generation)
	assert.Equal(t, "ended", last.Job.State)
	require.Len(t, last.Values[0].Steps, 60)
	checkServed(t, last, 60)
	assert.Equal(t, []string{"ended", "ended", "ended"}, last.Status)
	assert.Contains(t, lines, `\u003ci\u003erank 1 of generation 1\u003c/i\u003e`)
	_, second, _ := strings.Cut(lines, `"— generation 2 —"`) // the last lines of the first generation may come late
	assert.Contains(t, second, `\u003ci\u003erank 1 of generation 2\u003c/i\u003e`)
	assert.NotContains(t, lines, "rank 0 of")
	assert.Contains(t, j.out.String(), "[1] <i>rank 1 of generation 2</i>\n")
	assert.NotContains(t, j.stderr.String(), "live view") // printed once
	assert.Contains(t, j.stderr.String(), "generation 2 begins")
}

// checkServed checks the state of the program watched after so many steps of its generation.
func checkServed(t *testing.T, s shownJob, steps int) {
	t.Helper()
	require.Len(t, s.Values, 1)
	assert.Equal(t, "loss", s.Values[0].Name)
	require.NotEmpty(t, s.Values[0].Steps) // those that the loop has read; at the end all of them
	for i, step := range s.Values[0].Steps {
		assert.Equal(t, i+1, step)
		assert.InDelta(t, 1/float64(step), s.Values[0].Values[i], 1e-12)
	}
	require.Len(t, s.Rates, 1, "steps without samples")
	assert.Positive(t, s.Rates[0].Values[0])
	for _, m := range s.Memory {
		assert.GreaterOrEqual(t, m[slices.Index(s.Kinds, "gradients")], 4000)
	}
	for _, op := range s.Comm {
		if op.Name == "allreduce" {
			assert.Equal(t, []uint64{uint64(3 * steps), uint64(3 * steps * 4000)}, []uint64{op.Calls, op.Payload})
			assert.GreaterOrEqual(t, op.Wire, op.Payload/3)
			assert.GreaterOrEqual(t, op.Flight, op.Waited)
			assert.Positive(t, op.Waited)
		}
	}
}

// TestLongServeExample watches an example from its beginning to its end.
func TestLongServeExample(t *testing.T) {
	reliability.SkipUnlessLong(t)
	j := startServed(t, "-n", "2", "-threads", "1", "../../examples/ddp-mnist", "-data", "synthetic", "-steps", "300")
	lines, last := j.follow(t, "0")
	require.Equal(t, 0, j.end(), j.stderr.String())
	assert.Equal(t, []any{"ddp-mnist", "ended", 300, 300}, []any{last.Job.Program, last.Job.State, last.Job.Step, last.Job.Total})
	require.Len(t, last.Rates, 2)
	assert.Equal(t, "samples/s", last.Rates[1].Name)
	for i, v := range last.Rates[1].Values {
		assert.InDelta(t, 128*last.Rates[0].Values[i], v, (128-10_000%128)*last.Rates[0].Values[i], "the last batch of an epoch is smaller")
	}
	var names []string
	for _, v := range last.Values {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{"loss", "learning rate", "skipped steps", "test accuracy"}, names)
	assert.Len(t, last.Values[0].Steps, 300)
	const parameters = 784*512 + 512 + 512*512 + 512 + 512*10 + 10
	for _, m := range last.Memory {
		assert.Equal(t, 4*parameters, m[slices.Index(last.Kinds, "parameters")])
	}
	for _, op := range last.Comm {
		if op.Name == "allreduce" {
			assert.GreaterOrEqual(t, op.Payload, uint64(2*300*4*parameters))
			assert.Less(t, op.Payload, uint64(2*301*4*parameters))
		}
	}
	assert.Contains(t, lines, "300 steps, world size 2 ")
}

// A job that fails is shown as failed. TestFailures of cmd/ringo/live is the short form.
func TestLongServeFailure(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	needsProcesses(t)
	gate := filepath.Join(t.TempDir(), "go")
	j := startServed(t, "-n", "2", "-timeout", "20s", program(t, "watched"), "60", "50", "40", gate)
	j.await(t, func(s shownJob) bool { return s.Job.Step == 40 })
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	_, last := j.follow(t, "0")
	assert.Equal(t, 1, j.end())
	assert.Equal(t, "failed", last.Job.State)
	assert.Contains(t, last.Job.Text, "crash before step 50")
	assert.Equal(t, "failed first: status 1", last.Status[1])
	assert.Equal(t, 50, last.Job.Step) // what rank 0 reported at its end
}

// A wrong -serve is an error before anything starts.
func TestServeWrong(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"-serve " + taken.Addr().String(), "ringo: -serve: cannot serve at " + taken.Addr().String() + ": address already in use\n", 1},
		{"-serve here", "ringo: -serve here: \"here\" is no port and no host:port (see ringo run -h)\n", 2},
		{"-serve 0 -nodes 2 -node-rank 1 -rdzv 127.0.0.1:1", "ringo: -serve 0: host 0 shows the whole job, this is host 1 (see ringo run -h)\n",
			2},
	} {
		stdout, stderr, code := run(t, append(strings.Fields("run -n 1 "+c.args), "echo", "started")...)
		assert.Equal(t, c.code, code, c.args)
		assert.Equal(t, c.want, stderr, c.args)
		assert.Empty(t, stdout, c.args)
	}
}

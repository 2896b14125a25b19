//go:build linux || darwin

package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// console collects the output of a job.
type console struct{ reliability.Log }

// await returns when the output holds text n times.
func (c *console) await(t *testing.T, text string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(c.String(), text) >= n }, 20*time.Second, 2*time.Millisecond,
		"%d × %q", n, text)
}

// pids returns the numbers that stand behind a word such as "pid".
func (c *console) pids(word string) []int {
	var pids []int
	for _, m := range regexp.MustCompile(word+` (\d+)`).FindAllStringSubmatch(c.String(), -1) {
		pid, _ := strconv.Atoi(m[1])
		pids = append(pids, pid)
	}
	return pids
}

// roleConfig is a job of n ranks that play a role.
func roleConfig(n int, role string, args ...string) (Config, *console) {
	c := &console{}
	return Config{Ranks: n, Args: append([]string{os.Args[0], "role:" + role}, args...), Stdout: c, Stderr: c}, c
}

// alive tells whether a process runs; a zombie that only waits for its parent does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return state[0] != 'Z' && state[0] != 'X'
}

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, 2*time.Millisecond, "process %d", pid)
	}
}

func requireExit(t *testing.T, err error, code int) string {
	t.Helper()
	var exit *ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, code, exit.Code, exit.Text)
	return exit.Text
}

func TestOutput(t *testing.T) {
	c, out := roleConfig(4, "lines")
	require.NoError(t, Run(c))
	text := regexp.MustCompile(`(?m)^\[\d\] pid .*\n`).ReplaceAllString(out.String(), "")
	requireLines(t, text, 4, 200)
	requireGone(t, out.pids("pid"))
}

// TestNothingOfADeadWorkerIsLost has data in a pipe, and a report in the socket, when the worker is known to be dead, and
// something else holds both open. The launcher comes to read them late.
func TestNothingOfADeadWorkerIsLost(t *testing.T) {
	long := time.Now().Add(-time.Minute)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	defer r.Close()
	text := strings.Repeat("x", 60_000)
	_, err = w.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(long))
	got, err := io.ReadAll(&drainReader{from: r})
	require.NoError(t, err)
	assert.Equal(t, text, string(got))

	ours, theirs, err := socketPair()
	require.NoError(t, err)
	defer ours.Close()
	defer theirs.Close()
	_, err = theirs.WriteString(`{"kind":"primary","rank":3,"text":"boom"}` + "\n")
	require.NoError(t, err)
	require.NoError(t, ours.SetReadDeadline(long))
	a := &agent{events: make(chan event, 1)}
	(&proc{conn: ours}).readReports(a)
	require.Len(t, a.events, 1)
	assert.Equal(t, &message{Kind: Primary, Rank: 3, Text: "boom"}, (<-a.events).report)
}

// TestSlowReader lets nobody read the output before the worker is dead: all of it must arrive all the same.
func TestSlowReader(t *testing.T) {
	c, _ := roleConfig(1, "full")
	gate := &gateWriter{t: t}
	c.Stdout = gate
	require.NoError(t, Run(c))
	assert.Equal(t, 5000, strings.Count(gate.String(), "[0] 0123456789\n"))
}

type gateWriter struct {
	console
	t    *testing.T
	open bool
}

func (g *gateWriter) Write(p []byte) (int, error) {
	_, _ = g.console.Write(p)
	if !g.open {
		g.open = true
		pid := g.pids("pid")[0]
		assert.Eventually(g.t, func() bool { return !alive(pid) }, 10*time.Second, time.Millisecond)
	}
	return len(p), nil
}

// Jobs of one name, at once and after each other, that log into one folder: each file is one job's, and what somebody has put
// there, files and links, stays as it is.
func TestLogsAreNew(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "theirs")
	require.NoError(t, os.WriteFile(theirs, []byte("precious"), 0o600))
	open := func(job string) *os.File {
		a := &agent{config: &Config{LogDir: dir}, start: start{Gen: 1, Job: job}}
		f, err := a.openLog(3, "log")
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a := open("../my job")
	assert.Equal(t, filepath.Join(dir, "job-..%2Fmy%20job", "generation-1-rank-3.log"), a.Name())
	_, err := a.WriteString("first")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(theirs, filepath.Join(filepath.Dir(a.Name()), "generation-1-rank-3.2.log")))
	b := open("../my job")
	assert.Equal(t, "generation-1-rank-3.3.log", filepath.Base(b.Name()))
	assert.NotEqual(t, filepath.Dir(a.Name()), filepath.Dir(open("another").Name()))
	for file, want := range map[string]string{a.Name(): "first", theirs: "precious"} {
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}

func TestLostOutput(t *testing.T) {
	c, _ := roleConfig(1, "env")
	c.Stdout = brokenWriter{fmt.Errorf("disk full")}
	assert.Contains(t, requireExit(t, Run(c), 1), "output was lost: disk full")
}

func TestEnvironment(t *testing.T) {
	t.Setenv("RINGO_RANK", "5") // of a job around this one
	t.Setenv("RINGO_LISTEN_FD", "9")
	t.Setenv("RINGO_PORT", "1234")
	t.Setenv("RINGO_BIND", "10.1.2.3")
	t.Setenv("RINGO_THREADS", "7")
	c, out := roleConfig(2, "env")
	c.Timeout = 1500 * time.Millisecond
	require.NoError(t, Run(c))
	const tail = "timeout 1.5s threads 7 bind 127.0.0.1 secret 64 job 16\n"
	assert.Contains(t, out.String(), "[0] 0/2 local 0/2 from ringo listen 4 "+tail)
	assert.Contains(t, out.String(), "[1] 1/2 local 1/2 from ringo listen 0 "+tail)
	c, out = roleConfig(1, "env")
	c.Threads = 3
	require.NoError(t, Run(c))
	assert.Contains(t, out.String(), "timeout 0s threads 3 ")
	c.Raw = true
	c.Stdout = &bytes.Buffer{}
	require.NoError(t, Run(c))
	assert.Regexp(t, `^pid \d+ of env\n0/1 local 0/1 from ringo`, c.Stdout)
}

func TestExitStatus(t *testing.T) {
	c, _ := roleConfig(3, "exit", "1", "0")
	require.NoError(t, Run(c))
	c, out := roleConfig(3, "exit", "1", "7")
	text := requireExit(t, Run(c), 7)
	assert.Regexp(t, `^rank 1 \(pid \d+\) exited with status 7$`, text)
	requireGone(t, out.pids("pid"))
}

func TestCannotStart(t *testing.T) {
	for _, c := range []Config{{}, {Ranks: 1}, {Ranks: -1, Args: []string{"x"}}, {Ranks: 1, Args: []string{"x"}, Timeout: -1},
		{Ranks: 1, Args: []string{"x"}, Threads: -1}} {
		assert.ErrorContains(t, Run(c), "launch: ")
	}
	assert.ErrorIs(t, Run(Config{Ranks: 2, Args: []string{"no-such-program-here"}}), exec.ErrNotFound)
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("\x7fELF but no more"), 0o755))
	assert.ErrorContains(t, Run(Config{Ranks: 2, Args: []string{program}}), "launch: starting rank 0 of 2: ")
}

func TestRing(t *testing.T) {
	cases := []struct {
		ranks         int
		fault, faulty string
		code          int
		want          []string // patterns
	}{
		{4, "report", "2", 3,
			[]string{`^rank 2 \(pid \d+\) failed: allreduce seq 1: count 10 \(rank 2\) vs 12 \(and 3 ranks failed because of it\)$`}},
		{2, "report", "0", 3, []string{`^rank 0 \(pid \d+\) failed: .* \(and 1 rank failed because of it\)$`}},
		{3, "reportlate", "0", 4, []string{`^rank 0 \(pid \d+\) failed: the true cause \(and 2 ranks failed because of it\)$`}},
		{4, "kill", "2", 128 + 9, []string{`^rank 2 \(pid \d+\) was killed by signal killed \(and 3 ranks failed because of it\)$`}},
		{4, "kill", "0", 128 + 9, []string{`^rank 0 \(pid \d+\) was killed by signal killed \(and 3 ranks failed because of it\)$`}},
		{3, "panic", "1", 2, []string{`^rank 1 \(pid \d+\) exited with status 2 \(and 2 ranks failed because of it\)$`}},
		{16, "report", "11", 3, []string{`^rank 11 \(pid \d+\) failed: .* \(and 15 ranks failed because of it\)$`}},
	}
	for _, tc := range cases {
		t.Run(fmt.Sprintf("%d %s %s", tc.ranks, tc.fault, tc.faulty), func(t *testing.T) {
			c, out := roleConfig(tc.ranks, "ring", tc.fault, tc.faulty)
			c.Timeout = time.Minute
			start := time.Now()
			text := requireExit(t, Run(c), tc.code)
			for _, want := range tc.want {
				assert.Regexp(t, want, text)
			}
			assert.Less(t, time.Since(start), 4*time.Second+reliability.Slack)
			pids := out.pids("pid")
			require.Len(t, pids, tc.ranks)
			requireGone(t, pids)
			if tc.fault == "panic" {
				assert.Contains(t, out.String(), "[1] panic: no report of this")
			}
		})
	}
}

// TestStopped stops a rank: the other one fails by its own timeout, and nobody waits for the stopped one, which says nothing.
func TestStopped(t *testing.T) {
	t.Parallel()
	c, out := roleConfig(2, "ring", "stop", "1")
	c.Timeout = time.Minute
	start := time.Now()
	text := requireExit(t, Run(c), 1)
	t.Logf("%v\n%s", time.Since(start), text)
	assert.Regexp(t, `^rank 1 \(pid \d+\) did not end by itself and was killed; its last heartbeat was \d\.\d s before that\n`+
		`rank 1 \(pid \d+\) failed, as rank 0 saw it: rank 1: .*timeout.* \(and 1 rank failed because of it\)$`, text)
	assert.Less(t, time.Since(start), 4*time.Second+reliability.Slack)
	requireGone(t, out.pids("pid"))
}

func TestLongHangsAfterReport(t *testing.T) {
	reliability.SkipUnlessLong(t)
	c, out := roleConfig(3, "ring", "reportandhang", "2")
	c.Timeout = 100 * time.Millisecond
	text := requireExit(t, Run(c), 1)
	assert.Regexp(t,
		`^rank 2 \(pid \d+\) did not end by itself and was killed\nrank 2 \(pid \d+\) failed: stuck after this \(and 2 ranks failed because of it\)$`,
		text)
	requireGone(t, out.pids("pid"))
}

// TestLongBystanders has ranks that know nothing of the failed one: they are killed when their time is over.
func TestLongBystanders(t *testing.T) {
	reliability.SkipUnlessLong(t)
	c, out := roleConfig(3, "", "")
	c.Args = []string{"sh", "-c", `echo pid $$; if [ $RINGO_RANK = 1 ]; then exit 5; fi; sleep 1000 & echo child $!; wait`}
	c.Timeout = time.Millisecond
	text := requireExit(t, Run(c), 5)
	assert.Regexp(t,
		`^rank 0 \(pid \d+\) did not end .*\nrank 2 \(pid \d+\) did not end .*\nrank 1 \(pid \d+\) exited with status 5 \(and 2 ranks failed because of it\)$`,
		text)
	requireGone(t, append(out.pids("pid"), out.pids("child")...))
}

func TestPatience(t *testing.T) {
	t.Setenv("RINGO_TIMEOUT", "")
	assert.Equal(t, 7*time.Second, (&Config{}).failureTimeout())
	assert.Equal(t, 3*time.Second, (&Config{Timeout: time.Second}).failureTimeout())
	t.Setenv("RINGO_TIMEOUT", "4s")
	assert.Equal(t, 6*time.Second, (&Config{}).failureTimeout())
	assert.Equal(t, 3*time.Second, (&Config{Timeout: time.Second}).failureTimeout())
}

// TestNothingLeft runs jobs whose ranks are all killed: descriptors and goroutines go back to where they were.
func TestNothingLeft(t *testing.T) {
	jobs := 5
	if reliability.Long(t) {
		jobs = 50
	}
	run := func() {
		c, out := roleConfig(3, "sleep")
		ended := make(chan error)
		go func() { ended <- Run(c) }()
		out.await(t, "of sleep", 3)
		for _, pid := range out.pids("pid") {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		assert.Contains(t, requireExit(t, <-ended, 128+9), "(and 2 ranks failed because of it)")
		requireGone(t, out.pids("pid"))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a finalizer must not close what was forgotten
	run()                                            // opens what stays open, such as the poller
	descriptors, goroutines := openDescriptors(t), runtime.NumGoroutine()
	for range jobs {
		run()
	}
	// Not require.Eventually, which has goroutines of its own.
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if openDescriptors(t) <= descriptors && runtime.NumGoroutine() <= goroutines {
			return
		}
	}
	t.Fatalf("%d descriptors, were %d; %d goroutines, were %d", openDescriptors(t), descriptors, runtime.NumGoroutine(), goroutines)
}

func TestLongNothingLeft(t *testing.T) { reliability.AsLong(t, TestNothingLeft) }

func openDescriptors(t *testing.T) int {
	list, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(list)
}

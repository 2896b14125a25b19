//go:build linux || darwin

package launch

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// running is a job in the background.
type running struct {
	out     *console
	signals chan os.Signal
	ended   chan error
}

func launchRole(n int, role string, args ...string) running {
	c, out := roleConfig(n, role, args...)
	r := running{out: out, signals: make(chan os.Signal, 2), ended: make(chan error, 1)}
	c.Signals = r.signals
	go func() { r.ended <- Run(c) }()
	return r
}

func TestSignalIsPassedOn(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		job := launchRole(3, "catch")
		job.out.await(t, "ready", 3)
		job.signals <- sig
		text := requireExit(t, <-job.ended, code)
		assert.Equal(t, "ended by signal "+sig.String(), text)
		for _, line := range []string{"[0] bye ", "[1] bye ", "[2] bye "} {
			assert.Contains(t, job.out.String(), line+sig.String()+"\n")
		}
		requireGone(t, job.out.pids("pid"))
	}
}

func TestSignalWithoutHandler(t *testing.T) {
	job := launchRole(2, "sleep")
	job.out.await(t, "of sleep", 2)
	job.signals <- syscall.SIGTERM
	assert.Equal(t, "ended by signal terminated", requireExit(t, <-job.ended, 143))
	requireGone(t, job.out.pids("pid"))
}

func TestSecondSignalKills(t *testing.T) {
	t.Parallel()
	job := launchRole(2, "ignore")
	job.out.await(t, "ignoring", 2)
	start := time.Now()
	again := time.NewTicker(sameSignal / 2)
	defer again.Stop()
	var err error
	for job.signals <- syscall.SIGINT; err == nil; {
		select {
		case err = <-job.ended:
		case <-again.C:
			job.signals <- syscall.SIGINT
		}
	}
	text := requireExit(t, err, 130)
	assert.Less(t, time.Since(start), signalGrace, "killed by the second signal, not at the end of the grace")
	assert.Regexp(t, `^rank 0 \(pid \d+\) did not end by itself and was killed\nrank 1 .* was killed\nended by signal interrupt$`, text)
	requireGone(t, job.out.pids("pid"))
}

func TestLongGrace(t *testing.T) {
	reliability.SkipUnlessLong(t)
	job := launchRole(2, "ignore")
	job.out.await(t, "ignoring", 2)
	start := time.Now()
	job.signals <- syscall.SIGTERM
	text := requireExit(t, <-job.ended, 143)
	took := time.Since(start)
	assert.GreaterOrEqual(t, took, signalGrace)
	assert.Less(t, took, signalGrace+reliability.Slack)
	assert.Contains(t, text, "did not end by itself and was killed")
	requireGone(t, job.out.pids("pid"))
}

// TestSignalStuckOutput has nobody reading the output: a signal still ends the launcher, whether the worker has ended
// before it or not.
func TestSignalStuckOutput(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"full", "flood"} {
		stuck, stopReading := make(chan struct{}), make(chan struct{})
		c, _ := roleConfig(1, role)
		first := sync.OnceFunc(func() { close(stopReading) })
		c.Stdout = writerFunc(func(p []byte) (int, error) { first(); <-stuck; return len(p), nil })
		signals := make(chan os.Signal, 1)
		c.Signals = signals
		ended := make(chan error, 1)
		go func() { ended <- Run(c) }()
		<-stopReading
		signals <- syscall.SIGTERM // a shell's background job, as this test may be, ignores SIGINT, and so do its children
		text := requireExit(t, <-ended, 143)
		assert.Equal(t, "the rest of the output was not read\nended by signal terminated", text)
		close(stuck)
	}
}

// The coordinator had already seen the last worker end when it heard of the signal: the agent still heeds it.
func TestSignalAfterTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{config: &Config{}, jobEnd: &jobEnd{}, signal: syscall.SIGTERM, outputDone: []<-chan struct{}{make(chan struct{})}}
		text := requireExit(t, a.result(), 143)
		assert.Equal(t, "the rest of the output was not read\nended by signal terminated", text)
	})
}

// If all processes get a signal at once, the agent gets it several times. It is passed on once, and kills nobody.
func TestSameSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &agent{config: &Config{}, wire: &wire{wakeup: make(chan struct{}, 1)}}
		for _, pause := range []time.Duration{0, sameSignal - 1} {
			time.Sleep(pause) // virtual
			a.interrupt(syscall.SIGTERM)
			require.Equal(t, []note{{Signal: int(syscall.SIGTERM)}}, a.wire.queue)
		}
		time.Sleep(time.Nanosecond)
		a.interrupt(syscall.SIGTERM)
		require.True(t, a.wire.queue[1].Kill)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestGrandchildren(t *testing.T) {
	job := launchRole(2, "parent", "group", "exit")
	require.NoError(t, <-job.ended)
	require.Len(t, job.out.pids("child"), 2)
	requireGone(t, append(job.out.pids("pid"), job.out.pids("child")...))

	job = launchRole(2, "parent", "group", "wait")
	job.out.await(t, "child ", 2)
	job.signals <- syscall.SIGINT
	requireExit(t, <-job.ended, 130)
	requireGone(t, append(job.out.pids("pid"), job.out.pids("child")...))
}

// TestEscapedGrandchild has a child in a session of its own hold the worker's output open: the launcher ends all the same.
func TestEscapedGrandchild(t *testing.T) {
	job := launchRole(1, "parent", "session", "exit")
	require.NoError(t, <-job.ended)
	for _, pid := range job.out.pids("child") {
		assert.True(t, alive(pid))
		assert.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// startAgent starts a launcher as a process.
func startAgent(t *testing.T, args ...string) (*exec.Cmd, *console) {
	out := &console{}
	cmd := exec.Command(os.Args[0], append([]string{"role:agent"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	return cmd, out
}

func TestLauncherProcess(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		cmd, out := startAgent(t, "3", "role:sleep")
		out.await(t, "of sleep", 3)
		require.NoError(t, cmd.Process.Signal(sig))
		assert.Error(t, cmd.Wait())
		assert.Equal(t, code, cmd.ProcessState.ExitCode())
		requireGone(t, out.pids("pid"))
	}
}

func TestLauncherKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel ends workers only on Linux")
	}
	cmd, out := startAgent(t, "4", "role:ignore")
	out.await(t, "ignoring", 4)
	require.NoError(t, cmd.Process.Kill())
	assert.Error(t, cmd.Wait())
	requireGone(t, out.pids("pid"))
}

// An agent that has too few descriptors for its ranks says which limit that is and what it needs.
func TestOutOfDescriptors(t *testing.T) {
	cmd := exec.Command(os.Args[0], "role:poor", "16", "role:sleep")
	cmd.Env = append(os.Environ(), "RINGO_RANK=0", "RINGO_WORLD_SIZE=1")
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Regexp(t,
		`launch: starting rank \d+ of 16: .*too many open files: the limit of this process \(ulimit -n: 24\); needed are about 5 for each of 16 ranks`,
		string(out))
}

func TestBadDescriptors(t *testing.T) {
	file, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer file.Close()
	cmd := exec.Command(os.Args[0], "role:badfd")
	cmd.ExtraFiles = []*os.File{file}
	cmd.Env = append(os.Environ(), "RINGO_AGENT_FD=3")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(out), "RINGO_AGENT_FD=3 (ringo): no socket")
	assert.Contains(t, string(out), "RINGO_LISTEN_FD=65535 (ringo): bad file descriptor")
}

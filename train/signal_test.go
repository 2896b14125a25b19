//go:build unix

package train_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/train"
)

// TestMain makes this binary a training script where a test has started it.
func TestMain(m *testing.M) {
	if mode := os.Getenv("TRAIN_TEST_CHILD"); mode != "" {
		train.Exit(child(mode))
		os.Exit(0)
	}
	heed()
	reliability.RunMost(m, 6)
}

// heed has children get signals, even where who started the tests ignores some: nohup, or a script that runs them in the background.
func heed() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// child trains until it is stopped, for a minute at most; after 20 steps it says so.
func child(mode string) error {
	if mode == "usage" {
		return train.Usagef("-steps 0: want 1 or more")
	}
	x := run{ranks: 2, steps: 1 << 30, micro: 3}
	x.Save, x.SaveEvery = os.Getenv("TRAIN_TEST_SAVE"), 1000
	begun := time.Now()
	x.each = func(r *dist.Rank, step int, l *train.Loop) error {
		if time.Since(begun) > time.Minute {
			return errors.New("nobody has stopped this")
		}
		if step == 20 && r.World.Rank() == 0 {
			fmt.Println("ready")
		}
		if step == 20 && mode == "stuck" {
			<-time.After(time.Minute) // until the signal
		}
		if times := map[string]int{"self": 1, "again": 3}[mode]; step == 20 && r.World.Rank() == 1 {
			return terminate(times)
		}
		return nil
	}
	if mode == "after" {
		x.steps, x.each = 21, nil
		x.closed = func(r *dist.Rank) {
			if err := r.World.Barrier().Wait(); err == nil && r.World.Rank() == 0 {
				fmt.Println("ready")
			}
			<-time.After(time.Minute) // until the signal
		}
	}
	_, err := x.train()
	return err
}

// terminate sends SIGTERM to this process, some times.
func terminate(times int) error {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for range times {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-pause.C
	}
	return nil
}

// start starts a child and returns when it is at step 20.
func start(t *testing.T, mode, save string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	stderr = new(bytes.Buffer)
	cmd = exec.CommandContext(t.Context(), exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), "TRAIN_TEST_CHILD="+mode, "TRAIN_TEST_SAVE="+save), stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	if mode != "usage" {
		require.Equal(t, "ready\n", line, "%s", stderr)
	}
	return cmd, stderr
}

// The first signal ends the training after a step and saves it; the status is what shells expect.
func TestSignals(t *testing.T) {
	t.Parallel()
	for s, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		dir := t.TempDir()
		cmd, stderr := start(t, "loop", dir)
		require.NoError(t, cmd.Process.Signal(s))
		require.Error(t, cmd.Wait())
		require.Equal(t, status, cmd.ProcessState.ExitCode(), "%s", stderr)
		var step int
		_, err := fmt.Sscanf(stderr.String(), filepath.Base(cmd.Path)+": interrupted at step %d; -resume goes on\n", &step)
		require.NoError(t, err, "%s", stderr)
		require.Greater(t, step, 20)
		require.DirExists(t, filepath.Join(dir, fmt.Sprintf("step-%08d", step)))

		require.Zero(t, step%3, "the gradients of microbatches would be lost")

		whole := run{ranks: 2, steps: step + 6, micro: 3}
		want, err := whole.train()
		require.NoError(t, err)
		x := run{ranks: 2, steps: step + 6, micro: 3}
		x.Save, x.Resume = dir, true
		got, err := x.train()
		require.NoError(t, err)
		require.Equal(t, step, got.resumed)
		require.Equal(t, want.losses, got.losses)
		require.Equal(t, want.weights, got.weights)
	}
}

// A rank may get a signal several times, from a scheduler and from its launcher: it still saves.
func TestSameSignal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, stderr := start(t, "again", dir)
	require.Error(t, cmd.Wait())
	require.Equal(t, 143, cmd.ProcessState.ExitCode(), "%s", stderr)
	require.Contains(t, stderr.String(), "; -resume goes on\n")
}

func TestNothingSaved(t *testing.T) {
	t.Parallel()
	cmd, stderr := start(t, "loop", "")
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
	require.Regexp(t, `^train.test: interrupted at step \d+; nothing saved\n$`, stderr.String())
}

// After Close, the first signal kills.
func TestSignalAfterClose(t *testing.T) {
	t.Parallel()
	cmd, stderr := start(t, "after", "")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, status.Signaled() && status.Signal() == syscall.SIGTERM, "%v: %s", status, stderr)
}

// What nohup has made ignored does not end a training.
func TestIgnoredSignal(t *testing.T) {
	signal.Ignore(syscall.SIGHUP) // children inherit it
	defer heed()
	cmd, stderr := start(t, "loop", "")
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, 143, cmd.ProcessState.ExitCode(), "%s", stderr)
}

// A signal a second after the first kills, whatever the program is doing.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	cmd, _ := start(t, "stuck", "")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again := time.NewTicker(10 * time.Millisecond) // without a pause, signals pile up on the runtime's small stack for them: SIGSEGV
	defer again.Stop()
	for {
		if err := cmd.Process.Signal(syscall.SIGINT); !errors.Is(err, os.ErrProcessDone) {
			require.NoError(t, err)
		}
		select {
		case <-ended:
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, status.Signaled() && status.Signal() == syscall.SIGINT, "%v", status)
			return
		case <-again.C:
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	cmd, stderr := start(t, "usage", "")
	require.Error(t, cmd.Wait())
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Equal(t, "train.test: -steps 0: want 1 or more\n", stderr.String())
}

// A step behind -resume is no value of it: the newest checkpoint would be taken, and no flag behind it. "max:" alone names no value.
func TestFlagsWithoutValues(t *testing.T) {
	for text, want := range map[string]string{
		"-save D -resume step-5 -keep 1": "-resume step-5: write -resume=step-5; no flag behind it was read",
		"-save D -resume=step-5 -keep 1": "",
		"-save D -resume data.csv":       "",
		"-save D -keep-best max:":        `-keep-best max: names no value: want such as "max:test accuracy"`,
	} {
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		o := train.Flags(fs)
		require.NoError(t, fs.Parse(strings.Fields(text)))
		if err := o.Check(); want == "" {
			require.NoError(t, err)
		} else {
			require.Equal(t, train.UsageError(want), err)
		}
	}
}

// A signal to one process ends all: both after the same step.
func TestSignalToOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmds, outs := disttest.StartProcesses(t.Context(), t, 2, "TRAIN_TEST_CHILD=self", "TRAIN_TEST_SAVE="+dir)
	for rank, cmd := range cmds {
		require.Error(t, cmd.Wait())
		require.Equal(t, 143, cmd.ProcessState.ExitCode(), "rank %d: %s", rank, &outs[rank])
	}
	require.Contains(t, outs[0].String(), "; -resume goes on\n")
	require.NotContains(t, outs[1].String(), "interrupted", "it is said once")
	_, err := ckpt.Latest(dir)
	require.NoError(t, err)
}

// An instruction set that is unknown is an error, not the slowest one.
func TestUnknownCPU(t *testing.T) {
	t.Setenv("RINGO_CPU", "avx9")
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "TRAIN_TEST_CHILD=loop")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "train.test: dist: RINGO_CPU=avx9: this CPU and build support ")
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// trouble trains examples/ddp-mnist on two ranks: goroutines, or processes of ringo run.
type trouble struct {
	program   string
	processes bool
}

func (x trouble) command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	args = append([]string{"-data", "synthetic", "-threads", "1", "-dtype", "float64", "-json"}, args...)
	if x.processes {
		cmd, out, _, _ := command(t, append([]string{"run", "-n", "2", x.program}, args...)...)
		cmd.Stderr = out
		return cmd, out
	}
	out := new(bytes.Buffer)
	cmd := exec.CommandContext(t.Context(), x.program, args...)
	cmd.Env = append(os.Environ(), "RINGO_JOB_ID=")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

func (x trouble) run(t *testing.T, args ...string) (out string, code int) {
	cmd, b := x.command(t, args...)
	_ = cmd.Run()
	return b.String(), cmd.ProcessState.ExitCode()
}

// interrupt starts a training, and sends a signal to it, or to all processes of the job, when it has saved a later step than the one
// that is there.
func (x trouble) interrupt(t *testing.T, sig syscall.Signal, all bool, dir string, args ...string) (out string, code int) {
	before := newestStep(dir)
	cmd, b := x.command(t, append(args, "-save", dir, "-save-every", "2")...)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	require.Eventually(t, func() bool { return newestStep(dir) > before }, time.Minute, 5*time.Millisecond)
	processes := []int{cmd.Process.Pid}
	if all {
		processes = family(cmd.Process.Pid)
	}
	for _, pid := range processes {
		require.NoError(t, syscall.Kill(pid, sig))
	}
	<-ended
	return b.String(), cmd.ProcessState.ExitCode()
}

// family returns a process and its descendants.
func family(pid int) []int {
	list := []int{pid}
	for i := 0; i < len(list); i++ {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", list[i]))
		for _, name := range threads {
			text, _ := os.ReadFile(name) // it may have ended
			for _, field := range strings.Fields(string(text)) {
				child, _ := strconv.Atoi(field)
				list = append(list, child)
			}
		}
	}
	return list
}

// newestStep returns the name of the newest checkpoint; "" if there is none.
func newestStep(dir string) (name string) {
	list, _ := filepath.Glob(filepath.Join(dir, "step-????????"))
	for _, file := range list {
		name = max(name, filepath.Base(file))
	}
	return name
}

// A training is interrupted by a key, by a launcher, by a scheduler and by a terminal that closes, and resumed each time. It ends as one
// that is not interrupted. If the disk is full, the complete checkpoints stay. A path that cannot be written is an error before the first
// step. Each message is one sentence.
func TestLongTrouble(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	program := filepath.Join(t.TempDir(), "ddp-mnist")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "../../examples/ddp-mnist").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, x := range map[string]trouble{"goroutines": {program, false}, "processes": {program, true}} {
		t.Run(name, func(t *testing.T) {
			t.Run("signals", x.signals)
			t.Run("full disk", x.fullDisk)
			t.Run("unwritable", x.unwritable)
		})
	}
}

func (x trouble) signals(t *testing.T) {
	dir := t.TempDir()
	for _, s := range []struct {
		sig  syscall.Signal
		all  bool
		code int
	}{{syscall.SIGINT, false, 130}, {syscall.SIGTERM, false, 143}, {syscall.SIGTERM, true, 143}, {syscall.SIGHUP, false, 129}} {
		var resume []string
		if newestStep(dir) != "" {
			resume = []string{"-resume"}
		}
		out, code := x.interrupt(t, s.sig, s.all, dir, append(resume, "-steps", "1000000")...)
		require.Equal(t, s.code, code, out)
		require.Regexp(t, `interrupted at step \d+; -resume goes on`, out)
		require.Equal(t, 1, strings.Count(out, "interrupted at step"), out)
	}
	var at int
	_, err := fmt.Sscanf(newestStep(dir), "step-%d", &at)
	require.NoError(t, err)
	steps := strconv.Itoa(at + 20)
	got, code := x.run(t, "-steps", steps, "-save", dir, "-resume")
	require.Zero(t, code, got)
	require.EqualValues(t, at, parse(t, last(got))["resumed_at"])
	want, code := x.run(t, "-steps", steps)
	require.Zero(t, code, want)
	assert.Equal(t, parse(t, last(want))["params_sha256"], parse(t, last(got))["params_sha256"])
}

// last returns the JSON, which ringo run prints after the rank.
func last(out string) string {
	return out[strings.LastIndex(out, `{"example"`):]
}

func (x trouble) fullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small file system takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("no small file system here: %v", err)
	}
	defer func() { assert.NoError(t, unix.Unmount(dir, 0)) }()
	out, code := x.run(t, "-steps", "9", "-save", filepath.Join(dir, "saved"), "-save-every", "2")
	assert.Equal(t, 1, code, out)
	assert.Contains(t, out, "no space left on device")
	kept := newestStep(filepath.Join(dir, "saved"))
	require.NotEmpty(t, kept, out)
	left, err := filepath.Glob(filepath.Join(dir, "saved", "*.tmp*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	stdout, stderr, code := run(t, "ckpt", "verify", filepath.Join(dir, "saved", kept))
	assert.Zero(t, code, stdout+stderr)
}

func (x trouble) unwritable(t *testing.T) {
	for _, flag := range []string{"-plot", "-trace", "-metrics"} {
		out, code := x.run(t, "-steps", "1000000", flag, "/nonexistent/x.svg")
		assert.NotZero(t, code, out)
		assert.Contains(t, out, "/nonexistent/x.svg")
		assert.NotContains(t, out, "step 1")
		assert.NotContains(t, out, "goroutine ")
	}
}

// Each signal that ends ringo, SIGTERM alone in the short form, does so also if nobody reads what it and the ranks print.
func TestRunInterruptedUnread(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	signals := []syscall.Signal{syscall.SIGTERM}
	if reliability.Long(t) {
		signals = append(signals, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	}
	for _, sig := range signals {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer r.Close()
			size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
			require.NoError(t, err)
			cmd, _, _, _ := command(t, "run", "-n", "1", "sh", "-c", "while :; do echo many words; done")
			cmd.Stdout, cmd.Stderr = w, w
			require.NoError(t, cmd.Start())
			w.Close()
			require.Eventually(t, func() bool {
				n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
				return err == nil && n > size/2
			}, longest, 10*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(sig))
			began := time.Now()
			_ = cmd.Wait()
			assert.Equal(t, 128+int(sig), cmd.ProcessState.ExitCode())
			assert.Less(t, time.Since(began), 10*time.Second+reliability.Slack)
		})
	}
}

func TestLongRunInterruptedUnread(t *testing.T) { reliability.AsLong(t, TestRunInterruptedUnread) }

// A pipe in place of a file is refused at once: opening it would wait for one who writes.
func TestCkptOfPipes(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"x.pt": {"convert"}, "x.safetensors": {"ls", "verify", "convert"}, "model.safetensors": {"ls", "verify", "convert"},
		"ringo.json": {"ls", "verify"}, "model.safetensors.index.json": {"ls", "verify"}, ".metadata": {"convert"},
	} {
		dir := t.TempDir()
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o666))
		path := dir
		if strings.HasPrefix(name, "x.") {
			path = filepath.Join(dir, name)
		}
		for _, c := range command {
			args := []string{"ckpt", c, path}
			if c == "convert" {
				args = append(args, filepath.Join(t.TempDir(), "new"))
			}
			out, errs, code := run(t, args...)
			assert.Equal(t, 1, code, args)
			assert.Regexp(t, name+" is (not a|a link or no) regular file", out+errs)
		}
	}
	pipe := filepath.Join(t.TempDir(), "x.csv")
	require.NoError(t, unix.Mkfifo(pipe, 0o666))
	for _, args := range [][]string{{"plot", "-o", "x.svg", pipe}, {"viz", "schedule", pipe, "-o", "x.svg"}, {"trace", "summary", pipe},
		{"trace", "merge", "-o", filepath.Join(t.TempDir(), "x.json"), pipe}, {"ckpt", "verify", "-rules", pipe, t.TempDir()}} {
		out, errs, code := run(t, args...)
		assert.Equal(t, 1, code, args)
		assert.Contains(t, out+errs, pipe+" is not a regular file", args)
	}
}

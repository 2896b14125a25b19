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

	"github.com/ringo-ml/ringo/internal/reliability"
)

// Some machines do not have the commands setsid and env. These functions do what escapes needs of them.
func init() {
	programs["setsid"] = func() {
		if _, err := syscall.Setsid(); err != nil {
			fatal(err)
		}
		become(os.Args[1:], os.Environ())
	}
	programs["forget"] = func() { become(os.Args[1:], nil) }
}

// become runs another program in this process.
func become(args, env []string) {
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, env)
	}
	fatal(err)
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// escaping returns the environment for a job of escapes.
func escaping(t *testing.T, mark string) []string {
	return []string{"MARK=" + mark, "SETSID=" + program(t, "setsid"), "FORGET=" + program(t, "forget")}
}

// escapes is a rank whose descendants leave its process group, its session, its chain of parents and its environment. Each has the mark
// in its environment or, as a number of seconds, in its arguments.
const escapes = `
sleep $MARK &
$SETSID sh -c 'trap "" HUP INT QUIT TERM; sleep $MARK & ($SETSID sleep $MARK &) & sleep $MARK' &
($SETSID sh -c '($FORGET sleep $0 &)' $MARK &)
wait %1`

// perRank is how many sleeping processes a rank has.
const perRank = 5

// newMark returns a number of seconds that no other process sleeps.
func newMark(i int) string { return fmt.Sprintf("1%09d%02d", os.Getpid(), i) }

// marked lists the processes with the mark in their environment or arguments; with sleeping, only those that sleep.
func marked(mark string, sleeping bool) (pids []int) {
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline")) // it may have ended
		if len(args) == 0 || sleeping && !bytes.HasPrefix(args, []byte("sleep\x00")) {
			continue // a thread of the kernel, for example
		}
		found := bytes.Contains(args, []byte(mark+"\x00"))
		if !found {
			env, _ := os.ReadFile(filepath.Join("/proc", p.Name(), "environ"))
			found = bytes.Contains(env, []byte("MARK="+mark+"\x00"))
		}
		if found {
			pids = append(pids, pid)
		}
	}
	return pids
}

// part returns the process with a part of ringo run, in a job with this mark.
func part(mark, name string) int {
	for _, pid := range marked(mark, false) {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(env, []byte("\x00"+partEnv+"="+name+"\x00")) {
			return pid
		}
	}
	return 0
}

// Whatever ends ringo run, or one of its processes, also ends all descendants of the job.
func TestNoProcessIsLeft(t *testing.T) {
	cases := []struct {
		name string
		sig  syscall.Signal
		part string
		code int
	}{
		{"kill", syscall.SIGKILL, "", -1},
		{"terminate", syscall.SIGTERM, "", 143},
		{"kill the agent", syscall.SIGKILL, partAgent, 137},
		{"hang up", syscall.SIGHUP, "", 129},
		{"quit", syscall.SIGQUIT, "", 131},
		{"interrupt", syscall.SIGINT, "", 130},
		{"abort", syscall.SIGABRT, "", 2}, // the way in which Go aborts
		{"kill the watcher", syscall.SIGKILL, partWatcher, 137},
	}
	if !reliability.Long(t) {
		cases = cases[:1]
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mark := newMark(i)
			cmd, _, _, _ := command(t, "run", "-n", "2", "sh", "-c", escapes)
			cmd.Env = append(cmd.Env, escaping(t, mark)...)
			cmd.Stdout, cmd.Stderr = nil, nil
			t.Cleanup(func() {
				for _, pid := range marked(mark, false) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			require.NoError(t, cmd.Start())
			require.Eventually(t, func() bool { return len(marked(mark, true)) == 2*perRank }, time.Minute, 20*time.Millisecond)
			pid := cmd.Process.Pid
			if c.part != "" {
				pid = part(mark, c.part)
				require.NotZero(t, pid)
			}
			require.NoError(t, syscall.Kill(pid, c.sig))
			_ = cmd.Wait()
			assert.Equal(t, c.code, cmd.ProcessState.ExitCode())
			if c.sig != syscall.SIGKILL && c.sig != syscall.SIGABRT { // otherwise they are still being ended
				assert.Empty(t, marked(mark, false))
			}
			require.Eventually(t, func() bool { return len(marked(mark, false)) == 0 }, time.Minute, 20*time.Millisecond)
		})
	}
}

func TestLongNoProcessIsLeft(t *testing.T) { reliability.AsLong(t, TestNoProcessIsLeft) }

// A job that ends by itself leaves nothing either. Its exit status and messages are those of the job.
func TestNoProcessIsLeftAtTheEnd(t *testing.T) {
	t.Parallel()
	mark := newMark(99)
	cmd, stdout, stderr, _ := command(t, "run", "-n", "1", "sh", "-c", strings.ReplaceAll(escapes, "wait %1", "echo done; exit 3"))
	cmd.Env = append(cmd.Env, escaping(t, mark)...)
	_ = cmd.Run()
	assert.Equal(t, 3, cmd.ProcessState.ExitCode())
	assert.Equal(t, "[0] done\n", stdout.String())
	assert.Regexp(t, `^ringo: rank 0 \(pid \d+\) exited with status 3\n$`, stderr.String())
	assert.Empty(t, marked(mark, false))
}

// Processes that existed before, and whose parent became ringo run by exec, do not belong to the job.
func TestOthersStay(t *testing.T) {
	t.Parallel()
	mark := newMark(98)
	cmd, _, _, _ := command(t)
	cmd.Stdout, cmd.Stderr = nil, nil // the sleeping process keeps them open
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "sleep $MARK & exec $0 run -n 1 sh -c 'exit 3'", os.Args[0]}
	cmd.Env = append(cmd.Env, "MARK="+mark)
	_ = cmd.Run()
	assert.Equal(t, 3, cmd.ProcessState.ExitCode())
	var left []int
	// the shell has become it
	require.Eventually(t, func() bool { left = marked(mark, true); return len(left) == 1 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, syscall.Kill(left[0], syscall.SIGKILL))
}

// The reader of the output may stop reading, as head does. This prints no message.
func TestReaderHasEnough(t *testing.T) {
	t.Parallel()
	cmd, _, stderr, _ := command(t, "run", "-n", "1", "sh", "-c", "echo done")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer w.Close()
	cmd.Stdout = w
	_ = cmd.Run()
	assert.Equal(t, 128+int(syscall.SIGPIPE), cmd.ProcessState.ExitCode())
	assert.Empty(t, stderr.String())
}

// The folders of a build are removed, too, when ringo run is killed, while it builds and, in the long form, after.
func TestNoFolderIsLeft(t *testing.T) {
	for _, building := range []bool{true, false} {
		if !building && !reliability.Long(t) {
			continue
		}
		t.Run(fmt.Sprintf("building=%v", building), func(t *testing.T) {
			t.Parallel()
			cmd, _, _, tmp := command(t, "run", "-n", "1", "./testdata/ranks", "wait")
			if building {
				bin := t.TempDir()
				script := "#!/bin/sh\n>$GOTMPDIR/built\necho building\nexec sleep 1000\n"
				require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o755))
				cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
			}
			cmd.Stdout, cmd.Stderr = nil, nil
			out, err := cmd.StderrPipe() // the output of go comes here
			if !building {
				out, err = cmd.StdoutPipe()
			}
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			_, err = out.Read(make([]byte, 1))
			require.NoError(t, err)
			list, err := os.ReadDir(tmp)
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			require.Eventually(t, func() bool { list, err := os.ReadDir(tmp); return err == nil && len(list) == 0 }, time.Minute, 5*time.Millisecond)
		})
	}
}

func TestLongNoFolderIsLeft(t *testing.T) { reliability.AsLong(t, TestNoFolderIsLeft) }

package disttest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

// RankEnv returns the launcher's variables for a rank of a job whose n ranks are all on this host.
func RankEnv(rank, n int, master, secret string) []string {
	return []string{fmt.Sprint("RINGO_RANK=", rank), fmt.Sprint("RINGO_WORLD_SIZE=", n), fmt.Sprint("RINGO_LOCAL_RANK=", rank),
		fmt.Sprint("RINGO_LOCAL_SIZE=", n), "RINGO_MASTER=" + master, "RINGO_JOB_SECRET=" + secret, "RINGO_JOB_ID=test"}
}

// NewSecret returns a job secret.
func NewSecret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Listen makes a listener for the command of rank 0 to inherit. It returns its file, to be closed when the command has started, and its
// address.
func Listen(t testing.TB) (f *os.File, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	f, err = l.(*net.TCPListener).File()
	require.NoError(t, err)
	return f, l.Addr().String()
}

// Inherit gives a command the file of Listen.
func Inherit(c *exec.Cmd, f *os.File) {
	c.ExtraFiles = []*os.File{f}
	c.Env = append(c.Env, "RINGO_LISTEN_FD=3")
}

// StartProcesses starts the n ranks of a job on this host, each as a process of the running test binary with env in its environment. The
// TestMain of the binary must then do the rank's work. The processes end when ctx ends, at the latest. The buffers receive their output.
func StartProcesses(ctx context.Context, t testing.TB, n int, env ...string) ([]*exec.Cmd, []bytes.Buffer) {
	t.Helper()
	f, master := Listen(t)
	defer f.Close()
	outs, cmds, secret := make([]bytes.Buffer, n), make([]*exec.Cmd, n), NewSecret()
	for r := range n {
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(append(os.Environ(), RankEnv(r, n, master, secret)...), env...)
		if r == 0 {
			Inherit(c, f)
		}
		c.Stdout, c.Stderr = &outs[r], &outs[r]
		require.NoError(t, c.Start())
		cmds[r] = c
	}
	return cmds, outs
}

// Processes is StartProcesses for ranks that must succeed. It returns their output.
func Processes(t testing.TB, n int, env ...string) [][]byte {
	t.Helper()
	cmds, outs := StartProcesses(t.Context(), t, n, env...)
	printed := make([][]byte, n)
	for r, c := range cmds {
		require.NoError(t, c.Wait(), "rank %d: %s", r, &outs[r])
		printed[r] = outs[r].Bytes()
	}
	return printed
}

// Apart runs the test in a process of its own, beside others, and then returns true: most tests of failures wait, and a process has one
// emulator, with faults of all its tests. In that process, and on a GPU, which is one for all, it returns false.
func Apart(t *testing.T) (over bool) {
	t.Helper()
	const which = "DISTTEST_APART"
	if emu.OnGPU() || os.Getenv(which) == t.Name() {
		return false
	}
	t.Parallel()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), which+"="+t.Name())
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	if strings.Contains(string(out), "--- SKIP: "+t.Name()+" ") {
		t.SkipNow()
	}
	return true
}

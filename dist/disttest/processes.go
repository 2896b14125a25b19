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
	"testing"

	"github.com/stretchr/testify/require"
)

// RankEnv returns what the launcher tells a rank of a job whose n ranks are on one host each, or all on this one.
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

// Listen has the command of rank 0 inherit a listener, whose address it returns, and the file to close once it has started.
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

// StartProcesses starts the n ranks of a job on this host, each as a process of the running test binary with env in its
// environment: its TestMain must do the rank's work then. They end with ctx at the latest. The buffers take what they print.
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

// Processes is StartProcesses for ranks that must end well. It returns what they have printed.
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

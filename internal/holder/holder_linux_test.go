package holder

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListenSaysWhoHasThePort(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = Listen(l.Addr().String())
	assert.ErrorContains(t, err, fmt.Sprintf("bind: address already in use by process %d (holder.test", os.Getpid()))
	six, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return // no IPv6 here
	}
	defer six.Close()
	assert.Contains(t, Of(six.Addr().String()), fmt.Sprint("process ", os.Getpid()))
}

func TestOfNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	l.Close()
	assert.Empty(t, Of(addr), "a connection is no listener")
	assert.Empty(t, Of("nonsense"))
	assert.Empty(t, Of("127.0.0.1:http"))
}

func TestProcessNamesItsJob(t *testing.T) {
	cmd := exec.Command("cat")
	cmd.Env = append(os.Environ(), "RINGO_JOB_ID=nightly")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	// Only when it answers has the kernel put its environment in place.
	_, err = in.Write([]byte("x"))
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("process %d (cat), job nightly", cmd.Process.Pid), process(fmt.Sprint(cmd.Process.Pid)))
	require.NoError(t, in.Close())
	assert.NoError(t, cmd.Wait())
}

func TestListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 100 0 0 10 0
   2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 79 1 0 100 0 0 10 0`
	assert.Equal(t, []string{"77"}, listeners(table, 8080))
}

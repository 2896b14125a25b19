//go:build linux || darwin

package launch

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Programs that rank 0 starts do not inherit its listener's number; rank 0 itself can use it again.
func TestListenerIsNotInheritedTwice(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	defer f.Close()
	for name, value := range map[string]string{"RINGO_RANK": "0", "RINGO_WORLD_SIZE": "2", "RINGO_MASTER": l.Addr().String(),
		"RINGO_JOB_SECRET": "x", "RINGO_LISTEN_FD": strconv.Itoa(int(f.Fd()))} {
		t.Setenv(name, value)
	}
	for i := range 2 {
		e, err := FromEnv(os.Getenv)
		require.NoError(t, err)
		assert.Equal(t, i == 0, e.ListenFD > 0)
		again, err := e.Listener()
		require.NoError(t, err)
		require.NotNil(t, again)
		assert.Equal(t, l.Addr(), again.Addr())
		require.NoError(t, again.Close())
		assert.NotContains(t, os.Environ(), "RINGO_LISTEN_FD="+strconv.Itoa(int(f.Fd())))
	}
	other, err := Env{Size: 2, Source: "ringo", Addr: "127.0.0.1:1"}.Listener()
	require.NoError(t, err)
	assert.Nil(t, other, "another address")
}

// A variable that is on or off takes nothing else.
func TestSwitches(t *testing.T) {
	for text, want := range map[string][2]bool{
		"": {}, "RINGO_SHM=1 RINGO_ENCRYPT=1": {}, "RINGO_SHM=0": {true, false}, "RINGO_ENCRYPT=0": {false, true},
	} {
		e, err := fromMap(vars(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, [2]bool{e.NoShared, e.Plain}, text)
	}
	for _, name := range []string{"RINGO_SHM", "RINGO_ENCRYPT"} {
		_, err := fromMap(vars(name + "=foo"))
		assert.ErrorContains(t, err, name+"=foo (ringo): neither 0 nor 1")
	}
}

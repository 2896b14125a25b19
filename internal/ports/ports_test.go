package ports

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A port can be listened on, also for all addresses, and is not given out twice.
func TestFree(t *testing.T) {
	first := Free(t, 3)
	for port := first; port < first+3; port++ {
		l, err := net.Listen("tcp", fmt.Sprint(":", port))
		require.NoError(t, err)
		require.NoError(t, l.Close())
		assert.Empty(t, hold(port, 1))
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	assert.Empty(t, hold(l.Addr().(*net.TCPAddr).Port, 1))
}

func TestSilent(t *testing.T) {
	addr := Silent(t)
	_, err := net.Dial("tcp", addr)
	assert.ErrorContains(t, err, "refused")
	_, err = net.Listen("tcp", addr)
	assert.ErrorContains(t, err, "in use")
}

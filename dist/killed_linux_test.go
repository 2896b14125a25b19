package dist_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// Ranks that are killed during the rendezvous, or while they share memory, leave nothing behind: no process, no file, no socket.
func TestKilledProcessesLeaveNothing(t *testing.T) {
	times := 1
	if reliability.Long(t) {
		times = 50
	}
	files, err := filepath.Glob("/dev/shm/*ringo*")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(36, 0))
	for range times {
		cmds, _ := startProcesses(t, 3, "forever")
		<-time.After(time.Duration(rng.IntN(150)) * time.Millisecond) // any moment is right
		for _, c := range cmds {
			require.NoError(t, c.Process.Kill())
		}
		for _, c := range cmds {
			assert.Error(t, c.Wait()) // by the signal, or because it noticed a peer's death first
		}
		sockets, err := os.ReadFile("/proc/net/unix")
		require.NoError(t, err)
		for _, c := range cmds {
			assert.NoDirExists(t, fmt.Sprint("/proc/", c.Process.Pid))
			assert.NotContains(t, string(sockets), fmt.Sprintf("@ringo-%d-", c.Process.Pid))
		}
	}
	after, err := filepath.Glob("/dev/shm/*ringo*")
	require.NoError(t, err)
	assert.Equal(t, files, after)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	assert.False(t, strings.Contains(string(maps), "memfd:ringo"), "this process maps none")
}

func TestLongKilledProcessesLeaveNothing(t *testing.T) {
	reliability.AsLong(t, TestKilledProcessesLeaveNothing)
}

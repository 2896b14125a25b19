package tcp

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// full is a listener of a process that has no descriptor left, for a number of calls.
type full struct {
	net.Listener
	calls atomic.Int32
}

func (f *full) Accept() (net.Conn, error) {
	if f.calls.Add(-1) < 0 {
		return f.Listener.Accept()
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: f.Addr(), Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// A rank that has no descriptor left for those who come says so, with the limit and what it needs; one that gets some goes on.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	cs := configs(t, 2)
	f := &full{Listener: cs[0].Listener}
	f.calls.Store(3)
	cs[0].Listener = f
	engines, errs := joinAll(cs)
	for r := range cs {
		require.NoError(t, errs[r])
		engines[r].Close()
	}
	cs = configs(t, 2)
	f = &full{Listener: cs[0].Listener}
	f.calls.Store(1 << 30)
	cs[0].Listener, cs[0].JoinTimeout, cs[1].JoinTimeout = f, time.Second, 2*time.Second
	_, errs = joinAll(cs)
	assert.ErrorIs(t, errs[0], syscall.EMFILE)
	assert.ErrorContains(t, errs[0], "waiting for rank 1 of 2, which could not connect: accept tcp")
	assert.ErrorContains(t, errs[0], "(ulimit -n")
	assert.ErrorContains(t, errs[0], "needed are about 3 for the connections to the other ranks")
}

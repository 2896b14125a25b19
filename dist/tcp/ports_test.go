package tcp

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// Two jobs are given the same port: the second cannot have it, its ranks are refused by the first, and the first forms.
func TestTwoJobsOnePort(t *testing.T) {
	captureLog(t)
	first := configs(t, 3)
	began := time.Now()
	second := make([]Config, 2)
	for r := range second {
		second[r] = first[r]
		second[r].Size, second[r].Secret, second[r].Job, second[r].Listener = 2, bytes.Repeat([]byte{9}, SecretBytes), "other", nil
	}
	met := make(chan []*Engine, 1)
	go func() {
		engines, errs := joinAll(first[:2])
		for _, err := range errs {
			assert.NoError(t, err)
		}
		met <- engines
	}()
	_, errs := joinAll(second)
	assert.ErrorContains(t, errs[0], "rank 0: listen tcp "+first[0].Addr+": bind: address already in use")
	if runtime.GOOS == "linux" {
		assert.ErrorContains(t, errs[0], fmt.Sprintf("in use by process %d (%.8s", os.Getpid(), filepath.Base(os.Args[0])))
	}
	assert.ErrorContains(t, errs[1], "does not hold this job's secret")
	last, err := Join(t.Context(), first[2])
	require.NoError(t, err)
	engines := append(<-met, last)
	requireNoListener(t, first[0].Addr, engines)
	closeAll(engines)
	reliability.Took(t, 34, "tcp", 5*time.Second, time.Since(began))
}

// requireNoListener checks that nobody listens any more where the ranks of a job met, which runs.
func requireNoListener(t *testing.T, rendezvous string, engines []*Engine) {
	t.Helper()
	addrs := []string{rendezvous}
	for _, e := range engines {
		if e.self.Addr != "" {
			addrs = append(addrs, e.self.Addr)
		}
	}
	require.Len(t, addrs, len(engines))
	for _, addr := range addrs {
		_, err := net.Dial("tcp", addr)
		assert.Error(t, err, addr)
	}
}

// Once a job of any size runs, its ports are free.
func TestPortsOfAJobThatRuns(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		cs := configs(t, n)
		engines, errs := joinAll(cs)
		for _, err := range errs {
			require.NoError(t, err)
		}
		requireNoListener(t, cs[0].Addr, engines)
		closeAll(engines)
	}
}

//go:build unix

package tcp

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
)

const stopTimeout = time.Second

// withProcess starts ranks 0 and 1 in this process and rank 2 as a process of its own, which all-reduces tensors of count
// elements until it fails.
func withProcess(t *testing.T, count int, timeout time.Duration) (engines []*Engine, child *exec.Cmd, out *strings.Builder) {
	t.Helper()
	cs := configs(t, 3)
	child, out = exec.Command(os.Args[0], "-test.run=TestHelperRank$"), &strings.Builder{}
	child.Env = append(os.Environ(), "RINGO_TEST_MASTER="+cs[0].Addr, "RINGO_TEST_COUNT="+strconv.Itoa(count),
		"RINGO_TEST_TIMEOUT="+timeout.String())
	child.Stdout = out
	require.NoError(t, child.Start())
	for i := range cs[:2] {
		cs[i].Timeout = timeout
	}
	engines, errs := joinAll(cs[:2])
	for _, err := range errs {
		require.NoError(t, err)
	}
	t.Cleanup(func() { closeAll(engines) })
	return engines, child, out
}

// TestHelperRank is rank 2 of another test's job.
func TestHelperRank(t *testing.T) {
	addr := os.Getenv("RINGO_TEST_MASTER")
	if addr == "" {
		return // run as a test of its own, there is nothing to do
	}
	timeout, err := time.ParseDuration(os.Getenv("RINGO_TEST_TIMEOUT"))
	require.NoError(t, err)
	e, err := Join(t.Context(), Config{Rank: 2, Size: 3, Addr: addr, Secret: testSecret, Job: "test", Host: "victim", Timeout: timeout})
	require.NoError(t, err)
	be, err := e.Open(backend.Spec{ID: backend.HashString("world"), Name: "world", Ranks: []int{0, 1, 2}, Rank: 2})
	require.NoError(t, err)
	count, err := strconv.Atoi(os.Getenv("RINGO_TEST_COUNT"))
	require.NoError(t, err)
	x := make([]float32, count)
	for seq := uint64(1); err == nil; seq++ {
		op := sumOp(x)
		op.Seq = seq
		err = do(be, &op)
	}
	os.Stdout.WriteString("rank 2 ends: " + err.Error() + "\n")
	e.Close()
}

// strike hurts rank 2 while all are at work, and returns the errors of ranks 0 and 1 and how long they took.
func strike(t *testing.T, engines []*Engine, count int, hurt func()) ([]error, time.Duration) {
	t.Helper()
	ranks := []int{0, 1, 2}
	struck := make(chan time.Time, 1)
	errs := each(2, func(r int) error {
		be, err := engines[r].Open(backend.Spec{ID: backend.HashString("world"), Name: "world", Ranks: ranks, Rank: r})
		x := make([]float32, count)
		for seq := uint64(1); err == nil; seq++ {
			op := sumOp(x)
			op.Seq = seq
			if err = be.Issue(&op); err != nil {
				break
			}
			if r == 0 && seq == 3 {
				hurt()
				struck <- time.Now()
			}
			err = wait(context.Background(), be, seq)
		}
		for i := range x {
			x[i] = 7 // the race detector sees whoever still writes
		}
		return err
	})
	return errs, time.Since(<-struck)
}

// Killed or stopped, between operations or in the middle of 4 MiB (64 in the long form): the others name the rank, its process and the
// operation. In the short form, connections have the large ones, and shared memory the small ones.
func TestRealProcessDies(t *testing.T) {
	for size, count := range map[string]int{"small": 5, "large": rounds(t, 1<<20, 16<<20)} { // a large one takes a while to reduce
		if !reliability.Long(t) && sharing != (size == "small") {
			continue
		}
		t.Run("killed, "+size, func(t *testing.T) {
			engines, child, _ := withProcess(t, count, time.Minute) // it is the end of the connection that they see
			errs, took := strike(t, engines, count, func() { require.NoError(t, child.Process.Kill()) })
			for r, err := range errs {
				assert.ErrorContains(t, err, "rank 2 (host victim, pid ", "rank %d", r)
				assert.ErrorContains(t, err, "allreduce seq ", "rank %d", r)
				assert.ErrorContains(t, err, "closed the connection", "rank %d", r)
			}
			assert.Less(t, took, time.Second+reliability.Slack)
			t.Logf("%v after %v", errs[0], took)
			assert.Error(t, child.Wait())
		})
		if !reliability.Long(t) {
			continue // TestSilentPeer is the short form of what follows
		}
		t.Run("stopped, "+size, func(t *testing.T) {
			engines, child, out := withProcess(t, count, stopTimeout)
			errs, took := strike(t, engines, count, func() { require.NoError(t, child.Process.Signal(syscall.SIGSTOP)) })
			for r, err := range errs {
				assert.ErrorContains(t, err, "rank 2: no progress", "rank %d", r)
				assert.ErrorContains(t, err, "allreduce seq ", "rank %d", r)
			}
			assert.Less(t, took, stopTimeout+200*time.Millisecond+reliability.Slack)
			t.Logf("%v after %v", errs[0], took)
			require.NoError(t, child.Process.Signal(syscall.SIGCONT))
			var exit *exec.ExitError
			if err := child.Wait(); err != nil && !errors.As(err, &exit) {
				require.NoError(t, err)
			}
			want := "generation 0 is over"
			if size == "large" { // the connection may be too full to say why it ends
				want = "rank 2 ends: rank "
			}
			assert.Contains(t, out.String(), want)
		})
	}
}

func TestLongRealProcessDies(t *testing.T) { reliability.AsLong(t, TestRealProcessDies) }

package tcp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// descriptors counts the open files of the process, where the system shows them.
func descriptors() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(names)
}

// settled waits until the number of goroutines and descriptors is back to what it was.
func settled(t *testing.T, goroutines, files int) {
	t.Helper()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 && descriptors() <= files }, 20*time.Second,
		10*time.Millisecond, "goroutines %d → %d, descriptors %d → %d", goroutines, runtime.NumGoroutine(), files, descriptors())
}

// warmUp makes the runtime open what it keeps for all connections.
func warmUp(t *testing.T) {
	t.Helper()
	engines, errs := joinAll(configs(t, 2))
	require.NoError(t, errors.Join(errs...))
	closeAll(engines)
}

func rounds(t *testing.T, short, long int) int {
	if reliability.Long(t) {
		return long
	}
	return short
}

func TestGroupsLeaveNothingBehind(t *testing.T) {
	engines := start(t, 3, nil)
	made := 0
	one := func() {
		made++
		be := open(t, engines, fmt.Sprint("group ", made))
		for r, err := range each(3, func(r int) error {
			if err := do(be[r], &backend.Op{Kind: backend.Barrier, Seq: 1}); err != nil {
				return err
			}
			return be[r].(backend.Closer).Close()
		}) {
			require.NoError(t, err, "rank %d", r)
		}
	}
	one()
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for range rounds(t, 200, 1000) {
		one()
	}
	settled(t, goroutines, files)
	for _, e := range engines {
		require.Empty(t, e.groups)
		require.Eventually(t, func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.closedGroups)+len(e.newest) == 0
		}, 20*time.Second, time.Millisecond, "closed groups are remembered")
	}
}

func TestLongGroupsLeaveNothingBehind(t *testing.T) {
	reliability.AsLong(t, TestGroupsLeaveNothingBehind)
}

func TestEnginesLeaveNothingBehind(t *testing.T) {
	warmUp(t)
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for i := range rounds(t, 6, 500) { // in the long runs, with shared memory as often
		cs := configs(t, 3)
		engines, errs := joinAll(cs)
		require.NoError(t, errors.Join(errs...))
		be := open(t, engines, "world")
		each(3, func(r int) error {
			if i%2 == 1 && r == 2 {
				kill(engines[2])
				return nil
			}
			return do(be[r], &backend.Op{Kind: backend.Barrier, Seq: 1})
		})
		if i%2 == 1 { // Close must not think that it is closed
			engines[2].mu.Lock()
			engines[2].closing = false
			engines[2].mu.Unlock()
		}
		closeAll(engines)
	}
	settled(t, goroutines, files)
}

func TestLongEnginesLeaveNothingBehind(t *testing.T) {
	reliability.AsLong(t, TestEnginesLeaveNothingBehind)
}

func TestFailedJoinsLeaveNothingBehind(t *testing.T) {
	warmUp(t)
	goroutines, files := runtime.NumGoroutine(), descriptors()
	for range rounds(t, 5, 50) {
		cs := configs(t, 3)
		for i := range cs {
			cs[i].JoinTimeout = 20 * time.Millisecond
		}
		_, errs := joinAll(cs[:2])
		for _, err := range errs {
			require.Error(t, err)
		}
	}
	settled(t, goroutines, files)
}

func TestLongFailedJoinsLeaveNothingBehind(t *testing.T) {
	reliability.AsLong(t, TestFailedJoinsLeaveNothingBehind)
}

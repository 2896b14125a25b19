package tcp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// The failures of groups over connections, on groups over shared memory.
func TestSharedFailures(t *testing.T) {
	sharing = true
	t.Cleanup(func() { sharing = false }) // after the tests that run beside each other
	engines := start(t, 2, nil)
	require.NotNil(t, engines[0].mem.Load(), "the ranks do not share memory")
	for name, test := range map[string]func(t *testing.T){
		"Mismatch": TestMismatch, "MismatchOfAllToAllV": TestMismatchOfAllToAllV, "DeadPeer": TestDeadPeer, "SilentPeer": TestSilentPeer,
		"SuspectsOfMonitoredBarrier": TestSuspectsOfMonitoredBarrier, "Suspects": sharedSuspects,
		"Abort": TestAbort, "Departure": TestDeparture, "OldGeneration": TestOldGeneration,
		"ParkEndsWithContext": TestParkEndsWithContext, "IssueOutOfOrder": TestIssueOutOfOrder, "RealProcessDies": TestRealProcessDies,
	} {
		t.Run(name, test)
	}
}

// Those of them that the long runs repeat more often, or that only they have.
func TestLongSharedFailures(t *testing.T) {
	reliability.SkipUnlessLong(t)
	sharing = true
	defer func() { sharing = false }()
	for name, test := range map[string]func(t *testing.T){
		"Abort": TestAbort, "RealProcessDies": TestRealProcessDies, "GroupsLeaveNothingBehind": TestGroupsLeaveNothingBehind,
		"EnginesLeaveNothingBehind": TestEnginesLeaveNothingBehind, "FailedJoinsLeaveNothingBehind": TestFailedJoinsLeaveNothingBehind,
	} {
		t.Run(name, test)
	}
}

// Who has begun an operation and answers only waits, too: the silent one is named, alone.
func sharedSuspects(t *testing.T) {
	t.Parallel()
	engines := start(t, 3, nil)
	be := open(t, engines, "world")
	w := engines[2].links[0].main
	w.wmu.Lock() // rank 2 can say nothing any more
	defer w.wmu.Unlock()
	for r := range 2 {
		op := sumOp(make([]float32, 1000))
		op.Seq = 1
		require.NoError(t, be[r].Issue(&op))
	}
	absent, stalled := be[0].(backend.Suspecter).Suspects(1)
	assert.Empty(t, absent)
	assert.Equal(t, []int{2}, stalled)
	require.NoError(t, be[0].Abort(nil))
}

package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The failures of groups over connections, on groups over shared memory.
func TestSharedFailures(t *testing.T) {
	sharing = true
	defer func() { sharing = false }()
	engines := start(t, 2, nil)
	require.NotNil(t, engines[0].mem.Load(), "the ranks do not share memory")
	for name, test := range map[string]func(t *testing.T){
		"Mismatch": TestMismatch, "MismatchOfAllToAllV": TestMismatchOfAllToAllV, "DeadPeer": TestDeadPeer, "SilentPeer": TestSilentPeer,
		"SuspectsOfMonitoredBarrier": TestSuspectsOfMonitoredBarrier,
		"Abort":                      TestAbort, "Departure": TestDeparture, "OldGeneration": TestOldGeneration, "ParkEndsWithContext": TestParkEndsWithContext,
		"IssueOutOfOrder": TestIssueOutOfOrder, "RealProcessDies": TestRealProcessDies,
		"GroupsLeaveNothingBehind": TestGroupsLeaveNothingBehind, "EnginesLeaveNothingBehind": TestEnginesLeaveNothingBehind,
		"FailedJoinsLeaveNothingBehind": TestFailedJoinsLeaveNothingBehind,
	} {
		t.Run(name, test)
	}
}

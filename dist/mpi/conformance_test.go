package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/mpi"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// parts are those of the suite that processes can run. The others are Bytes, as MPI does not say how often it sends them, and Rebuild,
// which MPI cannot do; TestMistakes has its error.
var parts = []string{"Reductions", "NaN", "HalfRoundsOnce", "Movement", "VForms", "InPlace", "Forms", "Groups", "Mesh", "InFlight",
	"Backpressure", "Dependent", "PointToPoint", "Batch", "Objects", "TwoGoroutines", "RandomPrograms", "Errors", "Edges", "Lifetimes",
	"EveryOperation"}

// skipped are tests whose ranks share more than their groups, such as a variable, or that end an operation which MPI has begun.
// TestMistakes and TestStoppedRank have their errors.
const skipped = "^TestRanks$/^Errors$/^(RankFails|RankPanics|NeverWaitedFor|WaitHostCancelled|Algorithms)$|" +
	"^TestRanks$/^Edges$/^(AbortWithoutCause|GrandchildrenFail|TimeoutBesideTraffic)$|" +
	"^TestRanks$/^Lifetimes$/^AbortLeavesBuffersAlone$|^TestRanks$/^EveryOperation$/^(Returns|Stuck)$"

// Each rank is a process that runs the same tests; TestRanks is what it does.
func TestConformance(t *testing.T) {
	first := 5 // its jobs have fewer ranks, too
	if reliability.Long(t) {
		first = 1
	}
	for n := first; n <= 5; n++ {
		out, err := job(t, n, []string{childEnv + "=tests"}, "-test.run=^TestRanks$", "-test.v", "-test.failfast", "-test.skip="+skipped).
			CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, n, strings.Count(string(out), "--- PASS: TestRanks "), "%s", out)
	}
}

func TestLongConformance(t *testing.T) { reliability.AsLong(t, TestConformance) }

// TestRanks runs the suite on this rank of a job under mpiexec. Jobs of fewer ranks are those of its first ranks.
func TestRanks(t *testing.T) {
	if os.Getenv(childEnv) != "tests" {
		t.Skip("a rank of TestConformance")
	}
	e, err := mpi.Join(20*time.Second, 0)
	require.NoError(t, err)
	runs := uint64(0)
	disttest.RunInOrder(t, func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
		runs++
		var err error
		if e.Rank() < n && n <= e.Size() {
			err = dist.RunEngine(t.Context(), cfg, e.View(runs), e.Rank(), n, e.Size(), func(_ context.Context, r *dist.Rank) error {
				return fn(r)
			})
		}
		if err != nil {
			fmt.Println("rank", e.Rank(), t.Name(), err)
		}
		return errors.Join(err, e.Rendezvous())
	}, parts...)
	e.Finish() // of a rank that was in no job, too
	require.NoError(t, e.Close())
}

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
)

// parts are those of the suite whose ranks share nothing but their groups.
var parts = []string{"Reductions", "NaN", "HalfRoundsOnce", "Movement", "VForms", "InPlace", "Forms", "Groups", "Mesh", "InFlight",
	"Backpressure", "Dependent", "PointToPoint", "Batch", "Objects"}

// Each rank is a process that runs the same tests; TestRanks is what it does.
func TestConformance(t *testing.T) {
	out, err := job(t, 4, []string{childEnv + "=tests"}, "-test.run=^TestRanks$", "-test.v", "-test.failfast").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 4, strings.Count(string(out), "--- PASS: TestRanks "), "%s", out)
}

// TestRanks runs the suite on this rank of a job under mpiexec. Jobs of fewer ranks are those of its first ranks.
func TestRanks(t *testing.T) {
	if os.Getenv(childEnv) != "tests" {
		t.Skip("a rank of TestConformance")
	}
	e, err := mpi.Join(20*time.Second, 0)
	require.NoError(t, err)
	runs := uint64(0)
	chosen := parts
	if only := os.Getenv("MPI_TEST_PARTS"); only != "" {
		chosen = strings.Split(only, ",")
	}
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
	}, chosen...)
	require.NoError(t, e.Close())
}

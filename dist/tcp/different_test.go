package tcp_test

import (
	"testing"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Operations that do not match are found at once whatever algorithms they run by, in the short form with one of these choices.
func TestDifferentOperations(t *testing.T) {
	t.Parallel()
	ranks := []int{3}
	if reliability.Long(t) {
		ranks = []int{2, 3, 4, 5, 6, 7}
	}
	forces := map[string]string{
		"halving": "allreduce:halving-doubling,reduce:binomial,broadcast:binomial,alltoall:bruck,barrier:dissemination",
	}
	if reliability.Long(t) {
		forces["direct"] = "direct"
		forces["hierarchical"] = "allreduce:hierarchical,reducescatter:hierarchical,reducescatterv:hierarchical,allgather:hierarchical," +
			"allgatherv:hierarchical,broadcast:hierarchical"
		forces["linear"] = "linear"
		forces["ring"] = "allreduce:ring,reducescatter:ring,reducescatterv:ring,allgather:ring,allgatherv:ring,broadcast:chain"
		forces["tree"] = "allreduce:double-tree,alltoall:pairwise,alltoallv:pairwise"
	}
	for name, force := range forces {
		t.Run(name, func(t *testing.T) { disttest.Different(t, start, ranks, force) })
	}
}

func TestLongDifferentOperations(t *testing.T) { reliability.AsLong(t, TestDifferentOperations) }

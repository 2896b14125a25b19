package tcp_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// The parts of the conformance suite that compare results, with every algorithm forced through the environment, in the short form with one
// of most operations, and without direct, by which TestConformance runs them already. Parts that demand sums in rank order are for direct
// alone. No algorithm knows whether its messages are encrypted.
func TestConformanceOfAlgorithms(t *testing.T) {
	t.Parallel()
	suite, ranks := "TestConformance/encrypted", "3"
	if reliability.Long(t) {
		suite, ranks = "TestLongConformance/unencrypted", "[25]"
	}
	path := "^" + strings.ReplaceAll(suite, "/", "$/^") + "$"
	results := []string{"Reductions", "Movement", "VForms"}
	if reliability.Long(t) {
		results = append(results, "NaN", "InPlace", "Forms", "RandomPrograms")
	}
	type run struct {
		name, algo string
		parts      []string
	}
	runs := []run{
		{"direct", "direct", append([]string{"HalfRoundsOnce", "Bytes"}, results...)},
		{"ring", "allreduce:ring,reducescatter:ring,reducescatterv:ring,allgather:ring,allgatherv:ring,broadcast:chain", results},
		{"halving", "allreduce:halving-doubling,reduce:binomial,broadcast:binomial,alltoall:bruck,barrier:dissemination," +
			"allgather:bruck,allgatherv:bruck,reducescatter:bruck,reducescatterv:bruck", results},
		{"tree", "allreduce:double-tree,alltoall:pairwise,alltoallv:pairwise", results},
	}
	if !reliability.Long(t) {
		runs = []run{
			{"others", "allreduce:double-tree,reduce:binomial,broadcast:chain,barrier:dissemination,alltoall:bruck,alltoallv:pairwise," +
				"allgather:ring,allgatherv:bruck,reducescatter:bruck,reducescatterv:ring", results},
		}
	}
	for _, c := range runs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.v", "-test.run="+path+"/^("+strings.Join(c.parts, "|")+")$/^("+ranks+"_ranks)?$")
			cmd.Env = append(os.Environ(), "RINGO_ALGO="+c.algo)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			for _, part := range c.parts {
				assert.Contains(t, string(out), "--- PASS: "+suite+"/"+part+" ")
			}
		})
	}
}

func TestLongConformanceOfAlgorithms(t *testing.T) {
	reliability.AsLong(t, TestConformanceOfAlgorithms)
}

// An algorithm is chosen by name: known names for what they can do, errors for the rest. Messages have no algorithm.
func TestAlgorithmByName(t *testing.T) {
	require.NoError(t, start(t, 2, dist.Config{Threads: 1, Log: io.Discard}, func(r *dist.Rank) error {
		me := r.World.Rank()
		g := r.World.With(dist.Algo("ring"), dist.Name("rings"))
		x := tensor.FromSlice([]float32{float32(me), 1, 2}, 3)
		err := g.AllReduce(x, dist.Sum).Wait()
		if err == nil && me == 0 {
			err = g.Send(x, 1, 0).Wait()
		} else if err == nil {
			err = g.Recv(x, 0, 0).Wait()
		}
		if err == nil {
			err = r.World.Barrier().Wait() // the next error reaches the peer too: not in its Recv
		}
		if err != nil {
			return err
		}
		if got := tensor.Floats(x); fmt.Sprint(got) != "[1 2 4]" {
			return fmt.Errorf("sum %v", got)
		}
		assert.ErrorContains(t, g.Broadcast(x, 0).Wait(), `broadcast seq 2 of group rings: algorithm "ring" cannot do broadcast, `+
			`which has: linear, direct, chain, binomial, hierarchical`, "rank %d", me)
		assert.ErrorContains(t, r.World.With(dist.Algo("rings")).Barrier().Wait(),
			`unknown algorithm "rings"; this engine has: linear, direct, chain, binomial, hierarchical, ring, halving-doubling, double-tree, `)
		return r.World.Barrier().Wait()
	}))
}

// The flight recorder names the algorithm, forced or chosen.
func TestFlightRecorderNamesAlgorithm(t *testing.T) {
	var log strings.Builder
	err := start(t, 2, dist.Config{Threads: 1, Log: &log}, func(r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 10_000)
		err := r.World.AllReduce(x, dist.Sum).Wait()
		if err == nil {
			err = r.World.With(dist.Algo("allreduce:ring")).AllReduce(x, dist.Sum).Wait()
		}
		if err == nil {
			err = r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 1+r.World.Rank()), dist.Sum).Wait()
		}
		return err
	})
	assert.Error(t, err)
	assert.Contains(t, log.String(), "ranks 0, 1: allreduce by direct seq 1 of group world, 40000 bytes")
	assert.Contains(t, log.String(), "ranks 0, 1: allreduce by ring seq 1 of group world/1, 40000 bytes")
}

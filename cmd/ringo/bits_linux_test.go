package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

var bitsLine = regexp.MustCompile(`rank \d+: bits [0-9a-f]{64}`)

func bitsOf(text string) []string {
	lines := bitsLine.FindAllString(text, -1)
	slices.Sort(lines)
	return lines
}

// With RINGO_BITS=rank, ranks on two hosts get the bits of goroutine ranks; with a ring they do not. The short form is
// TestSameBitsInRankOrder (dist/tcp).
func TestLongRankOrderAcrossHosts(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	program := program(t, "bits")
	c := newCluster(t, 2)
	for _, perHost := range []int{1, 2, 3} {
		n := strconv.Itoa(2 * perHost)
		out, err := exec.Command(program, n).CombinedOutput()
		require.NoError(t, err, "%s", out)
		want := bitsOf(string(out))
		require.Len(t, want, 2*perHost)
		for _, env := range []string{"RINGO_BITS=rank", "RINGO_ALGO=allreduce:ring"} {
			var agents []*agent
			for host := range 2 {
				agents = append(agents, c.start(host, "2", "-timeout 20s -n "+strconv.Itoa(perHost), program+" "+n, env))
			}
			got := ""
			for _, a := range agents {
				require.Zero(t, a.wait(t, longest), "%s\n%s", a.stdout.String(), a.err.String())
				got += a.stdout.String()
			}
			assert.Len(t, bitsOf(got), 2*perHost, got)
			assert.Equal(t, env == "RINGO_BITS=rank", slices.Equal(want, bitsOf(got)), "%s, %s ranks", env, n)
		}
	}
}

// If an algorithm is set on one rank only, all ranks get an error that names both algorithms and ranks.
func TestAlgorithmOnOneRankOnly(t *testing.T) {
	t.Parallel()
	program := program(t, "allreduce")
	stdout, stderr, code := run(t, "run", "-n", "2", "-timeout", "5s", "sh", "-c",
		`if [ $RINGO_RANK = 1 ]; then export RINGO_ALGO=allreduce:ring; fi; RINGO_SHM=0 exec `+program)
	assert.Equal(t, 1, code)
	text := regexp.MustCompile(`allreduce seq 1 of group world: algorithm "\w+" by default \(rank 0\) vs "ring" \(rank 1\)`)
	assert.Len(t, text.FindAllString(stdout, -1), 2, stdout+stderr)
}

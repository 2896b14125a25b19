package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// One rank may map less memory than others, which have larger segments: it says so, and all go over sockets, whichever rank it is.
func TestRunWithUnequalLimits(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	if reliability.Racing {
		t.Skip("the race detector maps terabytes")
	}
	for rank := range 3 {
		for i, limit := range []int{4_000_000, 20_000_000} {
			if (rank != 2 || i != 1) && !reliability.Long(t) {
				continue
			}
			began := time.Now()
			stdout, stderr, code := run(t, "run", "-n", "3", "sh", "-c", fmt.Sprintf("[ $RINGO_RANK = %d ] && ulimit -v %d\nexec %s", rank, limit,
				program(t, "allreduce")))
			assert.Zero(t, code, stdout+stderr)
			assert.Equal(t, 3, strings.Count(stdout, ": sums are right"), stdout+stderr)
			assert.Regexp(t, fmt.Sprintf("all ranks of this host use sockets rank=%d reason=.*cannot allocate memory", rank), stderr)
			assert.Less(t, time.Since(began), 10*time.Second+reliability.Slack, "nobody waits for those who cannot")
		}
	}
}

func TestLongRunWithUnequalLimits(t *testing.T) { reliability.AsLong(t, TestRunWithUnequalLimits) }

// A rank that may have few descriptors goes over sockets, with all others, or its error says how many it may have, and needs. Most of the
// time ranks wait for the one that cannot, so all jobs run at once. Tests of dist/tcp, dist/shm and internal/nofile are the short forms.
func TestLongRunWithFewFiles(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	needsProcesses(t)
	var few atomic.Int32
	var jobs sync.WaitGroup
	program := program(t, "allreduce")
	for _, rank := range []int{0, 2} {
		for _, limit := range []int{10, 12, 16, 20, 24} {
			jobs.Go(func() {
				began := time.Now()
				stdout, stderr, code := run(t, "run", "-n", "3", "sh", "-c", fmt.Sprintf("export RINGO_JOIN_TIMEOUT=5s\n"+
					"exec 5>&- 6>&- 7>&- 8>&- 9>&- # inherited from who knows whom\n"+
					"[ $RINGO_RANK = %d ] && ulimit -n %d\nexec %s", rank, limit, program))
				if code == 0 {
					assert.Equal(t, 3, strings.Count(stdout, ": sums are right"), "%d of %d: %s", limit, rank, stdout+stderr)
				} else {
					assert.Regexp(t, fmt.Sprintf(`too many open files: the limit of this process \(ulimit -n: %d\); needed are about`+
						`|fatal error: (runtime: netpollinit|runtime: eventfd|eventfd) failed`, limit), stdout+stderr, "Go itself needs some")
					few.Add(1)
				}
				assert.Less(t, time.Since(began), 15*time.Second+reliability.Slack, "%d of %d: nobody waits for those who cannot", limit, rank)
			})
		}
	}
	jobs.Wait()
	assert.Positive(t, few.Load(), "no limit was too low")
}

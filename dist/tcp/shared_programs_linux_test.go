package tcp_test

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Random programs over shared memory. Now and then a rank loses its core just before it touches a peer's memory.
func TestSharedRandomPrograms(t *testing.T) {
	t.Parallel()
	disttest.ProgramsInRealTime(t, func(p *disttest.Program) *disttest.Outcome {
		engines := sharing(t, p)
		often := rand.New(rand.NewPCG(p.Seed, 81)).Uint64N(8)
		var touches atomic.Uint64
		for _, e := range engines {
			e.SetSharedFault(func(int, int, int) bool {
				if k := touches.Add(1); backend.Hash64(p.Seed, k)%8 < often {
					for range k % 5 {
						runtime.Gosched()
					}
				}
				return false
			})
		}
		return onEngines(p, engines, unchanged)
	})
}

func TestLongSharedRandomPrograms(t *testing.T) { reliability.AsLong(t, TestSharedRandomPrograms) }

// Random programs find a block of shared memory that is lost.
func TestSharedProgramsFindLostBlock(t *testing.T) {
	t.Parallel()
	var blocks atomic.Uint64
	for seed := uint64(1); ; seed++ {
		p := disttest.RandomProgram(seed)
		if p.Mishap != disttest.Nothing {
			continue
		}
		engines := sharing(t, p)
		for _, e := range engines {
			e.SetSharedFault(func(int, int, int) bool { return blocks.Add(1)%5 == 0 })
		}
		if err := p.Judge(onEngines(p, engines, unchanged)); err != nil {
			require.ErrorContains(t, err, "WRONG RESULT")
			return
		}
		require.Less(t, seed, uint64(20), "not found")
	}
}

// sharing joins ranks that share memory.
func sharing(t *testing.T, p *disttest.Program) []*tcp.Engine {
	engines := join(t, p.Ranks, func(c *tcp.Config) { c.Timeout = p.Timeout })
	for _, e := range engines {
		require.True(t, e.Shares(), "the ranks share no memory: the log says why")
	}
	return engines
}

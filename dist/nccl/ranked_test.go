package nccl_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// With RINGO_BITS=rank, every reduction of every type has the bits of ranks in host memory, also for NaN and rounding.
func TestRankOrder(t *testing.T) {
	t.Setenv("RINGO_BITS", "rank")
	machine(t)
	disttest.SameBits(t, start)
	parts := []string{"NaN", "HalfRoundsOnce"}
	if long(t) {
		parts = append(parts, "InPlace", "InFlight")
	}
	disttest.RunEmulated(t, start, parts...)
}

func TestLongRankOrder(t *testing.T) { reliability.AsLong(t, TestRankOrder) }

// A reduction in rank order moves as many bytes as a ring: 2S(n-1) for an all-reduce, and S(n-1) for a reduce-scatter.
func TestRankOrderBytes(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for _, count := range []int{1, 100, 1001} {
			t.Run(fmt.Sprintf("%d ranks, %d elements", n, count), func(t *testing.T) {
				before := emu.CountNCCL().Moved
				ranks(t, n, emu.Config{Lazy: true}, func(r *rank) error {
					return errors.Join(
						r.does(inOrder(backend.AllReduce, count), vector(r.me, 0, count), total(n, 0, count)),
						r.does(inOrder(backend.ReduceScatter, count), vector(r.me, 0, n*count), total(n, r.me*count, count)),
						r.wait())
				})
				if !emu.OnGPU() {
					assert.EqualValues(t, 2*4*count*(n-1)+4*n*count*(n-1), emu.CountNCCL().Moved-before)
				}
			})
		}
	}
}

func inOrder(k backend.Kind, count int) backend.Op {
	return backend.Op{Kind: k, Red: backend.Sum, Count: count, Algo: backend.RankOrder}
}

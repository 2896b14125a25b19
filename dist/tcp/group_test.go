package tcp

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// pair opens the point-to-point group from one rank to another.
func pair(t testing.TB, engines []*Engine, from, to int) (send, recv backend.Backend) {
	t.Helper()
	s := backend.Spec{ID: backend.HashString(fmt.Sprint(from, to)), Name: "world", Ranks: []int{from, to}}
	send, err := engines[from].Open(s)
	require.NoError(t, err)
	s.Rank = 1
	recv, err = engines[to].Open(s)
	require.NoError(t, err)
	return send, recv
}

func sendOp(seq uint64, x []float32, tag int) *backend.Op {
	return &backend.Op{Kind: backend.Send, Seq: seq, Peer: 1, Root: 1, Tag: tag, Count: len(x), Src: memOf(x)}
}

func recvOp(seq uint64, x []float32, tag int) *backend.Op {
	return &backend.Op{Kind: backend.Recv, Seq: seq, Peer: 0, Tag: tag, Count: len(x), Dst: memOf(x)}
}

// A small Send ends without its Recv, a large one does not; a Recv without a Send holds up neither collectives nor
// messages the other way.
func TestPointToPoint(t *testing.T) {
	engines := start(t, 2, nil)
	world := open(t, engines, "world")
	s01, r01 := pair(t, engines, 0, 1)
	s10, r10 := pair(t, engines, 1, 0)
	waiting := recvOp(1, make([]float32, 2), 0)
	require.NoError(t, r10.Issue(waiting))
	for seq := range uint64(backend.Depth) {
		require.NoError(t, do(s01, sendOp(seq+1, make([]float32, smallMessage/4), int(seq))), "eager")
	}
	big := inputs(2, 1<<20)
	large := sendOp(backend.Depth+1, big[0], 7)
	require.NoError(t, s01.Issue(large))
	for r, err := range each(2, func(r int) error { return do(world[r], &backend.Op{Kind: backend.Barrier, Seq: 1}) }) {
		require.NoError(t, err, "rank %d", r)
	}
	done, err := s01.Progress()
	require.NoError(t, err)
	assert.Equal(t, uint64(backend.Depth), done, "the large message waits for its Recv")
	assert.False(t, r10.(backend.Peeker).HasPosted(1))
	require.NoError(t, do(s10, sendOp(1, []float32{4, 2}, 0)))
	require.NoError(t, wait(t.Context(), r10, 1))
	assert.True(t, r10.(backend.Peeker).HasPosted(1))
	for seq := range uint64(backend.Depth) {
		require.NoError(t, do(r01, recvOp(seq+1, make([]float32, smallMessage/4), int(seq))))
	}
	got := make([]float32, 1<<20)
	require.NoError(t, do(r01, recvOp(backend.Depth+1, got, 7)))
	require.NoError(t, wait(t.Context(), s01, backend.Depth+1))
	same(t, big[0], got)
	require.NoError(t, s01.Issue(sendOp(backend.Depth+2, got[:3], 1)))
	err = do(r01, recvOp(backend.Depth+2, got[:3], 2))
	assert.ErrorContains(t, err, "tag 1 (rank 0) vs 2 (rank 1)")
	assert.ErrorContains(t, err, "seq 66")
}

// Two groups are used in different order on two ranks, each with many operations in flight and more data than any
// buffer holds.
func TestGroupsDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	const n, count = 3, 300_000
	ops := uint64(rounds(t, 6, 16))
	engines := start(t, n, nil)
	groups := [][]backend.Backend{open(t, engines, "a"), open(t, engines, "b")}
	errs := each(n, func(r int) error {
		x := make([]float32, count)
		y := make([]float32, count)
		for i := range 2 {
			g := groups[(i+r)%2][r]
			for s := range ops {
				op := sumOp([][]float32{x, y}[(i+r)%2])
				op.Seq = s + 1
				if err := g.Issue(&op); err != nil {
					return err
				}
			}
		}
		for i := range 2 {
			if err := wait(t.Context(), groups[(i+r+1)%2][r], ops); err != nil {
				return err
			}
		}
		return nil
	})
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
}

func TestLongGroupsDoNotBlockEachOther(t *testing.T) {
	reliability.AsLong(t, TestGroupsDoNotBlockEachOther)
}

// Engine.Park wakes when a message arrives.
func TestEnginePark(t *testing.T) {
	engines := start(t, 2, nil)
	send, recv := pair(t, engines, 0, 1)
	require.NoError(t, send.Issue(sendOp(1, []float32{1}, 0)))
	for !recv.(backend.Peeker).HasPosted(1) {
		require.NoError(t, engines[1].Park(t.Context()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for engines[1].Park(ctx) == nil { // what happened since
	}
	require.NoError(t, do(recv, recvOp(1, make([]float32, 1), 0)))
}

// In steady state only crypto/tls allocates: two or three small things a record.
func TestAllocations(t *testing.T) {
	const ops = 500
	engines := start(t, 2, nil)
	be := open(t, engines, "world")
	x := inputs(2, 100)
	op := [2]backend.Op{sumOp(x[0]), sumOp(x[1])}
	steps := func(from, n int) {
		for _, err := range each(2, func(r int) error {
			for s := range n {
				op[r].Seq = uint64(from + s)
				if err := be[r].Issue(&op[r]); err != nil {
					return err
				}
				if err := wait(context.Background(), be[r], op[r].Seq); err != nil {
					return err
				}
			}
			return nil
		}) {
			require.NoError(t, err)
		}
	}
	steps(1, 100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	steps(101, ops)
	runtime.ReadMemStats(&after)
	per := float64(after.Mallocs-before.Mallocs) / ops
	t.Logf("%.1f allocations an operation of two records, both ranks together", per)
	assert.Less(t, per, 16.0) // 12 without the race detector, which makes pools forget
}

func BenchmarkAllReduce(b *testing.B) {
	for _, c := range []struct {
		name  string
		count int
	}{{"4B", 1}, {"64KiB", 16 << 10}, {"1MiB", 256 << 10}, {"16MiB", 4 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			engines := start(b, 2, nil)
			be := open(b, engines, "world")
			x := inputs(2, c.count)
			op := [2]backend.Op{sumOp(x[0]), sumOp(x[1])}
			b.SetBytes(int64(4 * c.count))
			b.ReportAllocs()
			seq := uint64(0)
			peer := make(chan uint64)
			go func() {
				for s := range peer {
					op[1].Seq = s
					if do(be[1], &op[1]) != nil {
						return
					}
				}
			}()
			for b.Loop() {
				seq++
				peer <- seq
				op[0].Seq = seq
				if err := do(be[0], &op[0]); err != nil {
					b.Fatal(err)
				}
			}
			close(peer)
			_ = wait(b.Context(), be[1], seq)
		})
	}
}

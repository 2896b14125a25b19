package algo_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/algo/memnet"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// agreed are the operations that end on no rank before all ranks have begun them.
var agreed = []backend.Kind{backend.Broadcast, backend.Reduce, backend.AllReduce, backend.Gather, backend.AllGather, backend.Scatter,
	backend.ReduceScatter, backend.AllToAll, backend.AllGatherV, backend.ReduceScatterV, backend.AllToAllV, backend.Barrier}

// small is an operation with one byte for each rank, or of each rank.
func small(kind backend.Kind, name string, n, root int) backend.Op {
	return sized(kind, name, n, root, 1)
}

// sized is an operation on count bytes for each rank, or of each rank.
func sized(kind backend.Kind, name string, n, root, count int) backend.Op {
	parts := slices.Repeat([]int{count}, n)
	op := backend.Op{Kind: kind, Algo: name, DType: tensor.Uint8, Count: count, Root: root, Row: 1}
	src, dst := count, count
	switch kind {
	case backend.Gather, backend.AllGather:
		dst = n * count
	case backend.AllGatherV:
		dst, op.DstCounts = n*count, parts
	case backend.Scatter, backend.ReduceScatter:
		src = n * count
	case backend.ReduceScatterV:
		src, op.SrcCounts = n*count, parts
	case backend.AllToAll:
		src, dst = n*count, n*count
	case backend.AllToAllV:
		src, dst, op.SrcCounts, op.DstCounts = n*count, n*count, parts, parts
	}
	op.Src, op.Dst = mem(make([]byte, src)), mem(make([]byte, dst))
	return op
}

// postings is what the ranks of a group have posted; nobody may do more.
type postings struct {
	backend.Window
	list []backend.Posting
}

func (p postings) Post(*backend.Op)                            {}
func (p postings) Posted(int) uint64                           { return 1 }
func (p postings) Posting(peer int, _ uint64) *backend.Posting { return &p.list[peer] }

// Ranks whose fingerprints differ do not go on, also where nothing else does.
func TestFingerprintsDecide(t *testing.T) {
	for me := range 2 {
		w := postings{list: make([]backend.Posting, 2)}
		op := small(backend.AllReduce, "", 2, 0)
		op.Seq = 1
		for i := range w.list {
			w.list[i].Fill(&op, "g", uint64(i))
		}
		d := algo.NewDirect(backend.Spec{Name: "g", Ranks: []int{4, 6}, Rank: me}, w)
		d.Post(&op)
		_, err := d.Step()
		require.EqualError(t, err, "rank 6: allreduce seq 1 of group g: ranks 4 and 6 gave different operations")
	}
}

// An operation does not end on a rank while another rank has not begun it: that rank could still begin a different one.
func TestNobodyIsContentAlone(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, kind := range agreed {
					for _, name := range algo.Names(kind) {
						for root := range n {
							for late := range n {
								aloneWithout(t, small(kind, name, n, root), n, late)
							}
						}
					}
				}
			})
		})
	}
}

// aloneWithout makes all ranks but one run op. That one begins when the others can do no more.
func aloneWithout(t *testing.T, op backend.Op, n, late int) {
	net, begin := memnet.New(n, nil), make(chan struct{})
	var content atomic.Int32
	ended := make(chan error, 1)
	go func() {
		ended <- net.Run(context.Background(), func(r *memnet.Rank) error {
			if r.Rank() == late {
				<-begin
			}
			mine := small(op.Kind, op.Algo, n, op.Root)
			defer content.Add(1)
			return algo.NewMessages(r, algo.NewTuner(algo.OneHost(n))).Run(&mine)
		})
	}()
	synctest.Wait()
	require.Zero(t, content.Load(), "%v by %s from %d: ranks went on without rank %d of %d", op.Kind, op.Algo, op.Root, late, n)
	close(begin)
	require.NoError(t, <-ended)
}

// AllToAllV ends on no rank before all ranks have what they expect, because only the receiver notices a wrong size.
func TestAllToAllVEndsForAll(t *testing.T) {
	const n = 3
	for _, name := range algo.Names(backend.AllToAllV) {
		synctest.Test(t, func(t *testing.T) {
			hold := make(chan struct{})
			net := memnet.New(n, func(m *memnet.Message) {
				if m.From == 2 && m.To == 1 && len(m.Bytes) > 0 {
					<-hold
				}
			})
			var content atomic.Int32
			ended := make(chan error, 1)
			go func() {
				ended <- net.Run(context.Background(), func(r *memnet.Rank) error {
					op := small(backend.AllToAllV, name, n, 0)
					defer content.Add(1)
					return algo.NewMessages(r, algo.NewTuner(algo.OneHost(n))).Run(&op)
				})
			}()
			synctest.Wait()
			require.Zero(t, content.Load(), "%s: rank 1 still waits for rank 2", name)
			close(hold)
			require.NoError(t, <-ended)
		})
	}
}

// abortWindow is a Window of two ranks. Rank 1 has posted everything and finished nothing. The group is aborted at the first access to a
// block.
type abortWindow struct {
	postings [2]backend.Posting
	touched  int
}

func (w *abortWindow) Rank() int                                   { return 0 }
func (w *abortWindow) Size() int                                   { return 2 }
func (w *abortWindow) Post(*backend.Op)                            {}
func (w *abortWindow) Posted(int) uint64                           { return 1 }
func (w *abortWindow) Posting(peer int, _ uint64) *backend.Posting { return &w.postings[peer] }
func (w *abortWindow) Finish(uint64)                               {}
func (w *abortWindow) Finished(int) uint64                         { return 0 }
func (w *abortWindow) Enter() bool                                 { return true }
func (w *abortWindow) Leave()                                      {}
func (w *abortWindow) Aborted() bool                               { return w.touched > 0 }
func (w *abortWindow) Touch(_ int, _ backend.Kind, _ int) bool     { w.touched++; return true }

// After an abort no further block of a peer's memory is accessed, also in the middle of a step.
func TestAbortEndsWithTheBlock(t *testing.T) {
	for _, kind := range []backend.Kind{backend.Broadcast, backend.Reduce} {
		w := &abortWindow{}
		for rank := range w.postings {
			x := make([]byte, 20*algo.BlockBytes)
			op := backend.Op{Kind: kind, DType: tensor.Uint8, Seq: 1, Count: len(x), Src: mem(x), Dst: mem(x)}
			if kind == backend.Broadcast {
				op.Root = 1
			}
			w.postings[rank].Fill(&op, "world", 7)
		}
		d := algo.NewDirect(backend.Spec{Name: "world", Ranks: []int{0, 1}}, w)
		d.Post(&w.postings[0].Op)
		_, err := d.Step()
		require.NoError(t, err)
		assert.Equal(t, 1, w.touched, "%v", kind)
	}
}

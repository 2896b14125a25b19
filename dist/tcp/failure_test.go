package tcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

func shape(dt tensor.DType, n int) tensor.Shape { return tensor.Shape{DType: dt, Dims: []int{n}} }

func sumOp(x []float32) backend.Op {
	return backend.Op{Kind: backend.AllReduce, Count: len(x), Src: memOf(x), Dst: memOf(x), Shape: shape(tensor.Float32, len(x))}
}

// Ranks that give different operations all get the error, and it names both sides.
func TestMismatch(t *testing.T) {
	const n = 3
	a, b := make([]float32, 10), make([]float32, 12)
	h := make([]tensor.BF16, 10)
	maxOp, half, forced := sumOp(a), sumOp(a), sumOp(a)
	maxOp.Red, forced.Algo = backend.Max, "ring"
	half.DType, half.Src, half.Dst, half.Shape = tensor.BFloat16, memOf(h), memOf(h), shape(tensor.BFloat16, 10)
	cast := func(kind backend.Kind, root int) backend.Op {
		return backend.Op{Kind: kind, Root: root, Count: 10, Src: memOf(a), Dst: memOf(a)}
	}
	gathered := func(counts ...int) backend.Op {
		return backend.Op{Kind: backend.AllGatherV, DstCounts: counts, Src: memOf(a[:counts[1]]), Dst: memOf(b)}
	}
	engines := start(t, n, nil)
	for _, c := range []struct {
		name string
		ops  [2]backend.Op // of rank 0 and 2, of rank 1
		want []string
	}{
		{"kind", [2]backend.Op{sumOp(a), cast(backend.Broadcast, 0)}, []string{"allreduce", "broadcast", "seq 1", "(rank 0)", "(rank 1)"}},
		{"count", [2]backend.Op{sumOp(a), sumOp(b)}, []string{"count 10 (rank 0) vs 12 (rank 1)", "float32[10]", "float32[12]"}},
		{"dtype", [2]backend.Op{sumOp(a), half}, []string{"float32", "bfloat16"}},
		{"op", [2]backend.Op{sumOp(a), maxOp}, []string{"sum", "max"}},
		{"root of broadcast", [2]backend.Op{cast(backend.Broadcast, 0), cast(backend.Broadcast, 1)}, []string{"root 0 (rank 0) vs 1 (rank 1)"}},
		{"root of reduce", [2]backend.Op{cast(backend.Reduce, 0), cast(backend.Reduce, 1)}, []string{"root 0 (rank 0) vs 1 (rank 1)"}},
		{"algorithm", [2]backend.Op{sumOp(a), forced}, []string{`"linear" by default (rank `, `"ring" (rank 1)`}},
		{"counts", [2]backend.Op{gathered(1, 2, 3), gathered(1, 2, 4)}, []string{"counts[2] = ", "4 (rank 1)"}},
	} {
		if sharing && c.name == "algorithm" {
			continue // there is one
		}
		t.Run(c.name, func(t *testing.T) {
			be := open(t, engines, c.name)
			began := time.Now()
			for r, err := range each(n, func(r int) error {
				op := c.ops[r%2]
				op.Seq = 1
				if op.Kind == backend.AllGatherV {
					op.Src = memOf(a[:op.DstCounts[r]])
				}
				op.Src, op.Dst = private(op.Src), private(op.Dst)
				err := do(be[r], &op)
				return err
			}) {
				require.Error(t, err, "rank %d", r)
				for _, part := range c.want {
					if sharing && strings.Contains(part, "(rank ") {
						continue // rank 1 and any other one may be the first to find it
					}
					assert.ErrorContains(t, err, part, "rank %d", r)
				}
				var e *backend.Error
				assert.ErrorAs(t, err, &e)
			}
			assert.Less(t, time.Since(began), 500*time.Millisecond+reliability.Slack)
		})
	}
}

// private returns memory of the same length: ranks in one process must not share it.
func private(m backend.Mem) backend.Mem { return memOf(make([]byte, m.Bytes)) }

func TestMismatchOfAllToAllV(t *testing.T) {
	be := open(t, start(t, 2, nil), "world")
	counts := [2][2][]int{{{0, 3}, {0, 1}}, {{1, 0}, {4, 0}}} // per rank: to others, from others
	for r, err := range each(2, func(r int) error {
		op := backend.Op{Kind: backend.AllToAllV, Seq: 1, SrcCounts: counts[r][0], DstCounts: counts[r][1],
			Src: memOf(make([]float32, 4)), Dst: memOf(make([]float32, 4))}
		return do(be[r], &op)
	}) {
		assert.ErrorContains(t, err, "rank 0 sends 3 rows to rank 1, which expects 4", "rank %d", r)
	}
}

// A rank whose process dies before, during or after its data is named by all others, with the operation.
func TestDeadPeer(t *testing.T) {
	const n = 4
	for _, when := range []string{"before", "during"} {
		t.Run(when, func(t *testing.T) {
			engines := start(t, n, nil)
			be := open(t, engines, "world")
			x := make([][]float32, n)
			for r := range x {
				x[r] = make([]float32, 4<<20)
			}
			issued := make(chan struct{}, n)
			errs := each(n, func(r int) error {
				op := sumOp(x[r])
				op.Seq = 1
				if r != 2 {
					err := be[r].Issue(&op)
					issued <- struct{}{}
					return errors.Join(err, wait(context.Background(), be[r], 1))
				}
				for range n - 1 {
					<-issued
				}
				if when == "during" {
					if err := be[r].Issue(&op); err != nil {
						return err
					}
				}
				kill(engines[2])
				return nil
			})
			for r, err := range errs {
				if r == 2 {
					continue
				}
				require.Error(t, err, "rank %d", r)
				assert.ErrorContains(t, err, "rank 2 (host h2, pid ", "rank %d", r)
				assert.ErrorContains(t, err, "allreduce seq 1 of group world", "rank %d", r)
				again := be[r].Issue(&backend.Op{Kind: backend.Barrier, Seq: 2})
				assert.EqualError(t, again, err.Error(), "the first cause stays")
			}
		})
	}
}

// kill does what the death of the process does to its connections: they end, and nobody says why.
func kill(e *Engine) {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	for _, l := range e.links {
		if l != nil {
			l.cmu.Lock()
			l.closing = true
			l.cmu.Unlock()
		}
	}
	for _, l := range e.links {
		if l != nil {
			l.main.raw.Close()
		}
	}
}

// A peer that is there but gives no sign of life is lost after the timeout, and told so.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	for _, op := range []backend.Op{{Kind: backend.Barrier}, sumOp(make([]float32, 4)), sumOp(make([]float32, 1<<20))} {
		t.Run(fmt.Sprint(op.Kind, op.Count), func(t *testing.T) {
			t.Parallel()
			silentPeer(t, op)
		})
	}
}

func silentPeer(t *testing.T, op backend.Op) {
	const n = 3
	timeout := time.Second
	if reliability.Racing { // busy ranks are to give signs of life
		timeout *= 3
	}
	engines := start(t, n, func(c *Config) {
		c.Timeout = timeout
		if c.Rank == 2 {
			c.Timeout = time.Hour // sends its first sign of life in 10 s
		}
	})
	be := open(t, engines, "world")
	began := time.Now()
	for r, err := range each(n, func(r int) error { return do(be[r], &backend.Op{Kind: backend.Barrier, Seq: 1}) }) {
		_ = r
		assert.NoError(t, err)
	}
	errs := each(n, func(r int) error {
		if r == 2 {
			return wait(context.Background(), be[r], 2)
		}
		op := op
		op.Seq, op.Src, op.Dst = 2, private(op.Src), private(op.Dst)
		return do(be[r], &op)
	})
	for _, err := range errs[:2] {
		assert.ErrorContains(t, err, "rank 2: no progress")
		assert.ErrorContains(t, err, op.Kind.String()+" seq 2")
	}
	for _, err := range errs {
		assert.NotContains(t, err.Error(), "use of closed network connection")
	}
	assert.ErrorContains(t, errs[2], "generation 0 is over")
	assert.Less(t, time.Since(began), timeout+200*time.Millisecond+reliability.Slack)
}

// Whoever did not issue an operation is absent; when all have, the one that is waited for is stalled.
func TestSuspects(t *testing.T) {
	t.Parallel()
	const n = 4
	engines := start(t, n, nil)
	be := open(t, engines, "world")
	x := make([]float32, 3)
	op := backend.Op{Kind: backend.Reduce, Seq: 1, Count: 3, Src: memOf(x), Dst: memOf(x)}
	require.NoError(t, be[0].Issue(&op))
	suspects := func(absent, stalled []int) { // in time: on a busy machine answers may come too late
		t.Helper()
		require.Eventually(t, func() bool {
			a, s := be[0].(backend.Suspecter).Suspects(1)
			return slices.Equal(a, absent) && slices.Equal(s, stalled)
		}, 20*time.Second, time.Millisecond, "absent %v, stalled %v", absent, stalled)
	}
	suspects([]int{1, 2, 3}, nil)
	engines[3].links[0].main.wmu.Lock() // rank 3 can say nothing any more
	op1, op3 := op, op
	op1.Dst, op3.Dst = backend.Mem{}, backend.Mem{}
	require.NoError(t, be[1].Issue(&op1))
	require.NoError(t, be[3].Issue(&op3))
	suspects([]int{2}, []int{3})
	engines[3].links[0].main.wmu.Unlock()
	op2 := op1
	require.NoError(t, do(be[2], &op2))
	require.NoError(t, wait(context.Background(), be[0], 1))
}

// One goroutine of an operation waits for a message while another sends: the rank that is waited for is the stalled one, unless another
// takes nothing.
func TestSuspectsBesideSender(t *testing.T) {
	t.Parallel()
	spec := backend.Spec{ID: 7, Name: "world", Ranks: []int{0, 2, 1}}
	op := backend.Op{Kind: backend.AllReduce, Seq: 1}
	w := &worker{op: &op}
	for _, e := range start(t, 3, nil) {
		spec.Rank = slices.Index(spec.Ranks, e.cfg.Rank)
		e.mu.Lock()
		g := newGroup(e, key{spec.ID, e.cfg.Gen})
		g.opened, e.groups[g.key] = true, g
		g.open(spec, false)
		w.print = g.remember(&op).Print
		e.mu.Unlock()
		if spec.Rank == 0 {
			w.g = g
		}
	}
	suspects := func(want int) { // in time: on a busy machine answers may come too late
		t.Helper()
		require.Eventually(t, func() bool {
			a, s := w.g.Suspects(1)
			return a == nil && slices.Equal(s, []int{want})
		}, 20*time.Second, time.Millisecond, "rank %d of the group", want)
	}
	var wg sync.WaitGroup
	wg.Go(func() { assert.Error(t, w.Recv(1, 0, make([]byte, 1))) })
	suspects(1)
	require.NoError(t, w.Send(2, 0, make([]byte, 1)))
	suspects(1)
	wg.Go(func() { assert.Error(t, w.Send(2, 0, make([]byte, 2*window))) })
	suspects(2)
	w.g.fail(errors.New("over"), true)
	wg.Wait()
}

// A peer without a sign of life for most of the timeout is overdue, and not one that says goodbye.
func TestOverdue(t *testing.T) {
	engines := start(t, 2, nil)
	g, e := open(t, engines, "world")[0].(backend.Listener), engines[0]
	l, timeout := e.links[1], e.cfg.Timeout
	overdue := func(d time.Duration) bool {
		l.heard.Store(e.now() - int64(timeout)*3/4)
		return g.Overdue(d)
	}
	require.True(t, overdue(timeout/2))
	require.True(t, overdue(time.Hour))
	require.False(t, overdue(timeout/8))
	l.heard.Store(e.now() - int64(timeout)/3)
	require.False(t, g.Overdue(time.Hour), "half of the timeout at most")
	l.goodbye.Store(true)
	require.False(t, overdue(timeout/2))
}

// A MonitoredBarrier names everybody who has not arrived, also those that do not answer, and nobody who has.
func TestSuspectsOfMonitoredBarrier(t *testing.T) {
	t.Parallel()
	engines := start(t, 4, nil)
	be := open(t, engines, "world")
	for _, silent := range []int{2, 3} {
		w := engines[silent].links[0].main
		w.wmu.Lock()
		defer w.wmu.Unlock()
	}
	op := backend.Op{Kind: backend.MonitoredBarrier, Seq: 1}
	op2 := op
	require.NoError(t, be[0].Issue(&op))
	require.NoError(t, be[2].Issue(&op2))
	suspects := func() []int {
		absent, _ := be[0].(backend.Suspecter).Suspects(1)
		return absent
	}
	require.Eventually(t, func() bool { return len(suspects()) == 2 }, 20*time.Second, time.Millisecond, "rank 2 does not arrive")
	assert.Equal(t, []int{1, 3}, suspects())
	require.NoError(t, be[0].Abort(nil))
}

// Abort reaches all ranks and the groups made from the aborted one, and afterwards nothing writes to their buffers.
func TestAbort(t *testing.T) {
	const n = 3
	count := rounds(t, 2<<20, 8<<20)
	engines := start(t, n, nil)
	be := open(t, engines, "world")
	child := make([]backend.Backend, n)
	for r := range child {
		var err error
		child[r], err = engines[r].Open(backend.Spec{ID: 77, Parent: backend.HashString("world"), Name: "child", Ranks: []int{0, 1, 2}, Rank: r})
		require.NoError(t, err)
	}
	cause := &backend.Error{Rank: 1, Group: "world", Cause: errors.New("the user pressed stop")}
	bufs := inputs(n, count)
	errs := each(n, func(r int) error {
		op := sumOp(bufs[r])
		op.Seq = 1
		if err := be[r].Issue(&op); err != nil {
			return err
		}
		if r == 1 {
			if err := be[r].Abort(cause); err != nil {
				return err
			}
		}
		return wait(context.Background(), be[r], 1)
	})
	for r, err := range errs {
		require.ErrorContains(t, err, "the user pressed stop", "rank %d", r)
		fill := float32(r + 1)
		for i := range bufs[r] {
			bufs[r][i] = fill // the race detector sees whoever still writes
		}
		other := child[r].Issue(&backend.Op{Kind: backend.Barrier, Seq: 1})
		if other == nil {
			other = wait(context.Background(), child[r], 1)
		}
		assert.ErrorContains(t, other, "the user pressed stop", "child, rank %d", r)
	}
	closeAll(engines)
	for r := range bufs {
		assert.Equal(t, -1, slices.IndexFunc(bufs[r], func(x float32) bool { return x != float32(r+1) }))
	}
}

func TestLongAbort(t *testing.T) { reliability.AsLong(t, TestAbort) }

// A rank that ends in order is no failure for those who have what they need, and an error at once for those who wait.
func TestDeparture(t *testing.T) {
	engines := start(t, 2, nil)
	be := open(t, engines, "world")
	x, y := []float32{1, 2, 3}, make([]float32, 3)
	for _, err := range each(2, func(r int) error {
		if r == 0 {
			err := do(be[0], &backend.Op{Kind: backend.Broadcast, Seq: 1, Count: 3, Src: memOf(x), Dst: memOf(x)})
			return errors.Join(err, engines[0].Close())
		}
		return do(be[1], &backend.Op{Kind: backend.Broadcast, Seq: 1, Count: 3, Dst: memOf(y)})
	}) {
		require.NoError(t, err)
	}
	assert.Equal(t, x, y)
	err := do(be[1], &backend.Op{Kind: backend.Broadcast, Seq: 2, Count: 3, Dst: memOf(y)})
	assert.ErrorContains(t, err, "rank 0 (host h0, pid ")
	assert.ErrorContains(t, err, "has left the job")

	require.Eventually(t, engines[1].links[0].closed.Load, 20*time.Second, time.Millisecond)
	late, err := engines[1].Open(backend.Spec{ID: 9, Name: "late", Ranks: []int{0, 1}, Rank: 1})
	require.NoError(t, err)
	err = do(late, &backend.Op{Kind: backend.Broadcast, Seq: 1, Count: 3, Dst: memOf(y)})
	assert.ErrorContains(t, err, "has left the job", "a group that is opened later")
}

// It is one too for those whose operation has a goroutine that sends while the worker receives.
func TestDepartureBeforeLargeReduction(t *testing.T) {
	t.Parallel()
	const n, count = 3, 4 << 20
	engines := start(t, n, nil)
	be, bufs := open(t, engines, "world"), inputs(n, count)
	for r, err := range each(n, func(r int) error {
		if r == 2 {
			return engines[r].Close()
		}
		op := sumOp(bufs[r])
		op.Seq = 1
		return do(be[r], &op)
	}) {
		if r < 2 {
			assert.ErrorContains(t, err, "has left the job", "rank %d", r)
		} else {
			assert.NoError(t, err)
		}
	}
}

// A frame of an older generation of a group does no harm, and its sender learns that it is over.
func TestOldGeneration(t *testing.T) {
	engines := start(t, 2, nil)
	spec := backend.Spec{ID: 5, Name: "dp", Ranks: []int{0, 1}}
	spec.Gen = 2
	_, err := engines[0].Open(spec)
	require.NoError(t, err)
	spec.Rank, spec.Gen = 1, 1
	old, err := engines[1].Open(spec)
	require.NoError(t, err)
	err = do(old, &backend.Op{Kind: backend.Barrier, Seq: 1})
	assert.ErrorContains(t, err, "generation 1 is over")
}

func TestParkEndsWithContext(t *testing.T) {
	be := open(t, start(t, 2, nil), "world")
	op := backend.Op{Kind: backend.Barrier, Seq: 1}
	require.NoError(t, be[0].Issue(&op))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := be[0].Park(ctx, 1)
	for sharing && err == nil { // it may end for nothing
		err = be[0].Park(ctx, 1)
	}
	assert.ErrorIs(t, err, context.Canceled)
	other := op
	require.NoError(t, do(be[1], &other))
	require.NoError(t, wait(context.Background(), be[0], 1), "the group is not poisoned")
}

func TestIssueOutOfOrder(t *testing.T) {
	be := open(t, start(t, 2, nil), "world")
	assert.ErrorContains(t, be[0].Issue(&backend.Op{Kind: backend.Barrier, Seq: 2}), "operation 2 issued after 0")
	for s := range uint64(backend.Depth) {
		require.NoError(t, be[0].Issue(&backend.Op{Kind: backend.Barrier, Seq: s + 1}))
	}
	assert.ErrorContains(t, be[0].Issue(&backend.Op{Kind: backend.Barrier, Seq: backend.Depth + 1}), fmt.Sprint(backend.Depth))
	for s := range uint64(backend.Depth) {
		require.NoError(t, do(be[1], &backend.Op{Kind: backend.Barrier, Seq: s + 1}))
	}
}

package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Messages of one frame and of several arrive whole and are counted, encrypted or not.
func TestMessagesOfSeveralFrames(t *testing.T) {
	t.Parallel()
	const n = 3
	for _, plain := range []bool{false, true} {
		if !plain && !reliability.Long(t) {
			continue // TestMovesMatchNaive is the short form
		}
		t.Run(fmt.Sprintf("plain %v", plain), func(t *testing.T) {
			w := &world{t: t, be: open(t, start(t, n, func(c *Config) { c.Plain = plain }), "world")}
			for _, count := range []int{0, 5, 20_001, 140_003, rounds(t, 300_003, 1_000_003)} {
				in, out := inputs(n, count), make([][]float32, n)
				before := w.be[1].Counters().Wire[backend.AllGather].Load()
				w.run(func(r int) backend.Op {
					out[r] = make([]float32, n*count)
					return backend.Op{Kind: backend.AllGather, Count: count, Src: memOf(in[r]), Dst: memOf(out[r])}
				})
				for r := range n {
					same(t, append(append(append([]float32{}, in[0]...), in[1]...), in[2]...), out[r], "rank %d", r)
				}
				assert.EqualValues(t, 4*count*(n-1), w.be[1].Counters().Wire[backend.AllGather].Load()-before)
				w.run(func(r int) backend.Op {
					return backend.Op{Kind: backend.AllReduce, Count: count, Src: memOf(in[r]), Dst: memOf(out[r][:count])}
				})
				same(t, naive(in, backend.Sum, nil), out[0][:count])
			}
		})
	}
}

func TestLongMessagesOfSeveralFrames(t *testing.T) {
	reliability.AsLong(t, TestMessagesOfSeveralFrames)
}

// A message that nobody receives fills the window, and no more: so much memory a receiver needs for each peer and group.
func TestWindow(t *testing.T) {
	t.Parallel()
	engines := start(t, 2, nil)
	send, recv := pair(t, engines, 0, 1)
	in, out := inputs(1, 4*window/4)[0], make([]float32, 4*window/4)
	op := sendOp(1, in, 0)
	require.NoError(t, send.Issue(op))
	p := recv.(*group).peers[0]
	queued := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.queued
	}
	require.Eventually(t, func() bool { return queued() > window-cost(maxPayload) }, 15*time.Second, time.Millisecond)
	assert.LessOrEqual(t, queued(), window)
	require.NoError(t, do(recv, recvOp(1, out, 0)))
	require.NoError(t, wait(t.Context(), send, 1))
	assert.Equal(t, in, out)
	assert.Zero(t, queued())
}

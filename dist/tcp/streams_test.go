package tcp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Messages in parts on several connections are the same messages, counted the same.
func TestStreams(t *testing.T) {
	t.Parallel()
	const n = 3
	for _, streams := range []int{1, 2, 5} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprint(streams, plain), func(t *testing.T) {
				w := &world{t: t, be: open(t, start(t, n, func(c *Config) { c.streams, c.Plain = streams, plain }), "world")}
				for _, count := range []int{0, 5, 20_001, 140_003, rounds(400_003, 1_000_003)} {
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
}

func TestPartBytes(t *testing.T) {
	for _, c := range []struct{ n, wires, want int }{{1, 4, maxPayload}, {smallMessage, 2, maxPayload}, {smallMessage + 1, 2, partUnit},
		{maxPayload, 2, maxPayload / 2}, {maxPayload, 3, 2 * partUnit}, {100 * maxPayload, 2, maxPayload}} {
		got := partBytes(c.n, c.wires)
		assert.Equal(t, c.want, got, "%v", c)
		require.Zero(t, got%partUnit)
	}
}

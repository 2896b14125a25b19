package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

// A step's parts, by hand: links of two, 1 ns a byte in a host and 4 between hosts, without tables of words.
func TestStep(t *testing.T) {
	const ns = Time(1000)
	s := Step{Hidden: 6, Seq: 8, Vocab: 3, Batch: 8, Micro: 2, TP: 2, PP: 2, DP: 2, Chunks: 1, Value: 2, Sum: 4, FLOPS: 1e9}
	_, err := two(0).Time(s)
	require.ErrorContains(t, err, "a step has at least one of all sizes")
	s.Layers = 4
	p, err := two(0).Time(s)
	require.NoError(t, err)
	work := 72.*8*8*4*36*(1+8./36) + 6*8*8*6*3
	assert.InEpsilon(t, work, s.Work(), 1e-12)
	assert.InDelta(t, work/8/1e9, p.Compute.Seconds(), 1e-11)
	gather := 20*ns + 2*8*6*2/2*ns // to the other rank of a layer: half of the activations
	assert.Equal(t, 2*4*gather*2*2, p.Tensor, "four all-reduces of two gathers, in two layers, two microbatches")
	assert.Equal(t, (p.Compute+p.Tensor)/2, p.Bubble, "one of two microbatches")
	assert.Equal(t, 2*(200*ns+4*2*8*6*2/2*ns), p.Stages, "to the next host and back")
	parameters := (12*4*36 + 3*6) / 4
	sum := 20*ns + Time(2*parameters)*ns
	assert.Equal(t, sum+sum/2, p.Data, "4 bytes of gradients and 2 of parameters, half of them to the other rank")
	assert.Equal(t, p.Compute+p.Tensor+p.Bubble+p.Stages+p.Data, p.Total())

	s.Again = true
	q, err := two(0).Time(s)
	require.NoError(t, err)
	assert.Equal(t, sum+2*(sum/2), q.Data)
	s.Overlap = true
	q, err = two(0).Time(s)
	require.NoError(t, err)
	assert.Zero(t, q.Data, "hidden behind computation")
	s.Recompute, s.Chunks = true, 2
	q, err = two(0).Time(s)
	require.NoError(t, err)
	assert.Equal(t, p.Tensor*3/2, q.Tensor, "forward runs again")
	assert.Equal(t, (q.Compute+q.Tensor)/4, q.Bubble)

	s.TP = 8
	_, err = two(0).Time(s)
	require.ErrorContains(t, err, "8 ranks are more than a host has")
	s.TP, s.Micro = 2, 3
	_, err = two(0).Time(s)
	require.ErrorContains(t, err, "8 sequences do not divide over 2 ranks in microbatches of 3")
}

// A long ring takes what all of its steps take, by the algorithm itself.
func TestRings(t *testing.T) {
	for _, name := range Names() {
		top, err := Open(name)
		require.NoError(t, err)
		for _, x := range []struct{ ranks, stride int }{{128, 1}, {128, 2}, {96, 8}} {
			ranks := make([]int, x.ranks)
			for i := range ranks {
				ranks[i] = i * x.stride
			}
			for _, part := range []int{8, 10_000, 1 << 20} {
				all, err := top.hops(ranks, part, x.ranks-1)
				require.NoError(t, err)
				if x.stride == 1 {
					assert.Equal(t, timeOf(t, top, backend.AllGather, "ring", x.ranks, x.ranks*part), all)
				}
				few, err := top.ring(ranks, x.ranks*part)
				require.NoError(t, err)
				assert.InEpsilon(t, all.Seconds(), few.Seconds(), 0.01, "%s: %d ranks, every %d, %d bytes", name, x.ranks, x.stride, part)
			}
		}
	}
}

package training

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/sim"
)

// A step's parts, by hand: links of two, 1 ns a byte in a host and 4 between hosts, without tables of words.
func TestStep(t *testing.T) {
	const ns = sim.Time(1000)
	s := Step{Hidden: 6, Seq: 8, Vocab: 3, Batch: 8, Micro: 2, TP: 2, PP: 2, DP: 2, Chunks: 1, ParamBytes: 2, GradBytes: 4, FLOPS: 1e9}
	_, err := s.On(on(two(0)))
	require.ErrorContains(t, err, "a step has at least one of all sizes")
	s.Layers = 4
	p, err := s.On(on(two(0)))
	require.NoError(t, err)
	work := 72.*8*8*4*36*(1+8./36) + 6*8*8*6*3
	assert.InEpsilon(t, work, s.Work(), 1e-12)
	assert.InDelta(t, work/8/1e9, p.Compute.Seconds(), 1e-11)
	gather := 20*ns + 2*8*6*2/2*ns // to the other rank of a layer: half of the activations
	assert.Equal(t, 2*4*gather*2*2, p.Tensor, "four all-reduces of two gathers, in two layers, two microbatches")
	assert.Equal(t, (p.Compute+p.Tensor)/2, p.Bubble, "one of two microbatches")
	assert.Equal(t, 2*(200*ns+4*2*8*6*2/2*ns), p.Stages, "to the next host and back")
	parameters := (12*4*36 + 3*6) / 4
	sum := 20*ns + sim.Time(2*parameters)*ns
	assert.Equal(t, sum+sum/2, p.Data, "4 bytes of gradients and 2 of parameters, half of them to the other rank")
	assert.Equal(t, p.Compute+p.Tensor+p.Bubble+p.Stages+p.Data, p.Total())

	s.Again = true
	q, err := s.On(on(two(0)))
	require.NoError(t, err)
	assert.Equal(t, sum+2*(sum/2), q.Data)
	s.Overlap = true
	q, err = s.On(on(two(0)))
	require.NoError(t, err)
	assert.Zero(t, q.Data, "hidden behind computation")
	s.Recompute, s.Chunks = true, 2
	q, err = s.On(on(two(0)))
	require.NoError(t, err)
	assert.Equal(t, p.Tensor*3/2, q.Tensor, "forward runs again")
	assert.Equal(t, (q.Compute+q.Tensor)/4, q.Bubble)

	even := q
	s.Layers = 7 // two stages of each rank: one has a layer less
	q, err = s.On(on(two(0)))
	require.NoError(t, err)
	s.Layers = 8
	all, err := s.On(on(two(0)))
	require.NoError(t, err)
	assert.Equal(t, all.Tensor, q.Tensor, "others wait for the rank with four layers")
	assert.Greater(t, q.Compute, even.Compute)
	assert.InEpsilon(t, all.Compute.Seconds(), q.Compute.Seconds(), 0.05, "and compute as long, but for the head")

	s.TP = 8
	_, err = s.On(on(two(0)))
	require.ErrorContains(t, err, "8 ranks are more than a host has")
	s.TP, s.Micro = 2, 3
	_, err = s.On(on(two(0)))
	require.ErrorContains(t, err, "8 sequences do not divide over 2 ranks in microbatches of 3")
}

// Experts, by hand: four of a layer, in place of its MLP and as large, two for a token, shared by the four ranks of a host.
func TestStepOfExperts(t *testing.T) {
	const ns = sim.Time(1000)
	s := Step{Layers: 3, Hidden: 6, Seq: 8, Vocab: 3, Batch: 16, Micro: 1, TP: 1, PP: 1, DP: 8, Chunks: 1, ParamBytes: 2, GradBytes: 4,
		FLOPS: 1e9, Experts: 4, Top: 2, EP: 4}
	p, err := s.On(on(two(0)))
	require.NoError(t, err)
	work := 24.*16*8*3*36*(1+2*2) + 12*16*8*8*3*6 + 6*16*8*3*6*4 + 6*16*8*6*3 // weights, attention, routers, table
	assert.InEpsilon(t, work, s.Work(), 1e-12)
	part := sim.Time(8*6*2*2/4) * ns // tokens of a microbatch, each to two experts, over four ranks
	swap := 3 * (20*ns + part)
	assert.Equal(t, 4*swap*3*2, p.Experts, "out and back, forward and backward, in three layers and two microbatches")
	sums := func(far, n, parameters int) sim.Time {
		all, err := on(two(0)).AllGather(far, n, 4*parameters)
		require.NoError(t, err)
		return all
	}
	shared, own := 3*(4*36+6*4)+3*6, 3*8*36
	data := sums(1, 8, shared) + sums(4, 2, own)
	assert.Equal(t, data+data/2, p.Data, "gradients of a quarter of the experts go over two hosts, the others over all ranks")
	assert.Equal(t, p.Compute+p.Experts+p.Data, p.Total())

	s.PP, s.DP, s.EP = 2, 4, 2 // pairs of ranks of a host
	s.Layers = 4
	p, err = s.On(on(two(0)))
	require.NoError(t, err)
	part = sim.Time(8*6*2*2/2) * ns
	assert.Equal(t, 4*(20*ns+part)*2*4, p.Experts)
	assert.Equal(t, (p.Compute+p.Experts)/4, p.Bubble)
	s.Recompute = true
	q, err := s.On(on(two(0)))
	require.NoError(t, err)
	assert.Equal(t, p.Experts*3/2, q.Experts, "forward runs again")

	s.TP, s.DP = 2, 2 // ranks 0 and 2 share experts, as do 1 and 3
	q, err = s.On(on(two(0)))
	require.NoError(t, err)
	assert.Equal(t, 6*(20*ns+part)*2*8, q.Experts)
	s.TP, s.PP, s.DP, s.EP, s.Experts = 1, 1, 16, 8, 8 // over two hosts: seven steps, and in each some go between hosts
	q, err = s.On(on(two(0)))
	require.NoError(t, err)
	assert.Greater(t, q.Experts, 6*4*(200+7*20)*ns)

	for _, wrong := range [][4]int{{4, 0, 2, 8}, {4, 5, 2, 8}, {4, 2, 3, 9}, {4, 2, 4, 2}, {0, 0, 2, 8}, {-1, 1, 1, 8}} {
		s.Experts, s.Top, s.EP, s.DP, s.Batch = wrong[0], wrong[1], wrong[2], wrong[3], wrong[3]
		_, err = s.On(on(two(0)))
		assert.EqualError(t, err, fmt.Sprintf("sim: %d experts, of which a token has %d, do not divide over %d of %d ranks",
			wrong[0], wrong[1], wrong[2], wrong[3]))
	}
}

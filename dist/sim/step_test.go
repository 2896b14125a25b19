package sim

import (
	"fmt"
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

// Experts, by hand: four of a layer, in place of its MLP and as large, two for a token, shared by the four ranks of a host.
func TestStepOfExperts(t *testing.T) {
	const ns = Time(1000)
	s := Step{Layers: 3, Hidden: 6, Seq: 8, Vocab: 3, Batch: 16, Micro: 1, TP: 1, PP: 1, DP: 8, Chunks: 1, Value: 2, Sum: 4, FLOPS: 1e9,
		Experts: 4, Top: 2, EP: 4}
	p, err := two(0).Time(s)
	require.NoError(t, err)
	work := 24.*16*8*3*36*(1+2*2) + 12*16*8*8*3*6 + 6*16*8*3*6*4 + 6*16*8*6*3 // weights, attention, routers, table
	assert.InEpsilon(t, work, s.Work(), 1e-12)
	part := Time(8*6*2*2/4) * ns // tokens of a microbatch, each to two experts, over four ranks
	swap := 3 * (20*ns + part)
	assert.Equal(t, 4*swap*3*2, p.Experts, "out and back, forward and backward, in three layers and two microbatches")
	sums := func(far, n, parameters int) Time {
		ranks := every(far, n)
		all, err := two(0).ring(ranks, 4*parameters)
		require.NoError(t, err)
		return all
	}
	shared, own := 3*(4*36+6*4)+3*6, 3*8*36
	data := sums(1, 8, shared) + sums(4, 2, own)
	assert.Equal(t, data+data/2, p.Data, "gradients of a quarter of the experts go over two hosts, the others over all ranks")
	assert.Equal(t, p.Compute+p.Experts+p.Data, p.Total())

	s.PP, s.DP, s.EP = 2, 4, 2 // pairs of ranks of a host
	s.Layers = 4
	p, err = two(0).Time(s)
	require.NoError(t, err)
	part = Time(8*6*2*2/2) * ns
	assert.Equal(t, 4*(20*ns+part)*2*4, p.Experts)
	assert.Equal(t, (p.Compute+p.Experts)/4, p.Bubble)
	s.Recompute = true
	q, err := two(0).Time(s)
	require.NoError(t, err)
	assert.Equal(t, p.Experts*3/2, q.Experts, "forward runs again")

	s.TP, s.DP = 2, 2 // ranks 0 and 2 share experts, as do 1 and 3
	q, err = two(0).Time(s)
	require.NoError(t, err)
	assert.Equal(t, 6*(20*ns+part)*2*8, q.Experts)
	s.TP, s.PP, s.DP, s.EP, s.Experts = 1, 1, 16, 8, 8 // over two hosts: seven steps, and in each some go between hosts
	q, err = two(0).Time(s)
	require.NoError(t, err)
	assert.Greater(t, q.Experts, 6*4*(200+7*20)*ns)

	for _, wrong := range [][4]int{{4, 0, 2, 8}, {4, 5, 2, 8}, {4, 2, 3, 9}, {4, 2, 4, 2}, {0, 0, 2, 8}, {-1, 1, 1, 8}} {
		s.Experts, s.Top, s.EP, s.DP, s.Batch = wrong[0], wrong[1], wrong[2], wrong[3], wrong[3]
		_, err = two(0).Time(s)
		assert.EqualError(t, err, fmt.Sprintf("sim: %d experts, of which a token has %d, do not divide over %d of %d ranks",
			wrong[0], wrong[1], wrong[2], wrong[3]))
	}
}

// A long ring takes what all of its steps take, by the algorithm itself where one rank of each host is in it.
func TestRings(t *testing.T) {
	for _, name := range Names() {
		top, err := Open(name)
		require.NoError(t, err)
		for _, x := range []struct{ ranks, stride int }{{8, 1}, {128, 1}, {128, 2}, {96, 8}} {
			ranks := every(x.stride, x.ranks)
			for _, part := range []int{8, 10_000, 1 << 20} {
				all, err := top.hops(ranks, part, x.ranks-1, 0)
				require.NoError(t, err)
				if x.ranks == 8 {
					assert.Equal(t, timeOf(t, top, backend.AllGather, "ring", x.ranks, x.ranks*part), all)
				}
				few, err := top.ring(ranks, x.ranks*part)
				require.NoError(t, err)
				assert.InEpsilon(t, all.Seconds(), few.Seconds(), 0.01, "%s: %d ranks, every %d, %d bytes", name, x.ranks, x.stride, part)
			}
		}
	}
}

// Four rings of two hosts of four use all cards: in each step a quarter of a part goes over each, at 4 ns a byte, while three quarters of
// parts go over a link inside, at 1 ns a byte. One rank of each host has one ring, and so has a host that lacks a rank.
func TestRingsOfAllCards(t *testing.T) {
	const ns, part = Time(1000), 4000
	ranks := upTo(8)
	x, err := two(0).hops(ranks, part, 7, 0)
	require.NoError(t, err)
	assert.InDelta(t, 7*(200+4*part/4)*1000, int64(x), 7*float64(part/4)*1000, "the four messages of a rank come one after the other")
	assert.Less(t, x, 7*(200+4*part)*ns/2, "all cards are in use")
	one, err := two(0).hops([]int{0, 4}, part, 1, 0)
	require.NoError(t, err)
	assert.Equal(t, (200+4*part)*ns, one)
	for want, ranks := range map[int][]int{4: {0, 1, 2, 3, 4, 5, 6, 7}, 2: {0, 2, 4, 6}, 1: {0, 1, 2, 4, 5}} {
		assert.Equal(t, want, two(0).together(ranks))
	}
	assert.Equal(t, 1, two(0).together([]int{0, 1, 2, 4, 5, 6, 7, 8}), "as many, but on other hosts")
	assert.Equal(t, 1, two(0).together([]int{1, 2, 3}))
	assert.Equal(t, []int{1, 2, 3, 0, 5, 6, 7, 4}, turned(upTo(8), 4, 1))

	swap, err := two(0).swap(upTo(8), 8*part)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, swap, 4*4*part*ns, "an all-to-all has a part for each of the four ranks of the other host")
	assert.LessOrEqual(t, swap, 7*(200+4*part)*ns)
}

// The fastest protocol is taken: its time of a call once, that of a message for each step, and a part of the bandwidth.
func TestProtocols(t *testing.T) {
	const ns = Time(1000)
	top := flat(3, 5)
	top.Protocols = []Protocol{{"fast", 100, 10, 0.5}, {"wide", 700, 20, 1}}
	for bytes, want := range map[int]Time{
		400:  100*ns + 2*3*(6+5+10+200)*ns,
		4000: 700*ns + 2*3*(6+5+20+1000)*ns,
	} {
		x, err := top.around(upTo(4), bytes, 2)
		require.NoError(t, err)
		assert.Equal(t, want, x)
	}
	x, err := top.around(upTo(1), 400, 2)
	require.NoError(t, err)
	assert.Zero(t, x)
	assert.Equal(t, 1., top.Links[0].GBs)
}

// A switch that adds up takes bytes·(1+1/n) in each direction, and the first chunks come one after the other.
func TestSumsOfSwitches(t *testing.T) {
	const ns = Time(1000)
	top := two(2)
	top.Links[0].Sums, top.Links[0].SumsNS = 1, 300
	few := 16 * 4 * 16 << 10 // 16 channels, four ranks, the smallest chunk
	for bytes, first := range map[int]int{4000: 4000, few + 4: few, 3 * few: few, 16 * few: 2 * few, 100 * few: 4 * few, 1000 * few: 8 * few} {
		want := 300*ns + Time(bytes*5/4)*ns + Time(first*3/4)*ns + Time(first)*ns
		assert.Equal(t, want, top.bySwitch(top.Links[0], 4, bytes), "%d bytes", bytes)
	}
	top.Links[0].Sums = 0.5
	assert.Equal(t, 300*ns+(2*5000+2*3000+4000)*ns, top.bySwitch(top.Links[0], 4, 4000), "at half of the bandwidth")
	top.Links[0].Sums = 1
	x, err := top.allReduce(upTo(4), few*1000)
	require.NoError(t, err)
	assert.Equal(t, top.bySwitch(top.Links[0], 4, few*1000), x)
	around, err := top.around(upTo(4), 8, 2)
	require.NoError(t, err)
	x, err = top.allReduce(upTo(4), 8)
	require.NoError(t, err)
	assert.Equal(t, around, x, "a ring is faster")
	x, err = top.allReduce(upTo(8), few)
	require.NoError(t, err)
	around, err = top.around(upTo(8), few, 2)
	require.NoError(t, err)
	assert.Equal(t, around, x, "no switch is above two hosts")
}

package sim

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// flat is ranks at one switch: a byte takes a nanosecond, and a message 2·ns + message.
func flat(ns, message float64) *Topology {
	return &Topology{Name: "flat", Host: maxRanks, MessageNS: message,
		Links: []Link{{Name: "wire", From: "rank", To: "switch", Ports: maxRanks, GBs: 1, NS: ns}}}
}

func timeOf(t *testing.T, top *Topology, kind backend.Kind, name string, ranks, bytes int) Time {
	r, err := top.Run(kind, name, ranks, bytes)
	require.NoError(t, err)
	assert.Equal(t, bytes, r.Bytes)
	return r.Time
}

// Messages of at most a chunk: the closed forms of the algorithms, to the picosecond. a is the latency, S the bytes, n the ranks.
func TestClosedForms(t *testing.T) {
	const ns = Time(1000)
	a := 2*3*ns + 5*ns
	lg := func(n int) Time { return Time(bits.Len(uint(n - 1))) }
	for _, n := range []int{2, 3, 4, 7, 8, 16, 61} {
		s := 840 * n
		S, N, part := Time(s)*ns, Time(n), Time(s/n)*ns
		power := n&(n-1) == 0
		for _, x := range []struct {
			kind backend.Kind
			algo string
			want Time
			only bool
		}{
			{backend.AllReduce, "ring", 2 * (N - 1) * (a + part), true},
			{backend.AllReduce, "direct", 2 * (N - 1) * (a + part), true},
			{backend.AllReduce, "halving-doubling", 2*lg(n)*a + 2*S*(N-1)/N, power},
			{backend.AllReduce, "linear", 2 * (a + (N-1)*S + (N-2)*5*ns), n == 2},
			{backend.AllReduce, "double-tree", 2*a + S, n == 2},
			{backend.AllGather, "ring", (N - 1) * (a + part), true},
			{backend.AllGather, "bruck", lg(n)*a + (N-1)*part, true},
			{backend.ReduceScatter, "ring", (N - 1) * (a + part), true},
			{backend.ReduceScatter, "bruck", lg(n)*a + (N-1)*part, true},
			{backend.AllToAll, "pairwise", (N - 1) * (a + part), true},
			{backend.AllToAll, "bruck", lg(n) * (a + S/2), power},
			{backend.Broadcast, "chain", lg(n)*a + (N-1)*(a+S), true},
			{backend.Broadcast, "binomial", lg(n)*a + lg(n)*(a+S), power},
			{backend.Reduce, "binomial", lg(n)*a + lg(n)*(a+S), power},
			{backend.Barrier, "dissemination", lg(n) * a, true},
		} {
			if !x.only {
				continue
			}
			bytes := s
			if x.kind == backend.Barrier {
				bytes = 0
			}
			assert.Equal(t, x.want, timeOf(t, flat(3, 5), x.kind, x.algo, n, bytes), "%v by %s, %d ranks", x.kind, x.algo, n)
		}
	}
}

// Double-tree on n = 2^h ranks, with bytes that take less than a latency: 2h+2 latencies, two more than levels up and down, because in the
// first tick and in the last one ranks wait in two turns. Two children share a rank's link at most levels: 4h−3 halves are on a link one
// after the other. Down, a rank begins two messages, too: 3h−1.
func TestDoubleTreeLatency(t *testing.T) {
	const ns, bytes = Time(1000), 420
	for h := 3; h <= 9; h++ {
		H, half := Time(h), bytes/2*ns
		want := (2*H+2)*2*50_000*ns + (3*H-1)*5*ns + (4*H-3)*half
		assert.Equal(t, want, timeOf(t, flat(50_000, 5), backend.AllReduce, "double-tree", 1<<h, bytes), "%d ranks", 1<<h)
	}
}

// Double-tree without latency: four chunks a tick if n is odd, and what it takes to fill and to drain the trees. Two ranks swap halves up
// and down. If n is even, all edges of the two roots have the same color. They are idle in the other, are early in the next turn, and then
// what they send is before what their peers wait for.
func TestDoubleTreeBandwidth(t *testing.T) {
	for _, x := range []struct{ n, each, fill int }{{2, 2, 0}, {3, 4, 1}, {4, 5, 1}, {5, 4, 9}, {6, 6, 1}, {7, 4, 14}, {9, 4, 13}} {
		for _, chunks := range []int{16, 64} {
			want := Time(x.each*chunks+x.fill) << 18 * 1000
			assert.Equal(t, want, timeOf(t, flat(0, 0), backend.AllReduce, "double-tree", x.n, chunks<<19), "%d ranks, %d chunks", x.n, chunks)
		}
	}
	for _, n := range []int{8, 33, 64, 256} {
		s := 64 << 20
		assert.InDelta(t, 1, timeOf(t, flat(0, 0), backend.AllReduce, "double-tree", n, s).Seconds()/(2*Time(s)*1000).Seconds(), 0.4, n)
	}
}

// A chain of k ranks carries N bytes in S segments over links of bandwidth B in N(S+k−2)/(SB), and what latency adds.
func TestPipelinedBroadcast(t *testing.T) {
	const ns = Time(1000)
	for _, k := range []int{2, 3, 8, 100} {
		for _, segments := range []int{1, 2, 7, 40} {
			n := segments << 18
			want := Time(n*(segments+k-2)/segments) * ns
			assert.Equal(t, want, timeOf(t, flat(0, 0), backend.Broadcast, "chain", k, n), "%d ranks, %d segments", k, segments)
			agree, hops := Time(bits.Len(uint(k-1))), Time(k-1)
			assert.Equal(t, want+(agree+hops)*40*ns, timeOf(t, flat(20, 0), backend.Broadcast, "chain", k, n))
		}
	}
}

// Without latency, large buffers take what their bytes take, however they are cut.
func TestLargeBuffers(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		s := 7 * n << 19
		S, N := Time(s)*1000, Time(n)
		assert.Equal(t, 2*S*(N-1)/N, timeOf(t, flat(0, 0), backend.AllReduce, "ring", n, s))
		if n == 8 {
			assert.Equal(t, 2*S*(N-1)/N, timeOf(t, flat(0, 0), backend.AllReduce, "halving-doubling", n, s))
		}
		assert.InEpsilon(t, (2 * S * (N - 1) / N).Seconds(), timeOf(t, flat(0, 0), backend.AllReduce, "direct", n, s).Seconds(), 0.2)
		assert.Equal(t, S*(N-1)/N, timeOf(t, flat(0, 0), backend.AllGather, "linear", n, s))
	}
}

// two is two levels: 4 ns and 1 ns a byte inside and between hosts of four.
func two(memory float64) *Topology {
	return &Topology{Name: "two", Host: 4, MemoryGBs: memory, Links: []Link{
		{Name: "inside", From: "rank", To: "host", Ports: 4, GBs: 1, NS: 10},
		{Name: "nic", From: "rank", To: "net", Ports: 1 << 10, GBs: 0.25, NS: 100}}}
}

// Hierarchical: 2(g−1) steps inside a host and 2(N−1) between hosts. Adding takes its time, and every link its bytes.
func TestHierarchical(t *testing.T) {
	const ns, g = Time(1000), 4
	for _, hosts := range []int{1, 2, 5} {
		s := 64 * g * hosts
		slice, piece := Time(s/g)*ns, Time(s/g/hosts)*ns
		inside, across := (20*ns)+slice, (200*ns)+4*piece
		want := 2*(g-1)*inside + Time(2*(hosts-1))*across
		assert.Equal(t, want, timeOf(t, two(0), backend.AllReduce, "hierarchical", g*hosts, s))
		adds := (g-1)*slice + Time(hosts-1)*piece
		assert.Equal(t, want+adds/2, timeOf(t, two(2), backend.AllReduce, "hierarchical", g*hosts, s), "adding")

		r, err := two(0).Run(backend.AllReduce, "hierarchical", g*hosts, s)
		require.NoError(t, err)
		in, out := 2*s*(g-1)/g, 2*(s/g)*(hosts-1)/hosts
		all := 2 * g * hosts // a message is on a link up and on one down
		assert.Equal(t, []Traffic{{"inside", all * in, in}, {"nic", all * out, out}}, r.Links)
		assert.Equal(t, g*hosts*out, r.Across)
	}
}

// Links to a switch that is above many ranks are shared: four ranks that send at once take four times as long as one.
func TestSharedLinks(t *testing.T) {
	top := &Topology{Name: "tree", Host: 4, Links: []Link{
		{Name: "leaf", From: "rank", To: "leaf", Ports: 4, GBs: 1, NS: 1},
		{Name: "trunk", From: "leaf", To: "spine", Ports: 2, GBs: 1, NS: 1}}}
	exchange := func(pairs int) Time {
		net, err := top.network(8, 0)
		require.NoError(t, err)
		g := net.group(upTo(8))
		for i := range pairs {
			g.ranks[i].start(func() error { return g.ranks[i].Send(4+i, 0, g.ranks[i].Memory(1000)) })
			g.ranks[4+i].start(func() error { return g.ranks[4+i].Recv(i, 0, g.ranks[i].Memory(1000)) })
		}
		require.NoError(t, net.run())
		return net.last
	}
	for pairs := 1; pairs <= 4; pairs++ {
		assert.Equal(t, Time(4+1000*pairs)*1000, exchange(pairs), "%d pairs", pairs)
	}
}

// The same simulation has the same result, to the picosecond.
func TestDeterministic(t *testing.T) {
	for _, name := range []string{"direct", "double-tree", "hierarchical"} {
		first, err := two(3).Run(backend.AllReduce, name, 20, 3_000_001)
		require.NoError(t, err)
		for range 3 {
			again, err := two(3).Run(backend.AllReduce, name, 20, 3_000_001)
			require.NoError(t, err)
			assert.Equal(t, first, again)
		}
	}
}

// All algorithms of all operations come to an end, also with one rank, without bytes, and with bytes that do not divide.
func TestEveryAlgorithm(t *testing.T) {
	for _, kind := range Kinds {
		for _, name := range namesOf(kind) {
			for _, ranks := range []int{1, 2, 3, 4, 8, 12} {
				for _, bytes := range []int{0, 1, 1000, 1 << 21} {
					r, err := two(1).Run(kind, name, ranks, bytes)
					require.NoError(t, err, "%v by %s, %d ranks, %d bytes", kind, name, ranks, bytes)
					assert.True(t, ranks == 1 || r.Time > 0, "%v by %s, %d ranks, %d bytes", kind, name, ranks, bytes)
				}
			}
		}
	}
}

// A rank that waits forever is named, and so are messages of different lengths.
func TestWrongPrograms(t *testing.T) {
	run := func(f func(g *group)) error {
		net, err := two(0).network(4, 0)
		require.NoError(t, err)
		f(net.group(upTo(4)))
		return net.run()
	}
	assert.EqualError(t, run(func(g *group) {
		for _, r := range g.ranks[:2] {
			r.start(func() error { return r.Recv(3, 0, nil) })
		}
	}), "sim: after 0s rank 0 waits for a message of rank 3, forever")
	give := func(g *group) { g.ranks[0].start(func() error { return g.ranks[0].Send(1, 0, g.ranks[0].Memory(5)) }) }
	take := func(g *group) { g.ranks[1].start(func() error { return g.ranks[1].Recv(0, 0, g.ranks[0].Memory(4)) }) }
	for _, order := range [][]func(g *group){{give, take}, {take, give}} {
		assert.EqualError(t, run(func(g *group) {
			for _, f := range order {
				f(g)
			}
		}), "sim: rank 0 sends 5 bytes, rank 1 wants 4")
	}
	assert.EqualError(t, run(func(g *group) {
		g.ranks[2].start(func() error {
			if !g.ranks[2].Await() {
				return errEnded
			}
			return nil
		})
	}), "sim: after 0s rank 2 waits for another thread, forever")
	assert.EqualError(t, run(func(g *group) {
		g.ranks[0].start(func() error { return g.ranks[0].Fork(func() error { return fmt.Errorf("boom") })() })
	}), "boom")
}

// Bruck's algorithm copies what it sends and what it receives, and that takes its time, too.
func TestCopies(t *testing.T) {
	const ns = Time(1000)
	top := flat(0, 0)
	top.MemoryGBs = 0.5
	for _, n := range []int{2, 8} {
		part := 100
		bytes := Time(part*(n-1)) * ns
		assert.Equal(t, bytes+2*2*bytes, timeOf(t, top, backend.AllGather, "bruck", n, n*part))
	}
}

// A sender that is always ahead takes no more memory, and its messages keep their order.
func TestMailStaysSmall(t *testing.T) {
	net, err := flat(0, 0).network(2, 0)
	require.NoError(t, err)
	r, from := net.group(upTo(2)).ranks[0], sender{rank: 1}
	r.put(from, message{bytes: 0})
	for i := range 10_000 {
		r.put(from, message{bytes: i + 1})
		require.True(t, r.receive(&thread{}, from, i))
		require.NoError(t, net.err, "message %d", i)
		require.LessOrEqual(t, cap(r.box.messages), 16)
	}
	for i := range 100 { // many senders, of which each has sent one
		r.put(sender{rank: 2 + i}, message{})
	}
	for i := range 100 {
		require.True(t, r.receive(&thread{}, sender{rank: 2 + i}, 0))
	}
	require.NoError(t, net.err)
	assert.Len(t, r.boxes, manySenders)
}

// namesOf returns the algorithms of a kind that differ over messages.
func namesOf(k backend.Kind) []string {
	return slices.DeleteFunc(algo.Names(k), func(name string) bool { return name == "direct" && k != backend.AllReduce })
}

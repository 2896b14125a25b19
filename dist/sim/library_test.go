package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// A long ring takes what all of its steps take, by the algorithm itself where one rank of each host is in it.
func TestRings(t *testing.T) {
	for i, name := range Names() {
		top, err := Open(name)
		require.NoError(t, err)
		for k, x := range []struct{ ranks, stride int }{{8, 1}, {128, 1}, {128, 2}, {96, 8}} {
			l := &Library{Topology: top}
			for j, part := range []int{8, 10_000, 1 << 20} {
				if k > 0 && (i+j+k)%3 > 0 && !reliability.Long(t) {
					continue
				}
				all, err := l.time(top, rotation{x.stride, x.ranks, part, x.ranks - 1, 0, -1})
				require.NoError(t, err)
				if x.ranks == 8 {
					assert.Equal(t, timeOf(t, top, backend.AllGather, "ring", x.ranks, x.ranks*part), all)
				}
				few, err := l.ring(top, rotation{far: x.stride, n: x.ranks, part: part}, x.ranks-1)
				require.NoError(t, err)
				assert.InEpsilon(t, all.Seconds(), few.Seconds(), 0.01, "%s: %d ranks, every %d, %d bytes", name, x.ranks, x.stride, part)
			}
		}
	}
}

func TestLongRings(t *testing.T) { reliability.AsLong(t, TestRings) }

// Where all hosts are connected in the same way, a ring of a few of them takes exactly as long as one of all, in all protocols. Where a
// switch is above some hosts, or messages share links between switches, all are needed.
func TestEnoughHosts(t *testing.T) {
	hgx, err := Open("hgx-h100")
	require.NoError(t, err)
	pairs := two(1)
	pairs.Links[0].Ports = 8 // a switch for two hosts
	single := two(1)         // hosts of four, and no links inside
	single.Links = single.Links[1:]
	shared := two(1)
	shared.Links = append(shared.Links, Link{Name: "trunk", From: "net", To: "spine", Ports: 9, GBs: 1, NS: 10})
	shared.Links[1].Ports = 20
	for _, x := range []struct {
		top          *Topology
		far, n, want int
	}{{single, 2, 33, 19}, {single, 2, 32, 20}, {single, 1, 145, 18},
		{hgx, 1, 160, 48}, {hgx, 2, 96, 40}, {hgx, 8, 40, 34}, {hgx, 3, 64, 64}, {hgx, 1, 48, 48}, {two(1), 1, 100, 24}, {two(3), 4, 33, 18},
		{pairs, 1, 100, 100}, {pairs, 4, 24, 24}, {shared, 1, 100, 100}, {shared, 4, 33, 33}} {
		l := &Library{Topology: x.top}
		few, err := l.enough(x.far, x.n)
		require.NoError(t, err)
		assert.Equal(t, x.want, few, "%s: %d ranks, every %d", x.top.Name, x.n, x.far)
		for _, part := range []int{1, 4321, 1 << 20} {
			all, err := l.time(x.top, rotation{x.far, x.n, part, 4 * l.Host, 0, -1})
			require.NoError(t, err)
			some, err := l.time(x.top, rotation{x.far, few, part, 4 * l.Host, 0, -1})
			require.NoError(t, err)
			assert.Equal(t, all, some, "%s: %d ranks, every %d, %d bytes", x.top.Name, x.n, x.far, part)
		}
	}
	l := &Library{Topology: hgx}
	for n := 64; n <= 2048; n *= 2 {
		_, err := l.AllGather(1, n, n<<21)
		require.NoError(t, err)
		assert.Len(t, l.times, 3*2*2, "three protocols, two sizes, two lengths: %d ranks need no others", n)
	}
}

// Four rings of two hosts of four use all cards: in each step a quarter of a part goes over each, at 4 ns a byte, while three quarters of
// parts go over a link inside, at 1 ns a byte. One rank of each host has one ring, and so has a host that lacks a rank.
func TestRingsOfAllCards(t *testing.T) {
	const ns, part = Time(1000), 4000
	l := &Library{Topology: two(0)}
	x, err := l.time(l.Topology, rotation{1, 8, part, 7, 0, -1})
	require.NoError(t, err)
	assert.InDelta(t, 7*(200+4*part/4)*1000, int64(x), 7*float64(part/4)*1000, "the four messages of a rank come one after the other")
	assert.Less(t, x, 7*(200+4*part)*ns/2, "all cards are in use")
	one, err := l.time(l.Topology, rotation{4, 2, part, 1, 0, -1})
	require.NoError(t, err)
	assert.Equal(t, (200+4*part)*ns, one)
	for _, x := range [][3]int{{1, 8, 4}, {2, 4, 2}, {2, 6, 2}, {1, 6, 1}, {1, 9, 1}, {3, 4, 1}, {3, 6, 1}, {4, 2, 1}, {8, 3, 1}, {1, 3, 1},
		{1, 4, 1}} {
		assert.Equal(t, x[2], two(0).together(x[0], x[1]), "%d apart, %d ranks", x[0], x[1])
	}
	assert.Equal(t, []int{1, 2, 3, 0, 5, 6, 7, 4}, turned(1, 8, 4, 1))
	assert.Equal(t, []int{2, 0, 6, 4}, turned(2, 4, 2, 1))

	swap, err := l.AllToAll(1, 8, 8*part)
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
		x, err := (&Library{Topology: top}).around(1, 4, bytes, 2)
		require.NoError(t, err)
		assert.Equal(t, want, x)
	}
	x, err := (&Library{Topology: top}).around(1, 1, 400, 2)
	require.NoError(t, err)
	assert.Zero(t, x)
	assert.Equal(t, 1., top.Links[0].GBs)
}

// A switch that adds up takes bytes·(1+1/n) in each direction, and the first chunks come one after the other.
func TestSumsOfSwitches(t *testing.T) {
	const ns = Time(1000)
	top := &Library{Topology: two(2)}
	top.Links[0].Sums, top.Links[0].SumsNS = 1, 300
	few := 16 * 4 * 16 << 10 // 16 channels, four ranks, the smallest chunk
	for bytes, first := range map[int]int{4000: 4000, few + 4: few, 3 * few: few, 16 * few: 2 * few, 100 * few: 4 * few, 1000 * few: 8 * few} {
		want := 300*ns + Time(bytes*5/4)*ns + Time(first*3/4)*ns + Time(first)*ns
		assert.Equal(t, want, top.bySwitch(top.Links[0], 4, bytes), "%d bytes", bytes)
	}
	top.Links[0].Sums = 0.5
	assert.Equal(t, 300*ns+(2*5000+2*3000+4000)*ns, top.bySwitch(top.Links[0], 4, 4000), "at half of the bandwidth")
	top.Links[0].Sums = 1
	x, err := top.AllReduce(1, 4, few*1000)
	require.NoError(t, err)
	assert.Equal(t, top.bySwitch(top.Links[0], 4, few*1000), x)
	around, err := top.around(1, 4, 8, 2)
	require.NoError(t, err)
	x, err = top.AllReduce(1, 4, 8)
	require.NoError(t, err)
	assert.Equal(t, around, x, "a ring is faster")
	x, err = top.AllReduce(1, 8, few)
	require.NoError(t, err)
	around, err = top.around(1, 8, few, 2)
	require.NoError(t, err)
	assert.Equal(t, around, x, "no switch is above two hosts")
}

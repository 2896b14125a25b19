package timeline

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/trace"
)

// clocked returns n collectives of ranks on hosts. off is the error of each clock, and gain how many ns it gains in each µs.
func clocked(n int, hosts []string, off, gain []int64) []Rank {
	rng := rand.New(rand.NewPCG(1, 2))
	lane := trace.Lane{Group: "world", ID: 5}
	all := make([]Rank, len(hosts))
	for r := range hosts {
		lane.Ranks = append(lane.Ranks, r)
	}
	for r, host := range hosts {
		all[r] = Rank{Rank: r, Host: host, Lanes: []trace.Lane{lane}}
	}
	for i := range n {
		var start []int64
		for range hosts {
			start = append(start, int64(1000*i)+rng.Int64N(100))
		}
		for r := range hosts {
			clock := func(at int64) int64 { return at + (off[r]+gain[r]*at)/µs }
			s := span(trace.Comm, "allreduce", clock(start[r]), clock(slices.Max(start)+10+rng.Int64N(20)), 8)
			s.Lane, s.Seq = 1, uint64(i)
			all[r].Spans = append(all[r].Spans, s)
		}
	}
	return all
}

// agree requires that no collective ends on a rank before another rank has begun it, within slack.
func agree(t *testing.T, ranks []Rank, slack time.Duration) {
	t.Helper()
	for _, m := range collectives(ranks) {
		for _, a := range m.parts {
			for _, b := range m.parts {
				require.LessOrEqual(t, a.start, b.end+int64(slack))
			}
		}
	}
}

func TestClocks(t *testing.T) {
	same := clocked(20, []string{"a", "a"}, []int64{0, 0}, []int64{0, 0})
	require.Equal(t, []Clock{{Rank: 0}, {Rank: 1}}, Align(same), "one host has one clock")

	const off = 3 * time.Second
	apart := func() []Rank {
		return clocked(50, []string{"a", "a", "b", "b"}, []int64{0, 0, int64(off), int64(off)}, make([]int64, 4))
	}
	ranks := apart()
	got := Align(ranks)
	require.Equal(t, Clock{Rank: 1}, got[1])
	require.Equal(t, got[2].Add, got[3].Add, "one host has one clock")
	require.InDelta(t, -off, got[2].Add, float64(got[2].Within))
	require.Less(t, got[2].Within, 100*time.Microsecond)
	agree(t, ranks, 0)
	for i, s := range apart()[3].Spans {
		require.Equal(t, s.End-s.Start, ranks[3].Spans[i].End-ranks[3].Spans[i].Start, "a span keeps its length")
	}

	alone := apart()
	for i := range alone {
		alone[i].Host = string(rune('a' + i))
	}
	for i, c := range Align(alone)[1:] {
		require.InDelta(t, -[]time.Duration{0, off, off}[i], c.Add, float64(c.Within))
		require.GreaterOrEqual(t, c.Within, got[2].Within*time.Duration(min(i, 1)), "two ranks know more than one")
	}
	agree(t, alone, 0)

	liars := apart() // different hosts with the same name
	for i := range liars {
		liars[i].Host = "a"
	}
	require.InDelta(t, -off, Align(liars)[3].Add, float64(100*time.Microsecond))
	agree(t, liars, 0)
}

// For clocks that drift, no single offset is right. The error that is reported is as large as the bounds contradict each other.
func TestDrift(t *testing.T) {
	ranks := clocked(50, []string{"a", "b"}, []int64{0, 0}, []int64{0, 10}) // 1%
	got := Align(ranks)[1]
	require.InDelta(t, -250*time.Microsecond, got.Add, float64(50*time.Microsecond))
	require.Greater(t, got.Within, 150*time.Microsecond)
	agree(t, ranks, got.Within)
}

// Ranks without a common operation keep their clocks. Ranks that have one with them move together.
func TestNeverMet(t *testing.T) {
	ranks := clocked(5, []string{"a", "b"}, []int64{0, 2_000_000}, []int64{0, 0})
	other := clocked(5, []string{"c", "d"}, []int64{0, 5_000_000}, []int64{0, 0})
	for i := range other {
		other[i].Rank, other[i].Lanes[0] = 2+i, trace.Lane{Group: "other", ID: 6, Ranks: []int{2, 3}}
	}
	ranks = append(ranks, other...)
	got := Align(ranks)
	require.Equal(t, []bool{true, true, false, false}, []bool{got[0].Within >= 0, got[1].Within >= 0, got[2].Within >= 0, got[3].Within >= 0})
	require.InDelta(t, -5*time.Millisecond, got[3].Add, float64(100*time.Microsecond))
	agree(t, ranks, 0)
	var b strings.Builder
	Summarize(&b, ranks, got)
	for _, want := range []string{"rank 0: the same clock\n", "rank 1: -1.99", "rank 3: -4.99",
		"rank 2: no communication in both directions joins it to the first rank: how far"} {
		require.Contains(t, b.String(), want)
	}
}

// If a rank seems late by less than the possible error of the clocks, it was not late.
func TestLateWithinClocks(t *testing.T) {
	m := &collective{parts: []part{{at: 0, start: 100}, {at: 1, start: 150}, {at: 2, start: 90}}}
	for within, want := range map[time.Duration]int{0: 1, 49: 1, 50: -1} {
		at, by := m.latest([]Clock{{}, {Rank: 1, Within: within}, {Rank: 2}})
		require.Equal(t, want, at, within)
		require.Equal(t, at == 1, by == 50)
	}
	at, _ := m.latest([]Clock{{Within: 50}, {Rank: 1, Within: 50}, {Rank: 2, Within: 50}})
	require.Equal(t, 1, at, "one clock")
}

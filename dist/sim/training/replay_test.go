package training

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/internal/timeline"
	"github.com/ringo-ml/ringo/internal/trace"
)

// acts is a program of one step: pairs of an act and the nanoseconds of computation before it.
func acts(list ...timeline.Act) []timeline.Act {
	return append(append([]timeline.Act{{What: timeline.Begin}}, list...), timeline.Act{What: timeline.End})
}

func starts(ns int64, of int) timeline.Act {
	return timeline.Act{Compute: ns, What: timeline.Issue, Of: of}
}
func needs(ns int64, of int) timeline.Act {
	return timeline.Act{Compute: ns, What: timeline.Await, Of: of}
}

// A step in virtual time, by hand: an all-reduce of 2,000 bytes takes both ranks 2·(11 + 1,000) ns, and a barrier 11.
func TestReplay(t *testing.T) {
	const ns = sim.Time(1000)
	lane := &trace.Lane{Group: "world", ID: 7, Ranks: []int{0, 1}}
	other := &trace.Lane{Group: "other", ID: 8, Ranks: []int{1, 0}}
	sum, barrier := timeOf(t, flat(3, 5), backend.AllReduce, "", 2, 2000), timeOf(t, flat(3, 5), backend.Barrier, "", 2, 0)
	require.Equal(t, 2*(11+1000)*ns, sum)
	rec := &timeline.Recording{Steps: []int64{40}, Exchanges: []timeline.Exchange{
		{Kind: "allreduce", Lane: lane, Seq: 3, Bytes: 2000}, {Kind: "barrier", Lane: lane, Seq: 4}}}
	replay := func(a, b []timeline.Act) *Replayed {
		rec.Programs = [][]timeline.Act{acts(a...), acts(b...)}
		r, err := Replay(flat(3, 5), rec)
		require.NoError(t, err)
		assert.Equal(t, [2]int64{40, 1}, [2]int64{r.Step, int64(r.Steps)})
		return r
	}
	// Rank 1 begins 500 ns later. Rank 0 computes for 100 ns meanwhile, and waits for rank 1 and for the all-reduce.
	r := replay([]timeline.Act{starts(0, 0), needs(100, 0)}, []timeline.Act{starts(500, 0), needs(0, 0)})
	assert.Equal(t, 500*ns+sum, r.Time)
	// Its part came while rank 1 still sent, so rank 1 begins the second half as soon as the last byte of the first one is on the link.
	assert.Equal(t, (400*ns+sum-6*ns+sum)/2, r.Exposed)
	assert.Equal(t, []OpTotal{{"allreduce", "world", 1, 2000, sum, 400*ns + 2*sum - 6*ns}}, withoutCalls(r.Ops, "barrier"))
	// Computation hides it, and what nobody waits for takes no step longer.
	r = replay([]timeline.Act{starts(0, 0), needs(9000, 0), needs(0, 0)}, []timeline.Act{starts(0, 0)})
	assert.Equal(t, 9000*ns, r.Time)
	assert.Zero(t, r.Exposed)
	// Operations of a group are done in order: the barrier comes after the all-reduce, on both ranks.
	both := []timeline.Act{starts(0, 0), starts(10, 1), needs(0, 1), needs(0, 0)}
	r = replay(both, both)
	assert.Equal(t, sum+barrier, r.Time)
	assert.InDelta(t, int64(sum+barrier-10*ns), int64(r.Exposed), 3000, "the last message of a barrier is that to rank 1")
	// Another group has a queue of its own, and its ranks in its own order. A message is there when its bytes are.
	rec.Exchanges[1] = timeline.Exchange{Kind: "send", Lane: other, Seq: 1, Bytes: 500}
	r = replay(both, []timeline.Act{starts(0, 1), starts(5000, 0), needs(0, 0), needs(0, 1)})
	assert.Equal(t, 5000*ns+sum, r.Time)
	assert.Equal(t, []OpTotal{{"send", "other", 1, 500, 501 * ns, 501 * ns}}, withoutCalls(r.Ops, "allreduce"))
}

// An all-reduce that is needed as soon as it was over takes longer on a slower network, and one that is needed at the end is hidden.
func TestReplayOfSoonAndLate(t *testing.T) {
	var ranks []timeline.Rank
	for i := range 2 {
		ranks = append(ranks, timeline.Rank{Rank: i, Lanes: []trace.Lane{{Group: "g", ID: 3, Ranks: []int{0, 1}}}, Spans: []trace.Span{
			{Name: trace.StepName, Track: trace.Steps, End: 9000, Arg: 5},
			{Name: "allreduce", Track: trace.Comm, Lane: 1, Seq: 1, Start: 100, End: 300, Arg: 2000},
		}})
	}
	sum := timeOf(t, flat(3, 5), backend.AllReduce, "", 2, 2000)
	for soon, want := range map[bool]sim.Time{false: 9000 * 1000, true: 8800*1000 + sum} {
		rec, err := timeline.Record(ranks, soon)
		require.NoError(t, err)
		r, err := Replay(flat(3, 5), rec)
		require.NoError(t, err)
		assert.Equal(t, want, r.Time)
	}
}

// As many operations as engines take are in flight. One more is issued when the first of them is over, and that is exposed.
func TestReplayOfManyOperations(t *testing.T) {
	lane := &trace.Lane{Group: "world", ID: 7, Ranks: []int{0, 1}}
	rec := &timeline.Recording{Steps: []int64{1}}
	var list []timeline.Act
	for i := range backend.Depth + 6 {
		rec.Exchanges = append(rec.Exchanges, timeline.Exchange{Kind: "allreduce", Lane: lane, Seq: uint64(i + 1), Bytes: 2000})
		list = append(list, starts(0, i))
	}
	rec.Programs = [][]timeline.Act{acts(list...), acts(list...)}
	r, err := Replay(flat(3, 5), rec)
	require.NoError(t, err)
	sum := timeOf(t, flat(3, 5), backend.AllReduce, "", 2, 2000)
	assert.Equal(t, [2]sim.Time{6 * sum, 6 * sum}, [2]sim.Time{r.Time, r.Exposed})
	const n = backend.Depth + 6
	assert.Equal(t, []OpTotal{{"allreduce", "world", n, 2000 * n, n * sum, 12 * sum}}, r.Ops)
}

// The functions of operations run ahead of the clock, so several of a rank run at a time: each has buffers of its own.
func TestReplayOfLargeOperations(t *testing.T) {
	rec := &timeline.Recording{Steps: []int64{1}, Programs: make([][]timeline.Act, 64)}
	lane, want := &trace.Lane{Group: "world", ID: 7}, sim.Time(0)
	for i, bytes := range []int{9 << 20, 27 << 19, 1 << 20, 3 << 20, 9 << 18} {
		rec.Exchanges = append(rec.Exchanges, timeline.Exchange{Kind: "allreduce", Lane: lane, Seq: uint64(i + 1), Bytes: bytes})
		want += timeOf(t, two(1), backend.AllReduce, "", len(rec.Programs), bytes)
	}
	for r := range rec.Programs {
		lane.Ranks = append(lane.Ranks, r)
		rec.Programs[r] = acts(starts(0, 0), starts(0, 1), starts(0, 2), starts(0, 3), starts(0, 4), needs(0, 4))
	}
	r, err := Replay(two(1), rec)
	require.NoError(t, err)
	assert.InEpsilon(t, want.Seconds(), r.Time.Seconds(), 0.02, "one after the other")
}

// withoutCalls returns what is left without an operation.
func withoutCalls(all []OpTotal, op string) (out []OpTotal) {
	for _, x := range all {
		if x.Op != op {
			out = append(out, x)
		}
	}
	return out
}

// All operations of a recording can be done again, from any root and in uneven parts, by ranks whose programs differ.
func TestReplayOfEveryOperation(t *testing.T) {
	rec := &timeline.Recording{Steps: []int64{1}, Programs: make([][]timeline.Act, 4)}
	for i, lane := range []*trace.Lane{{Group: "all", ID: 1, Ranks: []int{2, 0, 3, 1}}, {Group: "some", ID: 2, Ranks: []int{3, 1, 0}}} {
		for k, kind := range []string{"broadcast", "reduce", "allreduce", "gather", "allgather", "scatter", "reducescatter", "alltoall",
			"barrier", "allgatherv", "reducescatterv", "alltoallv", "monitoredbarrier"} {
			n := len(rec.Exchanges)
			rec.Exchanges = append(rec.Exchanges, timeline.Exchange{Kind: kind, Lane: lane, Seq: uint64(k + 1), Root: 1 + i, Bytes: 1001})
			for _, r := range lane.Ranks {
				rec.Programs[r] = append(rec.Programs[r], starts(int64(10*r), n))
			}
		}
	}
	for r, p := range rec.Programs {
		for k := len(p) - 1; k >= 0; k -= 1 + r%2 { // some wait for each, and some for every second one
			p = append(p, needs(int64(r), p[k].Of))
		}
		rec.Programs[r] = acts(p...)
	}
	r, err := Replay(two(1), rec)
	require.NoError(t, err)
	require.Len(t, r.Ops, 26)
	for _, x := range r.Ops {
		assert.Equal(t, [2]int{1, 1001}, [2]int{x.Calls, x.Bytes}, x.Op)
		assert.Positive(t, x.Flight, x.Op)
	}
	again, err := Replay(two(1), rec)
	require.NoError(t, err)
	assert.Equal(t, r, again)

	_, err = Replay(&sim.Topology{Name: "x", Host: 3, Links: two(1).Links}, rec)
	require.ErrorContains(t, err, "4 ranks do not fit")
	for _, kind := range []string{"recv", "boom", ""} {
		rec.Exchanges[3].Kind = kind
		_, err = Replay(two(1), rec)
		require.ErrorContains(t, err, `of group "all" cannot be replayed`)
	}
}

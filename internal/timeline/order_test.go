package timeline_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/timeline"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/tensor"
)

// seen is a collective or message: the span of each rank.
type seen struct {
	kind  string
	ranks []int // ranks of its lane
	spans map[int]trace.Span
}

// exchanged returns what the ranks did together.
func exchanged(ranks []timeline.Rank) map[string]*seen {
	all := map[string]*seen{}
	for _, r := range ranks {
		for _, s := range r.Spans {
			if s.Track != trace.Comm || s.Lane == 0 {
				continue
			}
			l := r.Lanes[s.Lane-1]
			key := fmt.Sprint(l.ID, "/", s.Seq)
			if all[key] == nil {
				kind, _, _ := strings.Cut(s.Name, ":")
				all[key] = &seen{kind, l.Ranks, map[int]trace.Span{}}
			}
			all[key].spans[r.Rank] = s
		}
	}
	return all
}

// disorder counts the pairs in which the second span ends before the first begins, although it waited for it, and all such pairs, by
// kind.
func disorder(ranks []timeline.Rank) (wrong int, pairs map[string]int) {
	pairs = map[string]int{}
	for _, x := range exchanged(ranks) {
		for from, a := range x.spans {
			for to, b := range x.spans {
				waits := false
				switch x.kind {
				case "allreduce", "allgather", "alltoall", "reducescatter", "barrier":
					waits = true
				case "broadcast", "scatter":
					waits = from == int(a.Root)
				case "reduce", "gather":
					waits = to == int(a.Root)
				case "send", "recv":
					waits = from == x.ranks[0]
				}
				if waits && from != to {
					pairs[x.kind]++
					if b.End < a.Start {
						wrong++
					}
				}
			}
		}
	}
	return wrong, pairs
}

// fastest is the time of the fastest all-reduce over two sets of ranks, added over both sets: the round trip on which the estimate of the
// difference of their clocks is based.
func fastest(ranks []timeline.Rank, one, other []int) time.Duration {
	least := int64(math.MaxInt64)
	for _, x := range exchanged(ranks) {
		for _, a := range one {
			for _, b := range other {
				p, q := x.spans[a], x.spans[b]
				if x.kind == "allreduce" && p.Start != 0 && q.Start != 0 {
					least = min(least, p.End-p.Start+q.End-q.Start)
				}
			}
		}
	}
	return time.Duration(least)
}

// shift moves the clocks of ranks forward.
func shift(ranks []timeline.Rank, by func(i int) time.Duration) {
	for i := range ranks {
		for k := range ranks[i].Spans {
			ranks[i].Spans[k].Start += int64(by(i))
			ranks[i].Spans[k].End += int64(by(i))
		}
	}
}

// everything does collectives and messages of every kind that give bounds of clocks.
func everything(r *dist.Rank, steps int) error {
	g, n := r.World, r.World.Size()
	x, y := tensor.New(r.Device, tensor.Float32, n), tensor.New(r.Device, tensor.Float32, 1)
	for step := range steps {
		var work []dist.Work
		message := func(from, to int) {
			if g.Rank() == from {
				work = append(work, g.Send(y, to, step))
			}
			if g.Rank() == to {
				work = append(work, g.Recv(y, from, step))
			}
			for _, w := range work {
				if err := w.Wait(); err != nil {
					return
				}
			}
		}
		for rank := range n - 1 { // through a pipeline, and back
			message(rank, rank+1)
		}
		for rank := n - 1; rank > 0; rank-- {
			message(rank, rank-1)
		}
		root := step % n
		work = append(work, g.AllReduce(x, dist.Sum), g.Broadcast(x, root), g.Reduce(x, dist.Sum, root), g.AllGather(x, y),
			g.ReduceScatter(y, x, dist.Sum), g.Barrier())
		for _, w := range work {
			if err := w.Wait(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Four ranks on three hosts write a file each; their clocks differ by seconds and hours. In the joined file no receive ends before its
// send begins, and every clock is right within the round trip of the fastest collective.
func TestHostsApart(t *testing.T) {
	const ranks = 4
	hosts, wall := []string{"a", "b", "c", "c"}, []time.Duration{0, -7_300_000_001, time.Hour, time.Hour}
	files := make([]bytes.Buffer, ranks)
	cfg := dist.Config{Ranks: ranks, Threads: 1, Trace: 2000, Log: io.Discard}
	require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		if err := everything(r, 10); err != nil {
			return err
		}
		return r.WriteOwnTrace(&files[r.World.Rank()])
	}))
	var read [][]timeline.Rank
	for i := range files {
		one, err := timeline.Read(&files[i])
		require.NoError(t, err)
		one[0].Host = hosts[i]
		read = append(read, one)
	}
	all, err := timeline.Join(read...)
	require.NoError(t, err)
	wrong, pairs := disorder(all)
	require.Zero(t, wrong)
	require.Equal(t, map[string]int{"allreduce": 120, "allgather": 120, "reducescatter": 120, "barrier": 120, "broadcast": 30, "reduce": 30,
		"send": 30, "recv": 30}, pairs)

	shift(all, func(i int) time.Duration { return wall[i] })
	wrong, _ = disorder(all)
	require.NotZero(t, wrong)
	clocks := timeline.Align(all)
	wrong, _ = disorder(all)
	require.Zero(t, wrong)
	for i, c := range clocks {
		require.LessOrEqual(t, (c.Add + wall[i]).Abs(), c.Within, c)
	}
	require.LessOrEqual(t, clocks[1].Within, fastest(all, []int{0}, []int{1}))
	require.LessOrEqual(t, clocks[3].Within, fastest(all, []int{0}, []int{2, 3}))
	require.Equal(t, clocks[2].Add, clocks[3].Add)
}

// madeUp returns exchanges of ranks, each on its own host. Some ranks are always late, and messages take long in one direction.
func madeUp(rng *rand.Rand, n int, oneWay bool) []timeline.Rank {
	ranks := make([]timeline.Rank, n)
	var members []int
	for i := range ranks {
		members = append(members, i)
		ranks[i] = timeline.Rank{Rank: i, Host: fmt.Sprint(i)}
	}
	late := rng.IntN(n)
	now := int64(time.Hour)
	add := func(rank int, name string, lane trace.Lane, seq int, root int, start, end int64) {
		r := &ranks[rank]
		r.Lanes = append(r.Lanes, lane)
		s := trace.Span{Name: name, Track: trace.Comm, Root: int32(root), Lane: int32(len(r.Lanes)), Seq: uint64(seq), Start: start, End: end}
		r.Spans = append(r.Spans, s)
	}
	for seq := range 20 {
		now += rng.Int64N(1e6)
		if a, b := rng.IntN(n), rng.IntN(n); a != b && (a < b || !oneWay) {
			add(a, "send", trace.Lane{ID: uint64(10 + a*n + b), Ranks: []int{a, b}}, seq, 0, now, now+rng.Int64N(1e5))
			add(b, "recv", trace.Lane{ID: uint64(10 + a*n + b), Ranks: []int{a, b}}, seq, 0, now-rng.Int64N(1e6), now+1e3+rng.Int64N(1e4))
		}
		for kind, name := range []string{"broadcast:chain", "reduce:chain"} { // the members do not wait for each other
			root, first := kind*(n-1), now
			for r := range n {
				start := now + rng.Int64N(1e6)
				first = max(first, start)
				switch {
				case r != root:
					add(r, name, trace.Lane{ID: uint64(2 + kind), Ranks: members}, seq, root, start, max(start, now+2e3)+rng.Int64N(1e5))
				case kind == 0:
					add(r, name, trace.Lane{ID: 2, Ranks: members}, seq, root, now, now+1e3)
				}
			}
			if kind == 1 {
				add(root, name, trace.Lane{ID: 3, Ranks: members}, seq, root, now-rng.Int64N(1e6), first+rng.Int64N(1e5))
			}
			now = first + 2e6
		}
		if oneWay {
			continue
		}
		some := slices.DeleteFunc(slices.Clone(members), func(int) bool { return rng.IntN(3) == 0 })
		begin := make([]int64, n)
		for _, r := range some {
			begin[r] = now + rng.Int64N(1e5)
			if r == late {
				begin[r] += 1e7
			}
		}
		last := slices.Max(begin)
		for _, r := range some {
			add(r, "allreduce:ring", trace.Lane{ID: 1, Ranks: members}, seq, 0, begin[r], last+rng.Int64N(1e5))
		}
		now = max(now, last) + 1e6
	}
	return ranks
}

// Clocks of many made-up jobs: an operation ends after what it waits for has begun, between all hosts, and the error of each clock is as
// small as reported.
func TestOrderHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	known := 0
	for job := range 300 {
		n := 2 + rng.IntN(5)
		ranks := madeUp(rng, n, job%3 == 0)
		wrong, _ := disorder(ranks)
		require.Zero(t, wrong, job)
		off := make([]time.Duration, n)
		for i := range off[1:] {
			off[i+1] = time.Duration(rng.Int64N(2e10) - 1e10)
		}
		shift(ranks, func(i int) time.Duration { return off[i] })
		clocks := timeline.Align(ranks)
		wrong, _ = disorder(ranks)
		require.Zero(t, wrong, "job %d: %v", job, clocks)
		for i, c := range clocks {
			if c.Within >= 0 {
				known++
				require.LessOrEqual(t, (c.Add + off[i]).Abs(), c.Within, "job %d: %v", job, c)
			}
		}
	}
	require.Greater(t, known, 700)
}

// Messages in one direction bound a clock from one side. It moves by the least that puts them in order, and its error is unknown.
func TestOneDirection(t *testing.T) {
	for _, behind := range []time.Duration{2 * time.Second, -2 * time.Second} {
		ranks := madeUp(rand.New(rand.NewPCG(5, 6)), 2, true)
		shift(ranks[1:], func(int) time.Duration { return -behind })
		c := timeline.Align(ranks)[1]
		wrong, _ := disorder(ranks)
		require.Zero(t, wrong)
		require.Negative(t, c.Within)
		if behind < 0 {
			require.Equal(t, "rank 1: no communication in both directions joins it to the first rank: how far its clock is off is not known",
				c.String())
			continue
		}
		require.InDelta(t, behind, c.Add, float64(20*time.Microsecond))
		require.Regexp(t, `^rank 1: \+1999\.9\d\d ms, so that nothing arrives before it is sent; no communication in both directions`, c.String())
	}
}

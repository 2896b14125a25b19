package timeline_test

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/timeline"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	steps = 12
	late  = 2 // the late rank
)

// late3 has three ranks. One of them begins every all-reduce after the others.
func late3(t *testing.T, w io.Writer) {
	begun := make(chan int, 3)
	cfg := dist.Config{Ranks: 3, Threads: 1, Trace: 1000, Log: io.Discard}
	require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 1000)
		for step := range steps {
			r.Trace.Step(step)
			r.Trace.Phase("forward")
			if r.World.Rank() == late {
				<-begun
				<-begun
			}
			sum := r.World.AllReduce(x, dist.Sum)
			if r.World.Rank() != late {
				begun <- step
			}
			r.Trace.Phase("backward")
			if err := sum.Wait(); err != nil {
				return err
			}
			r.Trace.EndStep()
		}
		if r.World.Rank() != 0 {
			return r.WriteTrace(nil)
		}
		return r.WriteTrace(w)
	}))
}

// The summary always names the rank that is late on purpose, and the file has what the ranks did.
func TestLateRank(t *testing.T) {
	var file bytes.Buffer
	late3(t, &file)
	timeline.CheckEvents(t, file.Bytes())
	ranks, err := timeline.Read(&file)
	require.NoError(t, err)
	require.Len(t, ranks, 3)
	for _, r := range ranks {
		n := map[trace.Track]int{}
		for _, s := range r.Spans {
			n[s.Track]++
			if s.Track == trace.Comm {
				require.Equal(t, "allreduce:direct", s.Name)
				require.EqualValues(t, 4000, s.Arg)
				require.Equal(t, []int{0, 1, 2}, r.Lanes[s.Lane-1].Ranks)
			}
		}
		require.Equal(t, [2]int{3 * steps, steps}, [2]int{n[trace.Steps], n[trace.Comm]})
	}
	var b strings.Builder
	timeline.Summarize(&b, ranks, timeline.Align(ranks))
	_, table, found := strings.Cut(b.String(), "Who came last")
	require.True(t, found, b.String())
	require.Regexp(t, regexp.MustCompile(`(?m)^ +2 +12 +12 +100.0% .*allreduce:direct of world$`), table)
	require.Regexp(t, regexp.MustCompile(`(?m)^ +0 +0 +12 +0.0%$`), table)
}

// The root of a collective is named by its world rank, and so are the two ranks of a message.
func TestPeers(t *testing.T) {
	cfg := dist.Config{Ranks: 3, Threads: 1, Trace: 100, Log: io.Discard}
	require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		rank := r.World.Rank()
		g, err := r.World.Split(min(rank, 1), rank) // rank 0, and the others
		if err != nil || rank == 0 {
			return err
		}
		x := tensor.New(r.Device, tensor.Float32, 2)
		if err := g.Broadcast(x, 1).Wait(); err != nil {
			return err
		}
		message := g.Recv
		if rank == 1 {
			message = g.Send
		}
		if err := message(x, 2-rank, 0).Wait(); err != nil {
			return err
		}
		spans, seen := timeline.Of(rank, "", r.Trace), 0
		for _, s := range spans.Spans {
			if s.Track != trace.Comm || s.Lane == 0 || s.Arg != 8 {
				continue
			}
			seen++
			require.Equal(t, []int{1, 2}, spans.Lanes[s.Lane-1].Ranks, s.Name)
			if strings.HasPrefix(s.Name, "broadcast") {
				require.EqualValues(t, 2, s.Root)
			}
		}
		require.Equal(t, 2, seen)
		return nil
	}))
}

// A clock that is off by an hour is corrected, as exactly as reported.
func TestRealClock(t *testing.T) {
	var file bytes.Buffer
	late3(t, &file)
	ranks, err := timeline.Read(&file)
	require.NoError(t, err)
	ranks[1].Host = "elsewhere"
	for i := range ranks[1].Spans {
		ranks[1].Spans[i].Start += int64(time.Hour)
		ranks[1].Spans[i].End += int64(time.Hour)
	}
	got := timeline.Align(ranks)
	require.InDelta(t, -time.Hour, got[1].Add, float64(got[1].Within))
	require.Less(t, got[1].Within, time.Minute)
	require.Zero(t, got[2].Add)
}

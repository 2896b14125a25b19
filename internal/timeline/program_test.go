package timeline

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/trace"
)

// A wait is no computation, also where two goroutines wait at once, and an act belongs to the step that is open.
func TestRecord(t *testing.T) {
	ranks := madeUp()
	for i := range ranks {
		ranks[i].Dropped = 0
	}
	for _, soon := range []bool{false, true} {
		rec, err := Record(ranks, soon)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 1}, rec.Steps)
		assert.Equal(t, 1, rec.LeftOut, "a message that only its sender recorded")
		require.Len(t, rec.Exchanges, 3)
		for i, e := range rec.Exchanges[:2] {
			assert.Equal(t, Exchange{"allreduce", e.Lane, uint64(1 + i), 0, 4096, i}, e)
			assert.Equal(t, []int{0, 1, 2}, e.Lane.Ranks)
		}
		assert.Equal(t, Exchange{"broadcast", rec.Exchanges[0].Lane, 3, 1, 16, -1}, rec.Exchanges[2], "after the last step")
		// Rank 1: an all-reduce from 120 to 600, for which it waits from 160 on; the step is from 0 to 950.
		want := []Act{
			{0, Begin, 0, 0}, {120 * µs, Issue, 0, 0}, {40 * µs, Await, 0, 0}, {350 * µs, End, 0, 0},
			{50 * µs, Begin, 1, 1}, {120 * µs, Issue, 1, 1}, {40 * µs, Await, 1, 1}, {350 * µs, End, 1, 1}, {10 * µs, Issue, 2, -1},
		}
		if soon {
			want = append(want, Act{20 * µs, Await, 2, -1})
		}
		assert.Equal(t, want, rec.Programs[1])
	}
}

// recordedPair is two ranks, a step from 0 to 1000, and one exchange from 100 to 300, for which they wait as wait says.
func recordedPair(name string, wait func(r *Rank)) []Rank {
	var all []Rank
	for i := range 2 {
		r := Rank{Rank: i, Lanes: []trace.Lane{{Group: "g", ID: 3, Ranks: []int{0, 1}}, {Group: "g", ID: 4, Ranks: []int{0, 1}}}}
		s := span(trace.Comm, name, 100, 300, 64)
		s.Lane, s.Seq = 1, 1
		r.Spans = append(r.Spans, span(trace.Steps, trace.StepName, 0, 1000, 5), s)
		wait(&r)
		all = append(all, r)
	}
	return all
}

// What nobody waited for is needed when the step ends, or as soon as it was over.
func TestRecordWithoutWaits(t *testing.T) {
	ranks := recordedPair("allgather:ring", func(*Rank) {})
	for soon, want := range map[bool][]Act{
		false: {{0, Begin, 0, 0}, {100 * µs, Issue, 0, 0}, {900 * µs, Await, 0, 0}, {0, End, 0, 0}},
		true:  {{0, Begin, 0, 0}, {100 * µs, Issue, 0, 0}, {200 * µs, Await, 0, 0}, {700 * µs, End, 0, 0}},
	} {
		rec, err := Record(ranks, soon)
		require.NoError(t, err)
		assert.Equal(t, [][]Act{want, want}, rec.Programs)
		assert.Equal(t, Exchange{"allgather", &ranks[0].Lanes[0], 1, 0, 64, 0}, rec.Exchanges[0])
	}
}

// A wait for a batch is one for the messages that were issued in its group since the batch before. Waits at once are no computation twice.
func TestRecordOfBatches(t *testing.T) {
	rec, err := Record(recordedPair("send", func(r *Rank) {
		if r.Rank == 1 {
			r.Spans[1].Name = "recv"
		}
		b, w := span(trace.Comm, "batch", 120, 500, 0), span(trace.Waits, "batch", 200, 500, 0)
		b.Lane, b.Seq, w.Lane, w.Seq = 2, 1, 2, 1
		late := span(trace.Waits, "wait", 400, 600, 0) // for nothing that is known
		late.Lane, late.Seq = 1, 9
		r.Spans = append(r.Spans, b, w, late)
	}), false)
	require.NoError(t, err)
	want := []Act{{0, Begin, 0, 0}, {100 * µs, Issue, 0, 0}, {100 * µs, Await, 0, 0}, {400 * µs, End, 0, 0}}
	assert.Equal(t, [][]Act{want, want}, rec.Programs)
	assert.Equal(t, "send", rec.Exchanges[0].Kind)
}

// more adds an all-reduce.
func more(r *Rank, seq uint64) {
	s := span(trace.Comm, "allreduce:ring", 700, 800, 8)
	s.Lane, s.Seq = 1, seq
	r.Spans = append(r.Spans, s)
}

// What only some ranks recorded at their ends is left out.
func TestRecordOfUnevenEnds(t *testing.T) {
	rec, err := Record(recordedPair("allreduce", func(r *Rank) {
		if r.Rank == 1 {
			more(r, 2)
		}
	}), false)
	require.NoError(t, err)
	require.Len(t, rec.Exchanges, 1)
	assert.Equal(t, 1, rec.LeftOut)
}

// A trace that is not whole is an error that says so.
func TestRecordOfDamagedTraces(t *testing.T) {
	for want, damage := range map[string]func(r []Rank){
		"the trace has no rank 1: a replay needs the files of all ranks, see ringo trace merge": func(r []Rank) { r[1].Rank = 2 },
		"rank 1 did not record its last 9 spans: record fewer steps, or more spans (dist.Config.Trace)": func(r []Rank) {
			r[1].Dropped = 9
		},
		"rank 0: a replay takes recordings of up to 24 hours": func(r []Rank) {
			r[0].Spans[1].Start -= 2 * day
		},
		"rank 1 has no allreduce number 2 of group g, which rank 0 has: the trace is not whole": func(r []Rank) {
			more(&r[0], 2)
			more(&r[0], 3)
			more(&r[1], 3)
		},
		"rank 0 has no step that all ranks have": func(r []Rank) {
			r[0].Spans = r[0].Spans[1:]
		},
		"rank 1 has no step that all ranks have": func(r []Rank) { r[1].Spans[0].Arg = 6 },
		"the trace has no rank 7, with which rank 0 has allreduce number 1 of group g": func(r []Rank) {
			r[0].Lanes[0].Ranks = []int{0, 1, 7}
		},
		"the trace has no rank -1, with which": func(r []Rank) {
			r[0].Lanes[0].Ranks = []int{0, 1, -1}
		},
		"rank 1 has allreduce number 1 of group g, and is no member or has it twice": func(r []Rank) {
			r[0].Lanes[0].Ranks = []int{0}
		},
		"rank 0 has allreduce number 1 of group g, and is no member or has it twice": func(r []Rank) { more(&r[0], 1) },
		"allreduce number 1 of group g has a member twice":                           func(r []Rank) { r[0].Lanes[0].Ranks = []int{0, 1, 1} },
		"allreduce number 1 of group g has a member twice: the":                      func(r []Rank) { r[0].Lanes[0].Ranks = make([]int, 3) },
		"rank 1 has allreduce number 1 of group g in lane 3, which has other members elsewhere: the trace is damaged": func(r []Rank) {
			r[1].Lanes[0].Ranks = []int{1, 0}
		},
		"rank 0 has allreduce number 2 of group g in lane 3, which has other members": func(r []Rank) { // two lanes of one rank
			r[0].Lanes[1] = trace.Lane{Group: "g", ID: 3, Ranks: []int{0}}
			more(&r[0], 2)
			r[0].Spans[2].Lane = 2
		},
		`allreduce number 1 of group g is a "broadcast" on rank 1`: func(r []Rank) {
			r[1].Spans[1].Name = "broadcast"
		},
		"allreduce number 1 of group g has -1 bytes and takes 200000 ns on rank 1": func(r []Rank) { r[1].Spans[1].Arg = -1 },
		"allreduce number 1 of group g has 2199023255552 bytes": func(r []Rank) {
			r[1].Spans[1].Arg = 1 << 41
		},
		"allreduce number 1 of group g has 64 bytes and takes -200000 ns on rank 1": func(r []Rank) {
			s := &r[1].Spans[1]
			s.Start, s.End = s.End, s.Start
		},
		"reduce number 1 of group g has root 3, which is no member: the trace is damaged": func(r []Rank) {
			r[0].Spans[1].Name, r[0].Spans[1].Root, r[1].Spans[1].Name = "reduce", 3, "reduce"
		},
	} {
		ranks := recordedPair("allreduce", func(*Rank) {})
		damage(ranks)
		_, err := Record(ranks, false)
		assert.ErrorContains(t, err, want)
	}
	_, err := Record(nil, false)
	assert.EqualError(t, err, "the trace has no ranks")
	three := recordedPair("send", func(*Rank) {})
	for i := range three {
		three[i].Lanes[0].Ranks = []int{0, 1, 2}
	}
	_, err = Record(append(three, Rank{Rank: 2, Lanes: three[0].Lanes, Spans: three[0].Spans}), false)
	assert.ErrorContains(t, err, "send number 1 of group g is from 3 ranks")
}

// A lane is looked at once, and not for each of its exchanges: here, 200,000 of 40,000 ranks, that only one rank has.
func TestRecordOfLongLanes(t *testing.T) {
	n := 4_000
	if reliability.Long(t) { // enough that a number of exchanges squared would take too long
		n *= 10
	}
	lane, ranks := trace.Lane{Group: "g", ID: 3}, make([]Rank, n)
	for i := range ranks {
		lane.Ranks = append(lane.Ranks, i)
		ranks[i] = Rank{Rank: i, Spans: []trace.Span{span(trace.Steps, trace.StepName, 0, 1000, 5)}}
	}
	ranks[0].Lanes = []trace.Lane{lane}
	for i := range 5 * n {
		more(&ranks[0], uint64(i+1))
	}
	began := time.Now()
	rec, err := Record(ranks, false)
	require.NoError(t, err)
	assert.Equal(t, 5*n, rec.LeftOut)
	assert.Less(t, time.Since(began), 10*time.Second+reliability.Slack)
}

func TestLongRecordOfLongLanes(t *testing.T) { reliability.AsLong(t, TestRecordOfLongLanes) }

// Whatever a file has, a recording of it is an error, or programs that issue an exchange on all members before they wait for it.
func FuzzRecord(f *testing.F) {
	var file bytes.Buffer
	require.NoError(f, Write(&file, madeUp()))
	f.Add(file.Bytes())
	for _, x := range [][2]string{{`"seq":1`, `"seq":2`},
		{`"ranks":"0,1,2"`, `"ranks":"0,1"`}, {`"dur":`, `"dur":-`}, {`"ts":`, `"ts":1e15`}} {
		f.Add(bytes.ReplaceAll(file.Bytes(), []byte(x[0]), []byte(x[1])))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ranks, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		rec, err := Record(ranks, len(text)%2 == 0)
		if err != nil {
			require.Less(t, len(fmt.Sprint(err)), 1000)
			return
		}
		members := make([]int, len(rec.Exchanges))
		for r, p := range rec.Programs {
			issued := map[int]bool{}
			for _, a := range p {
				require.True(t, a.Compute >= 0 && a.Compute <= day && a.Of >= 0 && a.Step < len(rec.Steps))
				if a.What == Issue {
					require.Contains(t, rec.Exchanges[a.Of].Lane.Ranks, r)
					members[a.Of]++
					issued[a.Of] = true
				}
				require.True(t, a.What != Await || issued[a.Of])
			}
		}
		for i, e := range rec.Exchanges {
			require.Len(t, e.Lane.Ranks, members[i])
		}
	})
}

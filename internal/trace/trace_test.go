package trace

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNilRecorderDoesNothing(t *testing.T) {
	var r *Recorder
	r.Span(Compute, "x", r.Now(), r.Now(), 0)
	require.Zero(t, r.Now())
	require.Nil(t, r.Spans())
	require.Zero(t, r.Dropped())
}

func TestRecorderKeepsTheFirstSpans(t *testing.T) {
	r := New(2)
	start := r.Now()
	for i := range 3 {
		r.Span(Comm, "allreduce", start, r.Now(), int64(i))
	}
	require.Len(t, r.Spans(), 2)
	require.Equal(t, 1, r.Dropped())
	require.Equal(t, int64(1), r.Spans()[1].Arg)
	require.LessOrEqual(t, start, r.Spans()[0].End)
	require.Zero(t, testing.AllocsPerRun(10, func() { r.Span(Comm, "x", 1, 2, 3) }))
}

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, [][]Span{
		{{"matmul", Compute, 5_000, 7_000, 12}},
		{{"allreduce", Comm, 2_000, 9_000, 4096}},
	}))
	var got struct {
		TraceEvents []struct {
			Name, Ph string
			Pid, Tid int
			Ts, Dur  float64
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	var seen int
	for _, e := range got.TraceEvents {
		switch {
		case e.Ph == "X" && e.Name == "matmul":
			require.Equal(t, [4]float64{0, float64(Compute), 3, 2}, [4]float64{float64(e.Pid), float64(e.Tid), e.Ts, e.Dur})
			seen++
		case e.Ph == "X" && e.Name == "allreduce":
			require.Equal(t, [4]float64{1, 0, 0, 7}, [4]float64{float64(e.Pid), float64(e.Tid), e.Ts, e.Dur})
			seen++
		}
	}
	require.Equal(t, 2, seen)
}

// TestRows: collectives that overlap lie in rows of their own, and a row is used again when it is free.
func TestRows(t *testing.T) {
	got := rows([]Span{
		{"matmul", Compute, 0, 5, 0}, {"b", Comm, 2, 6, 0}, {"a", Comm, 1, 4, 0}, {"c", Comm, 4, 9, 0}, {"d", Comm, 5, 7, 0},
	})
	var names []string
	for _, r := range got {
		line := r.name + ":"
		for i, s := range r.spans {
			line += " " + s.Name
			if r.name == "communication" && i > 0 {
				require.LessOrEqual(t, r.spans[i-1].End, s.Start)
			}
		}
		names = append(names, line)
	}
	require.Equal(t, []string{"computation: matmul", "communication: a c", "communication: b", "communication: d"}, names)
}

package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Track is a line of one rank's timeline.
type Track uint8

// The tracks of a rank.
const (
	Compute Track = iota // operations of the tape
	Comm                 // collectives, from issue to done
)

var trackNames = [...]string{"computation", "communication"}

// Span is one piece of work. Times are nanoseconds since 1970.
type Span struct {
	Name       string
	Track      Track
	Start, End int64
	Arg        int64 // bytes of a collective, elements of a kernel
}

// Recorder keeps the first spans of one rank, up to its capacity. The methods of a nil *Recorder do nothing, so that
// tracing costs one comparison when it is off. A Recorder belongs to its rank's goroutine.
type Recorder struct {
	spans   []Span
	dropped int
	base    time.Time
	wall    int64
}

// New returns a recorder with room for n spans.
func New(n int) *Recorder {
	now := time.Now()
	return &Recorder{spans: make([]Span, 0, n), base: now, wall: now.UnixNano()}
}

// Now returns the time in nanoseconds since 1970, from the monotonic clock, or 0 on a nil recorder.
func (r *Recorder) Now() int64 {
	if r == nil {
		return 0
	}
	return r.wall + int64(time.Since(r.base))
}

// Span records work on a track from start to end, as Now gave them.
func (r *Recorder) Span(t Track, name string, start, end, arg int64) {
	if r == nil {
		return
	}
	if len(r.spans) == cap(r.spans) {
		r.dropped++
		return
	}
	r.spans = append(r.spans, Span{name, t, start, end, arg})
}

// Spans returns what was recorded, in the order of recording.
func (r *Recorder) Spans() []Span {
	if r == nil {
		return nil
	}
	return r.spans
}

// Dropped returns how many spans did not fit.
func (r *Recorder) Dropped() int {
	if r == nil {
		return 0
	}
	return r.dropped
}

type event struct {
	Name string         `json:"name"`
	Ph   string         `json:"ph"`
	Pid  int            `json:"pid"`
	Tid  int            `json:"tid"`
	Ts   float64        `json:"ts"` // microseconds
	Dur  float64        `json:"dur,omitempty"`
	Args map[string]any `json:"args,omitempty"`
}

// Write writes the spans of all ranks: ranks[i] are those of rank i, which becomes a process of the timeline with a
// thread per track. Collectives overlap, which spans of one thread may not: they get as many threads as it takes.
func Write(w io.Writer, ranks [][]Span) error {
	var ev []event
	first := int64(1<<63 - 1)
	for _, spans := range ranks {
		for _, s := range spans {
			first = min(first, s.Start)
		}
	}
	for i, spans := range ranks {
		ev = append(ev, event{Name: "process_sort_index", Ph: "M", Pid: i, Args: map[string]any{"sort_index": i}})
		ev = append(ev, event{Name: "process_name", Ph: "M", Pid: i, Args: map[string]any{"name": fmt.Sprintf("rank %d", i)}})
		for tid, row := range rows(spans) {
			ev = append(ev, event{Name: "thread_name", Ph: "M", Pid: i, Tid: tid, Args: map[string]any{"name": row.name}})
			for _, s := range row.spans {
				ev = append(ev, event{Name: s.Name, Ph: "X", Pid: i, Tid: tid,
					Ts: float64(s.Start-first) / 1e3, Dur: float64(s.End-s.Start) / 1e3, Args: map[string]any{"n": s.Arg}})
			}
		}
	}
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": ev, "displayTimeUnit": "ms"})
}

// row is a thread of the timeline: spans that do not overlap, or that lie within each other.
type row struct {
	name  string
	spans []Span
	end   int64
}

// rows returns one row per track, in the order of tracks, but as many for Comm as overlapping collectives need.
func rows(spans []Span) []row {
	var out []row
	for t, name := range trackNames {
		var own []Span
		for _, s := range spans {
			if s.Track == Track(t) {
				own = append(own, s)
			}
		}
		if len(own) == 0 {
			continue
		}
		slices.SortStableFunc(own, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
		if Track(t) != Comm {
			out = append(out, row{name: name, spans: own})
			continue
		}
		out = append(out, pack(name, own)...)
	}
	return out
}

// pack puts spans, sorted by start, into as few rows as it takes for none to overlap.
func pack(name string, spans []Span) []row {
	var out []row
	for _, s := range spans {
		i := slices.IndexFunc(out, func(r row) bool { return r.end <= s.Start })
		if i < 0 {
			i = len(out)
			out = append(out, row{name: name})
		}
		out[i].spans, out[i].end = append(out[i].spans, s), s.End
	}
	return out
}

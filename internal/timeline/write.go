package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/trace"
)

// Rank is what one rank recorded.
type Rank struct {
	Rank    int
	Host    string
	Dropped int // number of spans that did not fit
	Lanes   []trace.Lane
	Spans   []trace.Span
}

// Of returns the content of a rank's recorder.
func Of(rank int, host string, r *trace.Recorder) Rank {
	return Rank{rank, host, r.Dropped(), r.Lanes(), r.Spans()}
}

// The categories of events, by track, and the names of threads.
var (
	categories  = [trace.NumTracks]string{"step", "kernel", "communication", "wait"}
	threadNames = [trace.NumTracks]string{"steps", "computation", "communication", "waiting"}
)

// event is one event of a file. A complete event ("X") always has its duration.
type event struct {
	Name string   `json:"name"`
	Cat  string   `json:"cat,omitempty"`
	Ph   string   `json:"ph"`
	Pid  int      `json:"pid"`
	Tid  int      `json:"tid"`
	TS   float64  `json:"ts"` // microseconds since the file's start
	Dur  *float64 `json:"dur,omitempty"`
	Args args     `json:"args"`
}

// args are the arguments of all kinds of events. Pointers are nil if a value is missing, because 0 is a value.
type args struct {
	// For metadata.
	Name      string `json:"name,omitempty"`
	Labels    string `json:"labels,omitempty"`
	SortIndex *int   `json:"sort_index,omitempty"`
	Host      string `json:"host,omitempty"`
	Dropped   int    `json:"dropped,omitempty"`
	// For spans.
	Step     *int64 `json:"step,omitempty"`
	Elements *int64 `json:"elements,omitempty"`
	Bytes    *int64 `json:"bytes,omitempty"`
	Group    string `json:"group,omitempty"`
	Ranks    string `json:"ranks,omitempty"` // who takes part; for messages the sender and the receiver
	Root     *int32 `json:"root,omitempty"`
	Seq      uint64 `json:"seq,omitempty"`  // number in the lane
	Lane     string `json:"lane,omitempty"` // ID of the lane, the same on all of them, in hexadecimal
}

// file is a whole file. Times of events count from Start, in nanoseconds since 1970.
type file struct {
	Events []event `json:"traceEvents"`
	Unit   string  `json:"displayTimeUnit"`
	Other  struct {
		Start string `json:"start"`
	} `json:"otherData"`
}

// Write writes ranks. Each rank becomes a process of the timeline, with a thread for each track. In the format, spans of a thread may not
// overlap unless one is inside the other. So a track gets as many threads as it needs.
func Write(w io.Writer, ranks []Rank) error {
	f := file{Unit: "ms"}
	start := int64(0)
	for _, r := range ranks {
		for _, s := range r.Spans {
			if start == 0 || s.Start < start {
				start = s.Start
			}
		}
	}
	f.Other.Start = strconv.FormatInt(start, 10)
	for _, r := range ranks {
		f.Events = append(f.Events, r.events(start)...)
	}
	return json.NewEncoder(w).Encode(f)
}

func (r *Rank) events(start int64) []event {
	meta := func(name string, tid int, a args) event {
		return event{Name: name, Ph: "M", Pid: r.Rank, Tid: tid, Args: a}
	}
	ev := []event{
		meta("process_sort_index", 0, args{SortIndex: new(r.Rank)}),
		meta("process_name", 0, args{Name: fmt.Sprintf("rank %d", r.Rank)}),
		meta("process_labels", 0, args{Labels: r.labels(), Host: r.Host, Dropped: r.Dropped}),
	}
	ranks := make([]string, len(r.Lanes))
	for i, l := range r.Lanes {
		ranks[i] = rankList(l.Ranks)
	}
	for tid, row := range rows(r.Spans) {
		ev = append(ev, meta("thread_name", tid, args{Name: threadNames[row.track]}), meta("thread_sort_index", tid, args{SortIndex: new(tid)}))
		for _, s := range row.spans {
			name := s.Name
			if s.Track == trace.Steps && s.Name == trace.StepName {
				name = fmt.Sprintf("%s %d", s.Name, s.Arg)
			}
			ev = append(ev, event{Name: name, Cat: categories[s.Track], Ph: "X", Pid: r.Rank, Tid: tid,
				TS: float64(s.Start-start) / 1e3, Dur: new(float64(s.End-s.Start) / 1e3), Args: r.args(s, ranks)})
		}
	}
	return ev
}

func (r *Rank) labels() string {
	if r.Dropped > 0 {
		return fmt.Sprintf("host %s, the last %d spans did not fit", r.Host, r.Dropped)
	}
	return "host " + r.Host
}

func (r *Rank) args(s trace.Span, ranks []string) (a args) {
	switch {
	case s.Track == trace.Compute:
		a.Elements = new(s.Arg)
	case s.Track == trace.Steps && s.Name == trace.StepName:
		a.Step = new(s.Arg)
	case s.Lane > 0:
		l := &r.Lanes[s.Lane-1]
		a.Bytes, a.Group, a.Ranks, a.Seq, a.Lane = new(s.Arg), l.Group, ranks[s.Lane-1], s.Seq, strconv.FormatUint(l.ID, 16)
		if rooted(s.Name) {
			a.Root = new(s.Root)
		}
	}
	return a
}

// kindOf returns the operation in a span's name, such as "allreduce" in "allreduce:ring".
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, ":")
	return kind
}

func rooted(name string) bool {
	return slices.Contains([]string{"broadcast", "reduce", "gather", "scatter"}, kindOf(name))
}

// rankList writes numbers separated by commas.
func rankList(ranks []int) string {
	text := make([]string, len(ranks))
	for i, r := range ranks {
		text[i] = strconv.Itoa(r)
	}
	return strings.Join(text, ",")
}

// row is a thread of the timeline.
type row struct {
	track trace.Track
	spans []trace.Span
	open  []int64 // ends of the last span and of the spans around it
}

// rows puts spans into rows, in the order of tracks.
func rows(spans []trace.Span) []row {
	var out []row
	for t := range trace.NumTracks {
		var own []trace.Span
		for _, s := range spans {
			if s.Track == t {
				own = append(own, s)
			}
		}
		slices.SortStableFunc(own, func(a, b trace.Span) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) })
		first := len(out)
		for _, s := range own {
			i := first + slices.IndexFunc(out[first:], func(r row) bool { return r.takes(s) })
			if i < first {
				i = len(out)
				out = append(out, row{track: t})
			}
			out[i].add(s)
		}
	}
	return out
}

// takes reports whether s may be in the row; s does not begin before the row's spans. Communication is not nested: if one operation is
// inside another in time, they are still independent.
func (r *row) takes(s trace.Span) bool {
	for _, end := range r.open {
		if end > s.Start && (end < s.End || r.track == trace.Comm || r.track == trace.Waits) {
			return false
		}
	}
	return true
}

func (r *row) add(s trace.Span) {
	r.open = append(slices.DeleteFunc(r.open, func(end int64) bool { return end <= s.Start }), s.End)
	r.spans = append(r.spans, s)
}

package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/trace"
)

// microseconds of made-up spans, after a moment in 2023
const (
	µs    = int64(1000)
	epoch = int64(1_700_000_000_000_000_000)
)

var (
	world = trace.Lane{Group: "world", ID: 0xfeedfacecafebeef, Ranks: []int{0, 1, 2}}
	pair  = trace.Lane{Group: "world", ID: 77, Ranks: []int{2, 0}}
)

func span(t trace.Track, name string, start, end, arg int64) trace.Span {
	return trace.Span{Name: name, Track: t, Start: epoch + start*µs, End: epoch + end*µs, Arg: arg}
}

// comm returns a collective of the first lane. The rank waits for it from wait on, until its end.
func comm(name string, seq uint64, start, wait, end, bytes int64) []trace.Span {
	s, w := span(trace.Comm, name, start, end, bytes), span(trace.Waits, name, wait, end, bytes)
	s.Lane, s.Seq, w.Lane, w.Seq = 1, seq, 1, seq
	return []trace.Span{s, w}
}

// madeUp is three ranks with two steps, of which rank 2 computes longer.
func madeUp() []Rank {
	var all []Rank
	for r := range 3 {
		rank := Rank{Rank: r, Host: "a", Lanes: []trace.Lane{world}}
		for step := range int64(2) {
			at, late := 1000*step, int64(0)
			if r == 2 {
				late = 200 + 100*step
			}
			rank.Spans = append(rank.Spans,
				span(trace.Steps, "loader", at, at+10, 0),
				span(trace.Compute, "matmul", at+10, at+100+late, 64),
				span(trace.Steps, "forward", at+10, at+110+late, 0),
				span(trace.Steps, "backward", at+110+late, at+900, 0),
				span(trace.Compute, "matmul", at+110+late, at+150+late, 64),
				span(trace.Compute, "sum", at+150+late, at+160+late, 1))
			rank.Spans = append(rank.Spans, comm("allreduce:direct", uint64(step+1), at+120+late, at+160+late, at+600, 4096)...)
			rank.Spans = append(rank.Spans, span(trace.Steps, trace.StepName, at, at+950, step))
		}
		if r == 2 {
			rank.Dropped, rank.Lanes = 5, append(rank.Lanes, pair)
			send := span(trace.Comm, "send:linear", 1960, 1970, 8)
			send.Lane, send.Seq = 2, 1
			rank.Spans = append(rank.Spans, send)
		}
		b := span(trace.Comm, "broadcast:chain", 1960, 1980, 16)
		b.Lane, b.Seq, b.Root = 1, 3, 1
		rank.Spans = append(rank.Spans, b)
		all = append(all, rank)
	}
	return all
}

func written(t *testing.T, ranks []Rank) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, ranks))
	return b.Bytes()
}

// A file that was written can be read.
func TestRoundTrip(t *testing.T) {
	want := madeUp()
	got, err := Read(bytes.NewReader(written(t, want)))
	require.NoError(t, err)
	require.Len(t, got, len(want))
	sorted := func(spans []trace.Span) []trace.Span {
		return slices.SortedFunc(slices.Values(spans), func(a, b trace.Span) int { return strings.Compare(text(a), text(b)) })
	}
	for i := range want {
		require.Equal(t, sorted(want[i].Spans), sorted(got[i].Spans))
		want[i].Spans, got[i].Spans = nil, nil
		require.Equal(t, want[i], got[i])
	}
}

func text(s trace.Span) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestWritten(t *testing.T) {
	CheckEvents(t, written(t, madeUp()))
	CheckEvents(t, written(t, nil))
	overlapping := Rank{Lanes: []trace.Lane{world}, Spans: slices.Concat(comm("allreduce", 1, 0, 5, 20, 8),
		comm("allreduce", 2, 10, 21, 30, 8), comm("allreduce", 3, 22, 23, 24, 8), []trace.Span{span(trace.Compute, "empty", 7, 7, 0)})}
	CheckEvents(t, written(t, []Rank{overlapping}))
	for name, text := range map[string]string{
		"it is not a timeline of Ringo":                   `{"traceEvents":[]}`,
		"is nothing that Ringo writes":                    `{"otherData":{"start":"1"},"traceEvents":[{"name":"x","ph":"B"}]}`,
		"event 0: strconv.ParseUint":                      `{"otherData":{"start":"1"},"traceEvents":[{"name":"x","ph":"X","cat":"wait","dur":1,"args":{"lane":"?"}}]}`,
		"event 0: strconv.Atoi":                           `{"otherData":{"start":"1"},"traceEvents":[{"name":"x","ph":"X","cat":"wait","dur":1,"args":{"lane":"1"}}]}`,
		`"x" of category "kernel" and phase "X" is nothi`: `{"otherData":{"start":"1"},"traceEvents":[{"name":"x","ph":"X","cat":"kernel"}]}`,
	} {
		_, err := Read(strings.NewReader(text))
		require.ErrorContains(t, err, name)
	}
	_, err := Read(strings.NewReader(`{`))
	require.Regexp(t, "unexpected (EOF|end of JSON input)$", err.Error()) // the second one since Go 1.27
}

// A span inside another one shares its row, except communication. Spans that overlap do not share a row.
func TestRows(t *testing.T) {
	got := rows(slices.Concat(
		[]trace.Span{span(trace.Steps, "backward", 4, 9, 0), span(trace.Steps, "forward", 0, 4, 0), span(trace.Steps, trace.StepName, 0, 9, 0),
			span(trace.Steps, "odd", 8, 12, 0)},
		comm("a", 1, 1, 4, 4, 0)[:1], comm("b", 2, 2, 6, 6, 0)[:1], comm("c", 3, 4, 9, 9, 0)[:1], comm("d", 4, 5, 7, 7, 0)[:1]))
	var names []string
	for _, r := range got {
		line := threadNames[r.track] + ":"
		for _, s := range r.spans {
			line += " " + s.Name
		}
		names = append(names, line)
	}
	require.Equal(t, []string{"steps: step forward backward", "steps: odd", "communication: a c", "communication: b", "communication: d"},
		names)
}

func TestJoin(t *testing.T) {
	all := madeUp()
	got, err := Join(all[2:], all[:2])
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, []int{got[0].Rank, got[1].Rank, got[2].Rank})
	_, err = Join(all, all[1:2])
	require.EqualError(t, err, "rank 1 is there twice")
}

// CheckEvents requires what the Trace Event format says about complete and metadata events: their fields and types, and that spans of a
// thread are in order and nested.
func CheckEvents(t *testing.T, file []byte) {
	t.Helper()
	var f map[string]any
	require.NoError(t, json.Unmarshal(file, &f))
	require.Contains(t, []any{"ms", "ns"}, f["displayTimeUnit"])
	events, _ := f["traceEvents"].([]any)
	metadata := map[string]string{"process_name": "name", "process_labels": "labels", "thread_name": "name",
		"process_sort_index": "sort_index", "thread_sort_index": "sort_index"}
	type thread struct{ pid, tid float64 }
	last, open, named := map[thread]float64{}, map[thread][]float64{}, map[thread]bool{}
	for _, x := range events {
		e, ok := x.(map[string]any)
		require.True(t, ok)
		name, _ := e["name"].(string)
		require.NotEmpty(t, name)
		a, ok := e["args"].(map[string]any)
		require.True(t, ok, name)
		at := thread{number(t, e, "pid"), number(t, e, "tid")}
		require.Equal(t, at, thread{math.Trunc(at.pid), math.Trunc(at.tid)})
		switch e["ph"] {
		case "M":
			require.Contains(t, metadata, name)
			require.Contains(t, a, metadata[name])
			named[at] = named[at] || name == "thread_name"
		case "X":
			cat, _ := e["cat"].(string)
			require.NotEmpty(t, cat)
			require.True(t, named[at], "a thread without a name")
			start := math.Round(1e3 * number(t, e, "ts"))
			end := start + math.Round(1e3*number(t, e, "dur"))
			require.LessOrEqual(t, last[at], start, "%s: not in order", name)
			require.LessOrEqual(t, start, end)
			last[at] = start
			open[at] = slices.DeleteFunc(open[at], func(x float64) bool { return x <= start })
			for _, outer := range open[at] {
				require.LessOrEqual(t, end, outer, "%s overlaps its neighbour", name)
			}
			open[at] = append(open[at], end)
			if cat == "communication" {
				for _, k := range []string{"bytes", "group", "ranks", "seq", "lane"} {
					require.Contains(t, a, k)
				}
			}
		default:
			require.Fail(t, "unknown phase", "%v", e["ph"])
		}
	}
}

func number(t *testing.T, e map[string]any, key string) float64 {
	t.Helper()
	x, ok := e[key].(float64)
	require.True(t, ok, "%v: %s is no number", e, key)
	require.GreaterOrEqual(t, x, 0.0)
	return x
}

// A hostile file takes no more memory than it has bytes to justify.
func TestReadIsBounded(t *testing.T) {
	const end = `{}],"otherData":{"start":"1"}}`
	long := `{"ph":"M","name":"` + strings.Repeat("x", 500) + `"},`
	for i, event := range []string{`{"ph":"M"},`, `{},`, `{"cat":"step","ph":"X","dur":1},`, long} {
		if i > 1 && !reliability.Long(t) {
			break
		}
		text := `{"traceEvents":[` + strings.Repeat(event, 12<<20/len(event)) + end
		reliability.Bounded(t, len(text), func() {
			_, err := Read(strings.NewReader(text))
			require.Error(t, err)
		})
	}
	var text strings.Builder
	text.WriteString(`{"traceEvents":[`)
	for pid := range 200_000 {
		fmt.Fprintf(&text, `{"ph":"M","pid":%d},`, pid)
	}
	text.WriteString(end)
	reliability.Bounded(t, text.Len(), func() {
		_, err := Read(strings.NewReader(text.String()))
		require.Error(t, err)
	})
}

func TestLongReadIsBounded(t *testing.T) { reliability.AsLong(t, TestReadIsBounded) }

func FuzzRead(f *testing.F) {
	for _, text := range []string{
		`{"traceEvents":[{"ph":"M","pid":1,"name":"process_labels","args":{"host":"a"}}],"otherData":{"start":"1"}}`,
		`{"otherData":{"start":"1"},"x":[],"traceEvents":[{"name":"x","ph":"X","cat":"wait","ts":1,"dur":1,"args":{"lane":"1","ranks":"0,1"}}]}`,
		`{"traceEvents":[{"cat":"step","ph":"X","dur":1e300,"args":{"step":3}}],"otherData":{"start":"9223372036854775807"}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reliability.Bounded(t, len(text), func() {
			all, err := Read(strings.NewReader(text))
			for i, r := range all {
				require.NoError(t, err)
				require.True(t, i == 0 || all[i-1].Rank < r.Rank)
			}
		})
	})
}

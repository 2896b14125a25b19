package timeline

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/internal/bounded"
	names "github.com/ringo-ml/ringo/internal/ranks"
	"github.com/ringo-ml/ringo/internal/trace"
)

// top is the largest number of operations in a table.
const top = 12

// Summarize writes where the time went, and which ranks were late. The ranks are on one clock: see Align, which returns clocks.
func Summarize(w io.Writer, ranks []Rank, clocks []Clock) {
	if len(ranks) == 0 {
		fmt.Fprintln(w, "no ranks")
		return
	}
	summarizeHead(w, ranks, clocks)
	summarizePhases(w, ranks)
	summarizeOps(w, ranks)
	summarizeComm(w, ranks)
	summarizeExposed(w, ranks)
	summarizeLate(w, ranks, clocks)
}

// table prints rows in columns; all but the first are aligned to the right.
func table(w io.Writer, title string, rows [][]string) {
	fmt.Fprintf(w, "\n%s\n", title)
	first := 0
	for _, r := range rows {
		for i := range r {
			r[i] = bounded.Plain(r[i]) // names are a file's
		}
		first = max(first, len([]rune(r[0])))
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range rows {
		fmt.Fprintf(t, "%s%s\t", r[0], strings.Repeat(" ", first-len([]rune(r[0]))))
		fmt.Fprintln(t, strings.Join(r[1:], "\t")+"\t")
	}
	_ = t.Flush() // writes to b do not fail
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func msText(ns int64) string { return fmt.Sprintf("%.3f", ms(ns)) }

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(max(1, whole)))
}

func summarizeHead(w io.Writer, ranks []Rank, clocks []Clock) {
	var lengths []int64
	for _, r := range ranks {
		for _, s := range r.Spans {
			if s.Name == trace.StepName && s.Track == trace.Steps {
				lengths = append(lengths, s.End-s.Start)
			}
		}
	}
	fmt.Fprintf(w, "%s, %.3f ms", names.Count(len(ranks)), ms(recorded(ranks)))
	if n := len(lengths); n > 0 {
		slices.Sort(lengths)
		fmt.Fprintf(w, "; %.4g steps a rank, of %.3f ms (median; %.3f to %.3f)",
			float64(n)/float64(len(ranks)), ms(lengths[n/2]), ms(lengths[0]), ms(lengths[n-1]))
	}
	fmt.Fprintln(w)
	for _, r := range ranks {
		if r.Dropped > 0 {
			fmt.Fprintf(w, "rank %d: the last %d spans did not fit\n", r.Rank, r.Dropped)
		}
	}
	if slices.ContainsFunc(clocks, func(c Clock) bool { return c.Within != 0 || c.Add != 0 }) {
		fmt.Fprintln(w, "added to clocks, so that no communication ends before what it waits for has begun:")
		for _, c := range clocks {
			fmt.Fprintf(w, "  %v\n", c)
		}
	}
}

// recorded is the time from the first span to the last, over all ranks.
func recorded(ranks []Rank) int64 {
	first, last := int64(0), int64(0)
	for _, r := range ranks {
		for _, s := range r.Spans {
			if first == 0 || s.Start < first {
				first = s.Start
			}
			last = max(last, s.End)
		}
	}
	return last - first
}

// sum is the number of calls and the time of a name.
type sum struct {
	calls       int
	time, bytes int64
}

// sums adds up spans by the names that key returns; spans with "" are left out.
func sums(ranks []Rank, key func(r *Rank, s *trace.Span) string) map[string]*sum {
	out := map[string]*sum{}
	for i := range ranks {
		for k := range ranks[i].Spans {
			s := &ranks[i].Spans[k]
			name := key(&ranks[i], s)
			if name == "" {
				continue
			}
			x := out[name]
			if x == nil {
				x = new(sum)
				out[name] = x
			}
			x.calls, x.time, x.bytes = x.calls+1, x.time+s.End-s.Start, x.bytes+s.Arg
		}
	}
	return out
}

// longest returns the names of sums, the longest time first.
func longest(m map[string]*sum) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b].time, m[a].time), cmp.Compare(a, b)) })
}

func ofTrack(t trace.Track) func(r *Rank, s *trace.Span) string {
	return func(_ *Rank, s *trace.Span) string {
		if s.Track != t {
			return ""
		}
		return s.Name
	}
}

func summarizePhases(w io.Writer, ranks []Rank) {
	all := sums(ranks, ofTrack(trace.Steps))
	steps := all[trace.StepName]
	if steps == nil {
		return
	}
	delete(all, trace.StepName)
	rows := [][]string{{"PHASE", "MS A STEP", "OF IT", "LONGEST", "ON RANK"}}
	rest := steps.time
	for _, name := range longest(all) {
		slowest, most := 0, int64(-1)
		for i := range ranks {
			if x := sums(ranks[i:i+1], ofTrack(trace.Steps))[name]; x != nil && x.time > most {
				slowest, most = i, x.time
			}
		}
		of := max(1, sums(ranks[slowest:slowest+1], ofTrack(trace.Steps))[trace.StepName].calls)
		rows = append(rows, []string{name, msText(all[name].time / int64(steps.calls)), percent(all[name].time, steps.time),
			msText(most / int64(of)), fmt.Sprint(ranks[slowest].Rank)})
		rest -= all[name].time
	}
	rows = append(rows, []string{"(rest)", msText(rest / int64(steps.calls)), percent(rest, steps.time), "", ""})
	table(w, "Phases, mean over ranks; the longest is a rank's mean", rows)
}

func summarizeOps(w io.Writer, ranks []Rank) {
	all, whole := sums(ranks, ofTrack(trace.Compute)), recorded(ranks)*int64(len(ranks))
	names := longest(all)
	rows := [][]string{{"OPERATION", "CALLS", "MS", "µs EACH", "OF TIME"}}
	for i, name := range names {
		if i == top {
			rows = append(rows, []string{fmt.Sprintf("(%d more)", len(names)-top), "", "", "", ""})
			break
		}
		x := all[name]
		rows = append(rows,
			[]string{name, fmt.Sprint(x.calls), msText(x.time), fmt.Sprintf("%.1f", float64(x.time)/1e3/float64(x.calls)), percent(x.time, whole)})
	}
	if len(names) > 0 {
		table(w, "Computation, all ranks", rows)
	}
}

// laneName is the operation and the group of a span.
func laneName(r *Rank, s *trace.Span) string {
	if s.Lane == 0 {
		return s.Name
	}
	return s.Name + " of " + r.Lanes[s.Lane-1].Group
}

func summarizeComm(w io.Writer, ranks []Rank) {
	onTrack := func(t trace.Track) map[string]*sum {
		return sums(ranks, func(r *Rank, s *trace.Span) string {
			if s.Track != t {
				return ""
			}
			return laneName(r, s)
		})
	}
	all, waits := onTrack(trace.Comm), onTrack(trace.Waits)
	for name := range waits {
		if all[name] == nil { // no such operation has ended
			all[name] = new(sum)
		}
	}
	exposed := func(name string) int64 {
		if waits[name] == nil {
			return 0
		}
		return waits[name].time
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(exposed(b), exposed(a)), cmp.Compare(a, b)) })
	rows := [][]string{{"COMMUNICATION", "CALLS", "BYTES", "MS IN FLIGHT", "MS EXPOSED"}}
	for i, name := range names {
		if i == top {
			rows = append(rows, []string{fmt.Sprintf("(%d more)", len(names)-top), "", "", "", ""})
			break
		}
		x := all[name]
		rows = append(rows, []string{name, fmt.Sprint(x.calls), fmt.Sprint(x.bytes), msText(x.time), msText(exposed(name))})
	}
	if len(names) > 0 {
		table(w, "Communication, all ranks; in flight is from issue to end, exposed is what ranks wait for", rows)
	}
}

func summarizeExposed(w io.Writer, ranks []Rank) {
	rows := [][]string{{"RANK", "MS IN FLIGHT", "MS EXPOSED", "OF TIME", "MOST OF IT"}}
	whole := recorded(ranks)
	for i := range ranks {
		r := ranks[i : i+1]
		waits := sums(r, func(r *Rank, s *trace.Span) string {
			if s.Track != trace.Waits {
				return ""
			}
			return laneName(r, s)
		})
		most := ""
		if names := longest(waits); len(names) > 0 {
			most = names[0]
		}
		exposed := covered(&r[0], trace.Waits)
		rows = append(rows, []string{fmt.Sprint(r[0].Rank), msText(covered(&r[0], trace.Comm)), msText(exposed), percent(exposed, whole), most})
	}
	table(w, "Exposed communication, by rank", rows)
}

// covered is the time in which a track has a span. Overlapping spans count once.
func covered(r *Rank, t trace.Track) (total int64) {
	var own []trace.Span
	for _, s := range r.Spans {
		if s.Track == t {
			own = append(own, s)
		}
	}
	slices.SortFunc(own, func(a, b trace.Span) int { return cmp.Compare(a.Start, b.Start) })
	end := int64(0)
	for _, s := range own {
		if s.End > end {
			total += s.End - max(end, s.Start)
			end = s.End
		}
	}
	return total
}

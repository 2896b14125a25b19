package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/trace"
)

// collective is one collective or message, with the spans of its members.
type collective struct {
	name  string
	lane  *trace.Lane
	seq   uint64
	root  int    // the world rank of the root, if there is one
	parts []part // by rank
}

// part is a member's span, from its issue to its end.
type part struct {
	at         int // index of the rank
	name       string
	start, end int64
	bytes      int64
	lane       *trace.Lane
}

// exchanges returns all collectives and messages, in the order in which they began.
func exchanges(ranks []Rank) []*collective {
	found := map[key]*collective{}
	var all []*collective
	for at := range ranks {
		r := &ranks[at]
		for _, s := range r.Spans {
			if s.Track != trace.Comm || s.Lane == 0 {
				continue
			}
			k := key{r.Lanes[s.Lane-1].ID, s.Seq}
			m := found[k]
			if m == nil {
				m = &collective{name: s.Name, lane: &r.Lanes[s.Lane-1], seq: s.Seq, root: int(s.Root)}
				found[k] = m
				all = append(all, m)
			}
			m.parts = append(m.parts, part{at, s.Name, s.Start, s.End, s.Arg, &r.Lanes[s.Lane-1]})
		}
	}
	slices.SortStableFunc(all, func(a, b *collective) int { return cmp.Compare(a.parts[0].start, b.parts[0].start) })
	return all
}

// collectives returns the collectives in which every member waits for all others, in the order in which they began. V forms are among them,
// although a rank may end one before a member has begun that has no data for it.
func collectives(ranks []Rank) []*collective {
	return slices.DeleteFunc(exchanges(ranks), func(m *collective) bool { return !together(m.name) })
}

func together(name string) bool {
	return exact(name) || slices.Contains([]string{"allgatherv", "reducescatterv", "alltoallv"}, kindOf(name))
}

// exact reports whether no member can end before all have begun.
func exact(name string) bool {
	return slices.Contains([]string{"allreduce", "allgather", "reducescatter", "alltoall", "barrier", "monitoredbarrier"}, kindOf(name))
}

// ordered returns starts that must come before ends, whatever the clocks say, because no member ends before the data that it needs was
// sent. Members of an exact collective wait for all others; members of a broadcast or a message wait for the root; the root of a reduce
// waits for the members.
func (m *collective) ordered(ranks []Rank) (starts, ends []part) {
	root, kind := m.root, kindOf(m.name)
	if kind == "send" || kind == "recv" {
		root = m.lane.Ranks[0]
	}
	ofRoot := slices.DeleteFunc(slices.Clone(m.parts), func(p part) bool { return ranks[p.at].Rank != root })
	switch {
	case exact(m.name):
		return m.parts, m.parts
	case slices.Contains([]string{"broadcast", "scatter", "send", "recv"}, kind):
		return ofRoot, m.parts
	case slices.Contains([]string{"reduce", "gather"}, kind):
		return m.parts, ofRoot
	}
	return nil, nil
}

// Clock is the offset that was added to the times of a rank.
type Clock struct {
	Rank   int
	Add    time.Duration
	Within time.Duration // its possible error, relative to the first rank; below zero: not known
}

// String returns it as a sentence.
func (c Clock) String() string {
	switch {
	case c.Within < 0 && c.Add == 0:
		return fmt.Sprintf("rank %d: no communication in both directions joins it to the first rank: how far its clock is off is not known",
			c.Rank)
	case c.Within < 0:
		return fmt.Sprintf(
			"rank %d: %+.3f ms, so that nothing arrives before it is sent; no communication in both directions joins it to the first rank",
			c.Rank, ms(int64(c.Add)))
	case c.Within == 0 && c.Add == 0:
		return fmt.Sprintf("rank %d: the same clock", c.Rank)
	}
	return fmt.Sprintf("rank %d: %+.3f ms, within %.3f ms", c.Rank, ms(int64(c.Add)), ms(int64(c.Within)))
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

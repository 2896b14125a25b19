package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/trace"
)

// meeting is one collective, as its members saw it.
type meeting struct {
	name  string
	lane  *trace.Lane
	parts []part // by rank
}

// part is a member's span, from its issue to its end.
type part struct {
	at         int // index of the rank
	start, end int64
}

// meetings returns the collectives in which every member waits for all others, in the order in which they began: no member's span ends before
// that of each other one has begun. V forms may end without members that have nothing for this one: they are not exact.
func meetings(ranks []Rank) []*meeting {
	type key struct{ lane, seq uint64 }
	found := map[key]*meeting{}
	var all []*meeting
	for at := range ranks {
		r := &ranks[at]
		for _, s := range r.Spans {
			if s.Track != trace.Comm || s.Lane == 0 || !together(s.Name) {
				continue
			}
			k := key{r.Lanes[s.Lane-1].ID, s.Seq}
			m := found[k]
			if m == nil {
				m = &meeting{name: s.Name, lane: &r.Lanes[s.Lane-1]}
				found[k] = m
				all = append(all, m)
			}
			m.parts = append(m.parts, part{at, s.Start, s.End})
		}
	}
	slices.SortStableFunc(all, func(a, b *meeting) int { return cmp.Compare(a.parts[0].start, b.parts[0].start) })
	return all
}

func together(name string) bool {
	return exact(name) || slices.Contains([]string{"allgatherv", "reducescatterv", "alltoallv"}, kindOf(name))
}

// exact reports whether no member can be done before all have begun.
func exact(name string) bool {
	return slices.Contains([]string{"allreduce", "allgather", "reducescatter", "alltoall", "barrier", "monitoredbarrier"}, kindOf(name))
}

// Clock is what was added to the times of a rank.
type Clock struct {
	Rank   int
	Add    time.Duration
	Within time.Duration // how far it may be wrong, from the first rank's; below zero: not known, and nothing was added
}

// String says it in a sentence.
func (c Clock) String() string {
	switch {
	case c.Within < 0:
		return fmt.Sprintf("rank %d: no collective joins it to the first rank: how far its clock is off is not known", c.Rank)
	case c.Within == 0 && c.Add == 0:
		return fmt.Sprintf("rank %d: the same clock", c.Rank)
	}
	return fmt.Sprintf("rank %d: %+.3f ms, within %.3f ms", c.Rank, ms(int64(c.Add)), ms(int64(c.Within)))
}

// gap holds the bounds of what must be added to a clock, when another one is right.
type gap struct{ lo, hi int64 }

// middle is the best guess, and how far it may be wrong. The bounds of clocks that drift contradict each other: then lo is above hi.
func (g gap) middle() (add, within int64) {
	return g.lo + (g.hi-g.lo)/2, max((g.hi-g.lo+1)/2, (g.lo-g.hi+1)/2)
}

// Align puts all ranks on the clock of the first one. A member of a collective ends after the others began: with a and b the spans of two ranks
// and x what must be added to b, a.start <= b.end + x and b.start + x <= a.end. Over many collectives that leaves x little room, about as much
// as the fastest one took; the middle of it is taken. The ranks of a host share a clock, unless these bounds say that they do not.
func Align(ranks []Rank) []Clock {
	met := meetings(ranks)
	owner := map[string]int{}
	clockOf := make([]int, len(ranks)) // by rank: a clock has the number of the first rank that has it
	for i, r := range ranks {
		if _, known := owner[r.Host]; !known {
			owner[r.Host] = i
		}
		clockOf[i] = owner[r.Host]
	}
	gaps, sound := boundGaps(met, clockOf)
	if !sound {
		for i := range clockOf {
			clockOf[i] = i
		}
		gaps, _ = boundGaps(met, clockOf)
	}
	found := spread(gaps, clockOf)
	clocks := make([]Clock, len(ranks))
	for i := range ranks {
		clocks[i] = found[clockOf[i]]
		clocks[i].Rank = ranks[i].Rank
		for k := range ranks[i].Spans {
			ranks[i].Spans[k].Start += int64(clocks[i].Add)
			ranks[i].Spans[k].End += int64(clocks[i].Add)
		}
	}
	return clocks
}

// spread sets the clocks one by one, from the first one on: next is always the one with the least room beside one that is set.
func spread(gaps map[[2]int]gap, clockOf []int) map[int]Clock {
	found := map[int]Clock{}
	for _, first := range clockOf {
		if _, done := found[first]; done {
			continue
		}
		found[first] = Clock{Within: -1} // nobody that is set has met it
		if len(found) == 1 {
			found[first] = Clock{}
		}
		for {
			next, best := [2]int{-1, -1}, int64(math.MaxInt64)
			for pair, g := range gaps {
				_, from := found[pair[0]]
				_, to := found[pair[1]]
				if _, within := g.middle(); from && !to && cmp.Or(cmp.Compare(within, best), slices.Compare(pair[:], next[:])) < 0 {
					next, best = pair, within
				}
			}
			if next[0] < 0 {
				break
			}
			from := found[next[0]]
			add, within := gaps[next].middle()
			c := Clock{Add: from.Add + time.Duration(add), Within: -1}
			if from.Within >= 0 {
				c.Within = from.Within + time.Duration(within)
			}
			found[next[1]] = c
		}
	}
	return found
}

// boundGaps returns the bounds of pairs of clocks whose ranks met, both ways, and whether nothing contradicts that these are clocks. The first
// member of each collective stands for all: with many ranks, all pairs would be too many.
func boundGaps(met []*meeting, clockOf []int) (gaps map[[2]int]gap, sound bool) {
	gaps, sound = map[[2]int]gap{}, true
	narrow := func(from, to part) {
		key := [2]int{clockOf[from.at], clockOf[to.at]}
		g, known := gaps[key]
		if !known {
			g = gap{math.MinInt64, math.MaxInt64}
		}
		gaps[key] = gap{max(g.lo, from.start-to.end), min(g.hi, from.end-to.start)}
	}
	for _, m := range met {
		if !exact(m.name) {
			continue
		}
		for _, p := range m.parts[1:] {
			narrow(m.parts[0], p)
			narrow(p, m.parts[0])
		}
	}
	for pair, g := range gaps {
		if g.lo > g.hi || pair[0] == pair[1] && (g.lo > 0 || g.hi < 0) {
			sound = false
		}
	}
	return gaps, sound
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

package dist

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/ranks"
)

// flights are entries of the flight recorders of several ranks that are alike but for their times, which are in nanoseconds.
type flights struct {
	record
	of          []int
	first, last int64 // when the operation was issued
	quick, slow int64 // how long it took
}

// flightText returns the last operations of the ranks: all that are in flight, and up to n before them of each rank. Ranks that
// did the same share a line.
func flightText(list []*Rank, n int) string {
	var all []*flights
	at := map[record]*flights{}
	for _, r := range list {
		for _, rec := range r.c.lastFlights(n) {
			alike, took := rec, rec.ended-rec.issued
			alike.issued, alike.ended = 0, min(rec.ended, 1)
			f := at[alike]
			if f == nil {
				f = &flights{record: rec, first: rec.issued, last: rec.issued, quick: took, slow: took}
				at[alike], all = f, append(all, f)
			}
			f.of = append(f.of, r.c.rank)
			f.first, f.last = min(f.first, rec.issued), max(f.last, rec.issued)
			f.quick, f.slow = min(f.quick, took), max(f.slow, took)
		}
	}
	var b strings.Builder
	for _, f := range all {
		b.WriteString(f.String())
	}
	return b.String()
}

// lastFlights returns what flightText writes of one rank.
func (c *comm) lastFlights(n int) (list []record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := max(0, c.flights-flightSize); i < c.flights; i++ {
		if r := c.flight[i%flightSize]; i >= c.flights-n || r.ended == 0 {
			list = append(list, r)
		}
	}
	return list
}

// String is a line such as "ranks 0-6, 8: allreduce by ring seq 1 of group world, 16 bytes, at 0.041 to 0.043 s, in flight".
func (f *flights) String() string {
	by, state := "", "in flight"
	if f.algo != "" {
		by = " by " + f.algo
	}
	if f.ended != 0 {
		state = "took " + fromTo("%.1f", float64(f.quick)/1e3, float64(f.slow)/1e3) + " µs"
	}
	return fmt.Sprintf("%s: %s%s seq %d of group %s, %d bytes, at %s s, %s\n", ranks.Names(f.of...), f.kind, by, f.seq, f.group, f.bytes,
		fromTo("%.6f", float64(f.first)/1e9, float64(f.last)/1e9), state)
}

func fromTo(format string, lo, hi float64) string {
	s, t := fmt.Sprintf(format, lo), fmt.Sprintf(format, hi)
	if s == t {
		return s
	}
	return s + " to " + t
}

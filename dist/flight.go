package dist

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/ranks"
	"github.com/ringo-ml/ringo/internal/trace"
)

const flightSize = 256

// flightEntry is an entry of the flight recorder. Times are in nanoseconds of comm.now.
type flightEntry struct {
	group         string
	name          string // in traces
	algo          string // the algorithm; "": the engine does not say
	kind          backend.Kind
	seq           uint64
	bytes         int
	root          int32
	issued, ended int64 // ended is 0 while the operation is in flight
}

// noteIssued notes that operation seq was issued.
func (c *comm) noteIssued(l *lane, op *backend.Op) {
	r := &c.entries[c.entryCount%flightSize]
	*r = flightEntry{group: l.g.name, kind: op.Kind, name: op.Kind.String(), seq: op.Seq, bytes: max(op.Src.Bytes, op.Dst.Bytes),
		root: l.root(op), issued: c.now()}
	if by := l.choose(op); by != nil {
		r.algo, r.name = by.algo, by.name
	}
	l.slot(op.Seq).flightEntry, l.slot(op.Seq).issued = c.entryCount, r.issued
	c.entryCount++
}

// root is the world rank of the root of op; 0 if op has no root.
func (l *lane) root(op *backend.Op) int32 {
	switch op.Kind {
	case backend.Broadcast, backend.Reduce, backend.Gather, backend.Scatter:
		return int32(l.ranks[op.Root])
	}
	return 0
}

// noteFinished notes that operation seq is over; it ended when the lane last made progress.
func (c *comm) noteFinished(l *lane, seq uint64) {
	if r := c.flightOf(l, seq); r != nil {
		r.ended = l.lastProgress
		c.trace.Add(r.span(l, trace.Comm, r.issued, r.ended))
	}
}

// flightOf returns the entry of an operation that still has its slot; nil if it was overwritten.
func (c *comm) flightOf(l *lane, seq uint64) *flightEntry {
	i := l.slot(seq).flightEntry
	if c.entryCount-i > flightSize {
		return nil
	}
	return &c.entries[i%flightSize]
}

// span is what a trace shows of an operation on lane l.
func (r *flightEntry) span(l *lane, t trace.Track, start, end int64) trace.Span {
	return trace.Span{Name: r.name, Track: t, Root: r.root, Lane: l.traced, Seq: r.seq, Start: start, End: end, Arg: int64(r.bytes)}
}

// waitOf is the span of a wait for operation seq, before its times are set.
func (c *comm) waitOf(l *lane, seq uint64) trace.Span {
	if r := c.flightOf(l, seq); r != nil && r.seq == seq {
		return r.span(l, trace.Waits, 0, 0)
	}
	return trace.Span{Name: "wait", Track: trace.Waits, Lane: l.traced, Seq: seq}
}

// flights are entries of several ranks that differ only in their times. Times are in nanoseconds.
type flights struct {
	flightEntry
	of          []int
	first, last int64 // when the operation was issued
	quick, slow int64 // how long it took
}

// flightText returns the last operations of the ranks: of each rank all that are in flight, and up to n before them. Ranks that did the
// same share a line.
func flightText(list []*Rank, n int) string {
	var all []*flights
	at := map[flightEntry]*flights{}
	for _, r := range list {
		for _, rec := range r.c.lastFlights(n) {
			alike, took := rec, rec.ended-rec.issued
			alike.issued, alike.ended = 0, min(rec.ended, 1)
			f := at[alike]
			if f == nil {
				f = &flights{flightEntry: rec, first: rec.issued, last: rec.issued, quick: took, slow: took}
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

// lastFlights returns the entries of one rank for flightText.
func (c *comm) lastFlights(n int) (list []flightEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := max(0, c.entryCount-flightSize); i < c.entryCount; i++ {
		if r := c.entries[i%flightSize]; i >= c.entryCount-n || r.ended == 0 {
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

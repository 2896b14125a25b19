package dist

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Stats counts what a group did on this rank, by kind of operation. Payload is what the caller asked for: the larger one
// of input and output. Wire is what the rank moved: bytes written to connections, or read from and written to the memory
// of peers. It is counted where it happens, not computed.
type Stats struct {
	Calls, Payload, Wire map[string]uint64
	Headers              uint64 // bytes that framing adds to Wire
	// Ran counts calls by kind and the algorithm that ran, forced or chosen, spelled as RINGO_ALGO does:
	// "allreduce:ring".
	Ran map[string]uint64
}

// Stats returns the counters of this rank, messages included.
func (g *Group) Stats() Stats {
	s := Stats{map[string]uint64{}, map[string]uint64{}, map[string]uint64{}, 0, map[string]uint64{}}
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.eachLane(func(l *lane) {
		if l.be == nil {
			return
		}
		k := l.be.Counters()
		s.Headers += k.Headers.Load()
		for i := range k.Wire {
			if n := k.Wire[i].Load(); n > 0 {
				s.Wire[backend.Kind(i).String()] += n
			}
		}
	})
	for _, r := range g.ran {
		s.Ran[r.name] = r.calls
	}
	for i := range g.calls {
		if g.calls[i] > 0 {
			s.Calls[backend.Kind(i).String()] = g.calls[i]
			s.Payload[backend.Kind(i).String()] = g.payload[i]
		}
	}
	return s
}

// WireBytes returns the sum of Wire.
func (s Stats) WireBytes() uint64 {
	n := uint64(0)
	for _, b := range s.Wire {
		n += b
	}
	return n
}

// flightText returns the last operations of the rank: all that are in flight, and up to n before them.
func (c *comm) flightText(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	first := max(0, c.flights-flightSize)
	for i := first; i < c.flights; i++ {
		r := c.flight[i%flightSize]
		if i < c.flights-n && r.ended != 0 {
			continue
		}
		state, by := "in flight", ""
		if r.algo != "" {
			by = " by " + r.algo
		}
		if r.ended != 0 {
			state = fmt.Sprintf("took %.1f µs", float64(r.ended-r.issued)/1e3)
		}
		fmt.Fprintf(&b, "rank %d: %s%s seq %d of group %s, %d bytes, at %.6f s, %s\n", c.rank, r.kind, by, r.seq, r.group, r.bytes,
			float64(r.issued)/1e9, state)
	}
	return b.String()
}

package dist

import (
	"github.com/ringo-ml/ringo/dist/backend"
)

// Stats counts what a group did on this rank, by kind of operation. Payload is what the caller asked for: the larger one of input and
// output. Wire is what the rank moved: bytes written to connections, or read from and written to the memory of peers. All are counted
// when they happen, not computed.
type Stats struct {
	Calls, Payload, Wire map[string]uint64
	Headers              uint64 // bytes that framing adds; they are not in Wire
	// Ran counts calls by kind and algorithm, forced or chosen, in the form of RINGO_ALGO: "allreduce:ring".
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
	for _, r := range g.algoCalls {
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

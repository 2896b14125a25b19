package faultnet

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Kind is something that goes wrong with one write.
type Kind uint8

// The faults. Cut ends the whole connection; after Mute nothing of this direction arrives any more.
const (
	Drop Kind = iota
	Duplicate
	Swap // with the next write
	Corrupt
	Cut
	Mute
	// NumKinds is the number of faults.
	NumKinds = iota
)

var names = [NumKinds]string{"drop", "duplicate", "swap", "corrupt", "cut", "mute"}

// String returns the name.
func (k Kind) String() string { return names[k] }

// Fault happens to one write of a direction, counted from 0.
type Fault struct {
	Kind Kind
	At   int
}

// Plan is what happens in one direction of a connection.
type Plan struct {
	Seed   uint64        // of the delays, and of the bits that Corrupt changes
	Delay  time.Duration // one write in eight takes up to so long; writes never overtake each other
	Buffer int           // bytes that may be on the way before Write waits; 0: no limit
	Fault  *Fault        // nil: none
	Hit    func()        // called when the fault happens; may be nil
}

// String says what goes wrong.
func (p Plan) String() string {
	s := "no fault"
	if p.Fault != nil {
		s = fmt.Sprintf("%v of write %d", p.Fault.Kind, p.Fault.At)
	}
	return fmt.Sprintf("%s, delay up to %v, buffer %d", s, p.Delay, p.Buffer)
}

// corrupted returns a copy of b with one bit changed.
func corrupted(b []byte, rng *rand.Rand) []byte {
	out := append([]byte(nil), b...)
	if len(out) > 0 {
		out[rng.IntN(len(out))] ^= 1 << rng.IntN(8)
	}
	return out
}

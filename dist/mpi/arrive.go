package mpi

import (
	"math/bits"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Before an operation moves data, its ranks agree that they have all issued the same one. MPI does not check that: it would hang, or
// write wrong data. They exchange fingerprints by dissemination (Hensgen, Finkel, Manber 1988): in round k a rank tells the one 2^k
// further, and goes on when it has heard from the one 2^k before, so after ⌈lg n⌉ rounds each rank has heard of all. In an AllToAllV each
// rank tells each other one the number of elements instead. Several operations may be in their rounds at the same time.

// arrival is what this rank has heard of operation seq.
type arrival struct {
	seq   uint64
	heard []heard // before this rank issued it
	got   uint64  // rounds, or ranks of an AllToAllV
	sent  int     // rounds
	bad   bool    // a fingerprint differed
	all   bool
}

type heard struct {
	from  int
	print uint64
	a     int64
}

// arrival returns what is known of operation seq, or nil if it is over.
func (b *endpoint) arrival(seq uint64) *arrival {
	a := &b.arrivals[seq%history]
	if a.seq < seq {
		*a = arrival{seq: seq, heard: a.heard[:0]}
	}
	if a.seq != seq {
		return nil
	}
	return a
}

func (b *endpoint) rounds() int { return bits.Len(uint(len(b.spec.Ranks) - 1)) }

// arrive tells the others that this rank has issued an operation.
func (b *endpoint) arrive(op *backend.Op) {
	a := b.arrival(op.Seq)
	if op.Kind == backend.AllToAllV {
		for i, r := range b.spec.Ranks {
			if i != b.spec.Rank {
				b.e.post(r, head{kind: msgArrive, id: b.spec.ID, seq: op.Seq, print: b.op(op.Seq).Print, a: int64(op.SrcCounts[i])}, nil)
			}
		}
	}
	for _, h := range a.heard {
		b.hear(a, h)
	}
	b.advance(a, op)
}

// receiveArrival handles the message of a peer.
func (b *endpoint) receiveArrival(from int, m *message) {
	a, h := b.arrival(m.seq), heard{from, m.print, m.a}
	switch {
	case a == nil:
	case m.seq > b.issued:
		a.heard = append(a.heard, h)
	default:
		b.hear(a, h)
		b.advance(a, &b.op(m.seq).Copy)
	}
}

// hear compares a fingerprint.
func (b *endpoint) hear(a *arrival, h heard) {
	s := b.op(a.seq)
	switch {
	case b.err != nil:
	case h.print != s.Print:
		a.bad = true
		b.accuse(h.from, a.seq)
	case s.Copy.Kind != backend.AllToAllV:
		a.got |= 1 << h.a
	case int(h.a) != s.Copy.DstCounts[h.from]:
		a.bad = true
		b.fail(backend.RowsMismatch(&s.Copy, b.spec.Name, b.spec.Ranks[h.from], b.e.rank, int(h.a), s.Copy.DstCounts[h.from],
			s.Copy.Row), true)
	default:
		a.got++
	}
}

// advance sends the rounds that may be sent, and notes when all ranks have arrived.
func (b *endpoint) advance(a *arrival, op *backend.Op) {
	if a.bad || b.err != nil {
		return
	}
	n := len(b.spec.Ranks)
	if op.Kind == backend.AllToAllV {
		a.all = int(a.got) == n-1
	} else {
		for a.sent < b.rounds() && bits.TrailingZeros64(^a.got) >= a.sent {
			to := b.spec.Ranks[(b.spec.Rank+1<<a.sent)%n]
			b.e.post(to, head{kind: msgArrive, id: b.spec.ID, seq: a.seq, print: b.op(a.seq).Print, a: int64(a.sent)}, nil)
			a.sent++
		}
		a.all = bits.TrailingZeros64(^a.got) >= b.rounds()
	}
	for b.agreed < b.issued {
		next := b.arrival(b.agreed + 1)
		if next == nil || !next.all {
			break
		}
		b.agreed++
		b.e.moves++
	}
}

// unheard returns the ranks that have not told this one of operation seq.
func (b *endpoint) unheard(seq uint64) []int {
	n := len(b.spec.Ranks)
	a := b.arrival(seq)
	if a == nil || a.all || b.op(seq).Copy.Kind == backend.AllToAllV {
		return nil
	}
	k := bits.TrailingZeros64(^a.got)
	return []int{(b.spec.Rank - 1<<k + n<<k) % n}
}

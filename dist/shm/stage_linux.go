package shm

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// channelState is how far this rank is with one channel: pieces are put into slots in the order of the operations, and slots are
// free again when the piece has been taken (and, in an all-reduce, the result copied out of it).
type channelState struct {
	put, free       uint64 // pieces, in all
	putSeq, freeSeq uint64 // the operation whose turn it is
	putOff, freeOff int    // bytes of it that are done
}

// eachStep is how many pieces one Step puts into a channel, at most: as much work as algo.Direct does in one.
const eachStep = 2

// outgoing returns what goes through a channel for operation seq: nothing when it is not staged.
func (e *End) outgoing(channel int, seq uint64) (off, n int, op *backend.Op) {
	p := &e.own[seq%postings]
	if !e.staged[seq%postings] {
		return 0, 0, &p.Op
	}
	off, n, all := stream(&p.Op, e.n, e.me, channel)
	if all != (channel == e.me) {
		n = 0
	}
	return off, n, &p.Op
}

// taken returns how many pieces of a channel its readers are done with.
func (e *End) taken(channel int) uint64 {
	if channel != e.me {
		if b := e.view(channel); b != nil {
			return b.consumed(e.me).own.Load()
		}
		return 0
	}
	least := ^uint64(0)
	for i := range e.n {
		if i == e.me {
			continue
		}
		b := e.view(i)
		if b == nil {
			return 0
		}
		least = min(least, b.consumed(e.me).all.Load())
	}
	return least
}

// pump moves pieces between this rank's buffers and the slots. It reports whether it moved any.
func (e *End) pump() bool {
	if e.stagedLast < e.drainedTo {
		return false
	}
	some := false
	for c := range e.channels {
		f := &e.channels[c]
		if f.free < f.put && e.collect(c, f, e.direct.Done()+1) {
			some = true
		}
		for range eachStep {
			if f.put-f.free >= slots || !e.put(c, f) {
				break
			}
			some = true
		}
	}
	return some
}

// put copies the next piece into a slot, if there is one.
func (e *End) put(channel int, f *channelState) bool {
	for f.putSeq <= e.stagedLast {
		off, n, op := e.outgoing(channel, f.putSeq)
		if f.putOff >= n {
			f.putSeq, f.putOff = f.putSeq+1, 0
			continue
		}
		k := min(slotBytes, n-f.putOff)
		src := unsafe.Slice((*byte)(unsafe.Add(op.Src.Ptr, off+f.putOff)), k)
		kernel.Move(e.mine.slot(channel, f.put)[:k], src)
		f.putOff += k
		f.put++
		e.mine.channel(channel).Store(f.put)
		if channel == e.me {
			e.ringAll()
		} else {
			e.peer(channel).doorbell.ring()
		}
		return true
	}
	return false
}

// collect frees the slots that were taken, of operations up to last; results are copied out of them.
func (e *End) collect(channel int, f *channelState, last uint64) bool {
	some, limit := false, min(e.taken(channel), f.put)
	for f.freeSeq <= last && f.freeSeq <= e.stagedLast {
		off, n, op := e.outgoing(channel, f.freeSeq)
		if f.freeOff >= n {
			f.freeSeq, f.freeOff = f.freeSeq+1, 0
			continue
		}
		if f.free >= limit {
			break
		}
		k := min(slotBytes, n-f.freeOff)
		if op.Kind == backend.AllReduce {
			dst := unsafe.Slice((*byte)(unsafe.Add(op.Dst.Ptr, off+f.freeOff)), k)
			kernel.Move(dst, e.mine.slot(channel, f.free)[:k])
		}
		f.freeOff += k
		f.free++
		some = true
	}
	return some
}

// collectAll collects what operations up to seq, which all ranks are done with, left in the slots.
func (e *End) collectAll(seq uint64) {
	if e.stagedLast < e.drainedTo {
		return
	}
	for c := range e.channels {
		e.collect(c, &e.channels[c], seq)
	}
	e.drainedTo = seq + 1
}

// Input returns bytes lo to hi of the input of peer: from its heap all, from a slot what is in it.
func (e *End) Input(peer, lo, hi int) ([]byte, bool) {
	p := &e.remote[peer]
	if e.peerErr != nil {
		return nil, false
	}
	if !p.staged {
		return e.inHeap(peer, p.src, lo, hi)
	}
	b, channel, at, ok := e.piece(peer, p, lo, hi)
	if !ok {
		return nil, false
	}
	k := p.taken[channelOf(p)] + uint64(at/slotBytes)
	e.takeUpTo(peer, p, k) // those before it are done with
	if b.channel(channel).Load() <= k {
		return nil, false
	}
	at %= slotBytes
	return b.slot(channel, k)[at:min(at+hi-lo, slotBytes)], true
}

// Output returns where bytes lo to hi of the result of peer go.
func (e *End) Output(peer, lo, hi int) []byte {
	p := &e.remote[peer]
	if e.peerErr != nil {
		return nil
	}
	if !p.staged {
		out, _ := e.inHeap(peer, p.dst, lo, hi)
		return out
	}
	b, channel, at, ok := e.piece(peer, p, lo, hi)
	if !ok {
		return nil
	}
	k := p.taken[channelOf(p)] + uint64(at/slotBytes)
	at %= slotBytes
	return b.slot(channel, k)[at:min(at+hi-lo, slotBytes)]
}

func (e *End) inHeap(peer int, r ref, lo, hi int) ([]byte, bool) {
	s := e.peer(peer).heap
	if lo < 0 || hi < lo || uint64(hi) > r.n {
		e.setPeerErr(s.errorf("operation %d of group %s refers to %d bytes at %#x, and bytes %d to %d are needed",
			e.remote[peer].seq, e.spec.Name, r.n, r.off, lo, hi))
		return nil, false
	}
	return s.b[int(r.off)+lo : int(r.off)+hi], true
}

// piece finds bytes lo to hi among what this rank reads of peer's input: the channel, and the place in its stream.
func (e *End) piece(peer int, p *peerPosting, lo, hi int) (b *block, channel, at int, ok bool) {
	at = lo - p.off
	if at < 0 || hi < lo || hi-p.off > p.n {
		e.setPeerErr(e.peer(peer).ctl.errorf("operation %d of group %s gives this rank bytes %d to %d, and %d to %d are needed",
			p.seq, e.spec.Name, p.off, p.off+p.n, lo, hi))
		return nil, 0, 0, false
	}
	channel = e.me
	if p.all {
		channel = peer
	}
	return e.view(peer), channel, at, true
}

func channelOf(p *peerPosting) int {
	if p.all {
		return 1
	}
	return 0
}

// takeUpTo tells peer that this rank is done with its first k pieces.
func (e *End) takeUpTo(peer int, p *peerPosting, k uint64) {
	t := e.mine.consumed(peer)
	n := &t.own
	if p.all {
		n = &t.all
	}
	if n.Load() < k {
		n.Store(k)
		e.peer(peer).doorbell.ring()
	}
}

// takeAll ends the current operation: this rank is done with all that the peers put into slots for it.
func (e *End) takeAll() {
	for i := range e.remote {
		p := &e.remote[i]
		if i == e.me || !p.staged || p.n == 0 {
			continue
		}
		n := &p.taken[channelOf(p)]
		*n += uint64((p.n + slotBytes - 1) / slotBytes)
		e.takeUpTo(i, p, *n)
	}
}

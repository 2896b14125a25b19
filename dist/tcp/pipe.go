package tcp

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Flow control is by credit. A sender may have a window of bytes on the way, headers included, that the receiver has not taken
// yet. The receiver buffers at most a window of each peer and group for messages that nobody has asked for. So the reader of a
// connection never waits for a worker, and one group never holds up another.
//
// The window holds backend.Depth small messages. At a latency of 1 ms each way it allows about 2 GB/s a peer and group.
const (
	smallMessage = 64 << 10 // Depth messages of this size are sent without waiting for the receiver
	window       = backend.Depth * (smallMessage + headerBytes)
	maxTags      = 8
	creditStep   = 256 << 10 // the receiver reports what it took in steps of this
)

// pipe carries the messages of one group between this rank and one peer.
type pipe struct {
	g    *group
	link *link

	// Guarded by g.mu:
	prints []print // operations that the peer has begun and this rank has not issued
	over   error   // the peer issues no operation after last, and why
	last   uint64
	forced string // the algorithm for which the peer opens the group over messages, though there is shared memory

	received, sent messageNumbers // the worker's
	lent           *buffer        // the worker's, until it takes the next one or ends the operation
	begun          atomic.Uint64  // last operation that the peer has sent something for

	mu     sync.Mutex
	cond   sync.Cond // the worker waits here
	err    error     // of the group
	closed bool      // the peer said goodbye
	queue  []message // arrived before it was asked for, in order
	queued int       // its cost
	opened bool      // the group is, here
	want   request
	taken  int // cost of what was taken and not yet reported
	flight int // cost of what was sent and not yet taken
}

type print struct{ seq, print uint64 }

// message is a frame that waits for its receiver.
type message struct {
	head header
	buf  *buffer
}

// request is what the worker waits for. At most one is open: a worker does one thing at a time.
type request struct {
	open, done bool
	seq, print uint64
	tag        uint8
	nth        uint32
	b          []byte
	n, got     int
	lend       bool    // b is not the worker's: it may be the buffer in which the message came
	buf        *buffer // that b lies in, where it is lent
	err        error   // the message does not fit
}

// messageNumbers numbers the messages of an operation: those with one tag, in order.
type messageNumbers struct {
	seq uint64
	n   [maxTags]uint32
}

func (c *messageNumbers) next(seq uint64, tag uint8) uint32 {
	if c.seq != seq {
		*c = messageNumbers{seq: seq}
	}
	c.n[tag]++
	return c.n[tag]
}

// messageMismatch is the error of a message that does not fit its receive: another fingerprint, or another length.
type messageMismatch struct {
	print bool
	total uint64
}

func (m *messageMismatch) Error() string {
	if m.print {
		return "fingerprints differ"
	}
	return fmt.Sprintf("message of %d bytes", m.total)
}

func newPipe(g *group, l *link) *pipe {
	p := &pipe{g: g, link: l}
	p.cond.L = &p.mu
	return p
}

func cost(payload int) int { return payload + headerBytes }

// matches reports whether the frame belongs to the open request.
func (r *request) matches(h *header) bool {
	return r.open && !r.done && r.seq == h.seq && r.tag == h.tag && r.nth == h.nth
}

// admit checks the frame against the request that it belongs to; a misfit ends the request.
func (r *request) admit(h *header) bool {
	switch {
	case r.print != h.print:
		r.err = &messageMismatch{print: true}
	case h.total != uint64(r.n):
		r.err = &messageMismatch{total: h.total}
	}
	r.done = r.err != nil
	return r.err == nil
}

// request opens a request for the message (seq, tag) that fills b, and takes what has already arrived.
func (p *pipe) request(seq uint64, tag uint8, print uint64, b []byte) {
	p.mu.Lock()
	p.want = request{open: true, seq: seq, tag: tag, nth: p.received.next(seq, tag), print: print, b: b, n: len(b)}
	p.search()
	p.mu.Unlock()
}

// lend opens a request for the message (seq, tag) of n bytes, wherever they are.
func (p *pipe) lend(seq uint64, tag uint8, print uint64, n int) {
	p.giveBack()
	p.mu.Lock()
	p.want = request{open: true, seq: seq, tag: tag, nth: p.received.next(seq, tag), print: print, n: n, lend: true}
	p.search()
	p.mu.Unlock()
}

// giveBack ends the use of what was lent.
func (p *pipe) giveBack() {
	p.lent.free()
	p.lent = nil
}

// search takes what has already arrived of the message that was asked for. p.mu is held.
func (p *pipe) search() {
	k := 0
	for _, m := range p.queue {
		if p.err == nil && p.want.matches(&m.head) {
			p.queued -= cost(int(m.head.length))
			p.take(&m)
		} else {
			p.queue[k] = m
			k++
		}
	}
	clear(p.queue[k:])
	p.queue = p.queue[:k]
}

// take moves a buffered frame into the open request.
func (p *pipe) take(m *message) {
	r := &p.want
	switch {
	case !r.admit(&m.head) || m.buf == nil:
	case r.lend && int(m.head.length) == r.n: // the whole message
		r.buf, m.buf = m.buf, nil
		r.b = r.buf.b[:r.n]
	default:
		if r.b == nil {
			r.buf = newBuffer(r.n)
			r.b = r.buf.b[:r.n]
		}
		copy(r.b[m.head.at():], m.buf.b[:m.head.length])
	}
	m.buf.free()
	p.took(&m.head)
}

// took accounts for a frame that has left the pipe, and ends the request when it was the last one of its message.
func (p *pipe) took(h *header) {
	if p.want.matches(h) {
		p.want.got += int(h.length)
		p.want.done = p.want.got >= p.want.n
	}
	p.credit(cost(int(h.length)))
}

// credit reports taken bytes to the sender, now and then.
func (p *pipe) credit(n int) {
	if p.taken += n; p.taken >= creditStep {
		p.link.post(&header{typ: frameCredit, gen: p.g.key.gen, group: p.g.key.id, total: uint64(p.taken)}, nil)
		p.taken = 0
	}
}

// cancel closes the request: nothing writes to its buffer any more.
func (p *pipe) cancel() {
	p.mu.Lock()
	p.want = request{}
	p.mu.Unlock()
}

// await waits for the message of the open request. After it returned nothing writes to the request's buffer.
func (p *pipe) await() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.want.done && p.err == nil && !p.closed {
		p.cond.Wait()
	}
	r := p.want
	p.want = request{}
	if r.buf != nil {
		p.lent = r.buf
	}
	switch {
	case r.done: // even if the group failed since
		return r.b, r.err
	case p.err != nil:
		return nil, p.err
	}
	return nil, p.g.peerError(p.link.peer, backend.ErrLeft)
}

// end wakes the worker with the group's error, or because the peer has left.
func (p *pipe) end(err error) {
	p.mu.Lock()
	if err == nil {
		p.closed = true
	} else if p.err == nil {
		p.err = err
		for _, m := range p.queue {
			m.buf.free()
		}
		if !p.opened {
			p.link.early.Add(-int64(p.queued))
		}
		p.queue, p.queued = nil, 0
	}
	p.cond.Broadcast()
	p.mu.Unlock()
}

// receive reads the payload of a data frame from the connection: into the buffer of the worker that waits for it, or into
// one of its own. An error ends the connection.
func (p *pipe) receive(h *header, w *wire) error {
	p.mu.Lock()
	direct := p.err == nil && p.want.matches(h) && p.want.admit(h) && !p.want.lend
	bad := p.want.done && p.want.err != nil
	err := p.checkRoom(h)
	p.mu.Unlock()
	if err != nil && !direct {
		return err
	}
	if direct {
		return p.receiveDirect(h, w)
	}
	if bad {
		p.mu.Lock()
		p.cond.Broadcast()
		p.mu.Unlock()
	}
	m := message{head: *h, buf: newBuffer(int(h.length))}
	if m.buf != nil {
		if err := w.fill(h, m.buf.b[:h.length]); err != nil {
			m.buf.free()
			return err
		}
	}
	p.g.counters.Received.Add(h.length)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		m.buf.free()
	case p.want.matches(h): // asked for while it was being read
		p.take(&m)
		p.cond.Broadcast()
	default:
		p.queue = append(p.queue, m)
		p.queued += cost(int(h.length))
		if !p.opened {
			p.link.early.Add(int64(cost(int(h.length))))
		}
	}
	return nil
}

// checkRoom returns an error when there is none to buffer the frame. p.mu is held.
func (p *pipe) checkRoom(h *header) error {
	n := cost(int(h.length))
	switch {
	case p.err != nil:
	case p.queued+n > window+maxPayload:
		return errors.New("sent more than its window")
	case !p.opened && p.link.early.Load()+int64(n) > maxEarlyBytes:
		return fmt.Errorf("sent more than %d MiB to groups that are not opened here", maxEarlyBytes>>20)
	}
	return nil
}

// open notes that the group is opened here: what it buffers no longer counts as early.
func (p *pipe) open() {
	p.mu.Lock()
	p.opened = true
	p.link.early.Add(-int64(p.queued))
	p.mu.Unlock()
}

// receiveDirect reads a payload in blocks. Each is copied to the worker's buffer under the lock, so that nothing is written once
// the worker has given up.
func (p *pipe) receiveDirect(h *header, w *wire) error {
	at := int(h.at())
	for left := int(h.length); left > 0; {
		n, err := w.await(left)
		if err != nil {
			return err
		}
		p.mu.Lock()
		var to []byte
		if p.want.matches(h) {
			to = p.want.b[at : at+n]
		}
		err = w.take(to)
		p.mu.Unlock()
		p.g.counters.Received.Add(uint64(n))
		if at, left = at+n, left-n; err != nil {
			return err
		}
	}
	if err := w.check(h); err != nil {
		return err
	}
	p.mu.Lock()
	p.took(h)
	if p.want.done {
		p.cond.Broadcast()
	}
	p.mu.Unlock()
	return nil
}

// buffer is memory from a pool of its size class.
type buffer struct {
	b     []byte
	class int
}

var pools [20]sync.Pool

// newBuffer returns n bytes at least, or nil for none.
func newBuffer(n int) *buffer {
	if n == 0 {
		return nil
	}
	class := bits.Len(uint(n - 1))
	if b, ok := pools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, 1<<class), class}
}

func (b *buffer) free() {
	if b != nil {
		pools[b.class].Put(b)
	}
}

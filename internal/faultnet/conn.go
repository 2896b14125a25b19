package faultnet

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Pair returns the two ends of a connection: there is the plan of what the first end writes, back that of the second.
//
// As with TCP, whoever closes an end that still has something to read, or is still written to, resets the connection: what
// the peer has not read by then is gone.
func Pair(there, back Plan) (net.Conn, net.Conn) {
	a, b := newStream(there), newStream(back)
	a.back, b.back = b, a
	return &conn{in: b, out: a}, &conn{in: a, out: b}
}

// packet is a write on its way.
type packet struct {
	b  []byte
	at time.Time // when it arrives
}

// stream is one direction.
type stream struct {
	plan Plan
	back *stream // the other direction

	mu           sync.Mutex
	cond         sync.Cond
	rng          *rand.Rand
	queue        []packet
	held         []byte // waits for the next write, to swap places
	size         int    // bytes in queue
	writes       int
	last         time.Time // arrival of the last packet
	muted        bool
	ended        bool         // the writer closed its end
	readerClosed bool         // the reader closed its end
	err          error        // of a connection that was reset
	deadline     [2]time.Time // of Read and of Write
}

func newStream(p Plan) *stream {
	s := &stream{plan: p, rng: rand.New(rand.NewPCG(p.Seed, 0))}
	s.cond.L = &s.mu
	return s
}

// write sends b; it takes a copy.
func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	for s.err == nil && !s.readerClosed && !s.ended && !s.late(1) && s.plan.Buffer > 0 && s.size >= s.plan.Buffer {
		s.cond.Wait()
	}
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return 0, net.ErrClosed
	case s.err != nil:
		return 0, s.err
	case s.readerClosed:
		go s.back.reset() // the answer to data that nobody will read
		return 0, broken("write", syscall.EPIPE)
	case s.late(1):
		return 0, os.ErrDeadlineExceeded
	}
	f := s.plan.Fault
	hit := f != nil && s.writes == f.At
	s.writes++
	if hit && s.plan.Hit != nil {
		s.plan.Hit()
	}
	if hit && f.Kind == Cut {
		s.drop()
		go s.back.reset()
		return 0, s.err
	}
	s.muted = s.muted || hit && f.Kind == Mute
	s.route(append([]byte(nil), b...), hit)
	return len(b), nil
}

// route puts a write on its way, or does to it what the plan says. s.mu is held.
func (s *stream) route(b []byte, hit bool) {
	if !hit {
		s.enqueue(b)
		if s.held != nil {
			s.enqueue(s.held)
			s.held = nil
		}
		return
	}
	switch s.plan.Fault.Kind {
	case Duplicate:
		s.enqueue(b)
		s.enqueue(b)
	case Swap:
		s.held = b
	case Corrupt:
		s.enqueue(corrupted(b, s.rng))
	}
}

// enqueue needs s.mu. What was muted still fills the buffer: nobody acknowledges it.
func (s *stream) enqueue(b []byte) {
	s.size += len(b)
	if s.muted {
		return
	}
	at := time.Now()
	if s.plan.Delay > 0 {
		if s.rng.IntN(8) == 0 {
			at = at.Add(time.Duration(s.rng.Int64N(int64(s.plan.Delay))))
		}
		if at.Before(s.last) {
			at = s.last
		}
		s.last = at
		if wait := time.Until(at); wait > 0 {
			time.AfterFunc(wait, s.wake)
		}
	}
	s.queue = append(s.queue, packet{b, at})
	s.cond.Broadcast()
}

func (s *stream) wake() {
	s.mu.Lock()
	s.cond.Broadcast()
	s.mu.Unlock()
}

// late reports whether the deadline of Read (0) or Write (1) has passed. s.mu is held.
func (s *stream) late(i int) bool {
	d := s.deadline[i]
	return !d.IsZero() && !time.Now().Before(d)
}

func (s *stream) setDeadline(i int, t time.Time) {
	s.mu.Lock()
	s.deadline[i] = t
	s.cond.Broadcast()
	s.mu.Unlock()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), s.wake)
	}
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerClosed:
			return 0, net.ErrClosed
		case s.late(0):
			return 0, os.ErrDeadlineExceeded
		case len(s.queue) > 0:
			if p := &s.queue[0]; !time.Now().Before(p.at) {
				n := copy(b, p.b)
				s.size -= n
				if p.b = p.b[n:]; len(p.b) == 0 {
					s.queue = s.queue[1:]
				}
				s.cond.Broadcast()
				return n, nil
			}
		case s.err != nil:
			return 0, s.err
		case s.ended && !s.muted:
			return 0, io.EOF
		}
		s.cond.Wait()
	}
}

// drop loses what is on the way. s.mu is held.
func (s *stream) drop() {
	if s.err == nil {
		s.err = broken("read", syscall.ECONNRESET)
	}
	s.queue, s.size = nil, 0
	s.cond.Broadcast()
}

// broken is err as the network would report it.
func broken(op string, err error) error {
	return &net.OpError{Op: op, Net: "faultnet", Addr: addr{}, Err: err}
}

// reset is drop, unless the news cannot arrive either.
func (s *stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.muted {
		s.drop()
	}
}

// conn is one end.
type conn struct{ in, out *stream }

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

func (c *conn) Close() error {
	c.in.mu.Lock()
	unread := len(c.in.queue) > 0
	c.in.readerClosed = true
	c.in.cond.Broadcast()
	c.in.mu.Unlock()
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if !c.out.ended && unread && !c.out.muted {
		c.out.drop()
	}
	c.out.ended = true
	c.out.cond.Broadcast()
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(0, t)
	c.out.setDeadline(1, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(0, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(1, t)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return addr{} }
func (c *conn) RemoteAddr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "faultnet" }
func (addr) String() string  { return "faultnet" }

package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tablePart  = 256                    // ranks that one frameTable lists
	lateComers = 500 * time.Millisecond // how long rank 0 stays to say why there will be no job
	twiceCheck = 100 * time.Millisecond // how long the end of a connection may take to be noticed
)

// meeting is a rendezvous in progress.
type meeting struct {
	e    *Engine
	conf *tls.Config
	end  context.CancelCauseFunc // of the context that everything here waits with

	mu      sync.Mutex
	all     bool          // everyone is here: who leaves now is lost
	failed  error         // ends the rendezvous for everyone
	told    int           // ranks that came too late for anything but failed
	changed chan struct{} // something to look at
}

func (m *meeting) signal() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// fail ends the meeting with its first error.
func (m *meeting) fail(err error) {
	m.mu.Lock()
	if m.failed == nil {
		m.failed = err
	}
	m.mu.Unlock()
	m.end(err)
	m.signal()
}

// because returns the error that ended the meeting, or else err.
func (m *meeting) because(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return m.failed
	}
	return err
}

func (m *meeting) hello(mesh bool) hello {
	return hello{member: m.e.self, Size: m.e.cfg.Size, Gen: m.e.cfg.Gen, Mesh: mesh}
}

// listen opens this rank's port.
func (m *meeting) listen() (net.Listener, error) {
	c := &m.e.cfg
	if c.Listener != nil {
		return c.Listener, nil
	}
	port := "0"
	if c.Rank == 0 {
		var host string
		host, port, _ = net.SplitHostPort(c.Addr)
		if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() && net.ParseIP(c.Bind).IsLoopback() {
			return nil, fmt.Errorf("tcp: rank 0 is to be reached at %s, but listens on %s only: set RINGO_BIND", c.Addr, c.Bind)
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(c.Bind, port))
	if err != nil {
		return nil, fmt.Errorf("tcp: rank %d: %w", c.Rank, err)
	}
	return l, nil
}

// host is rank 0's part: wait for everyone, then send the table.
func (m *meeting) host(ctx context.Context) error {
	l, err := m.listen()
	if err != nil {
		return err
	}
	d := newDoor(m.e, l, m.conf, m.greetJoin)
	defer d.close()
	if err := m.gather(ctx); err != nil {
		m.dismiss(err)
		return err
	}
	return m.sendTable()
}

// dismiss tells those who are here why there will be no job; when ranks disagree it waits a moment for the rest.
func (m *meeting) dismiss(err error) {
	here := m.joined()
	for _, l := range here {
		l.post(&header{typ: frameReject, gen: m.e.cfg.Gen}, reason(err))
	}
	t := time.NewTimer(lateComers)
	defer t.Stop()
	for {
		m.mu.Lock()
		enough := m.failed == nil || len(here)+m.told >= m.e.cfg.Size-1
		m.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-m.changed:
		case <-t.C:
			return
		}
	}
}

// attend is the part of every other rank: meet rank 0, get the table, connect to the rest.
func (m *meeting) attend(ctx context.Context) error {
	l, err := m.listen()
	if err != nil {
		return err
	}
	m.e.self.Addr = l.Addr().String()
	d := newDoor(m.e, l, m.conf, m.greetMesh)
	defer d.close()
	c, zero, err := dial(ctx, m.conf, m.e.cfg.Addr, "rank 0", m.hello(false))
	if err != nil {
		return err
	}
	table, err := m.readTable(ctx, c)
	if err != nil {
		c.NetConn().Close()
		return err
	}
	m.add(zero, c)
	for r := 1; r < m.e.cfg.Rank; r++ {
		c, _, err := dial(ctx, m.conf, table[r].Addr, table[r].String(), m.hello(true))
		if err != nil {
			return m.because(err)
		}
		m.add(table[r], c)
	}
	return m.gather(ctx)
}

// gather waits until a link to every rank is there.
func (m *meeting) gather(ctx context.Context) error {
	for {
		missing, err := m.state()
		if err != nil || len(missing) == 0 {
			return err
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			s := ""
			if len(missing) > 1 {
				s = "s"
			}
			return fmt.Errorf("tcp: %w: waiting for rank%s %s of %d", context.Cause(ctx), s, strings.Join(missing, ","),
				m.e.cfg.Size)
		}
	}
}

// state returns the ranks that are not connected yet. Once there is none, nobody comes or goes any more.
func (m *meeting) state() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return nil, m.failed
	}
	var missing []string
	for r, l := range m.e.links {
		if l == nil && r != m.e.cfg.Rank {
			missing = append(missing, strconv.Itoa(r))
		}
	}
	m.all = len(missing) == 0
	return missing, nil
}

func (m *meeting) joined() []*link {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*link
	for _, l := range m.e.links {
		if l != nil {
			out = append(out, l)
		}
	}
	return out
}

// leave handles the end of a connection. At rank 0, the rank may come again until everyone is here. At other ranks, the
// table is there, and who is lost does not come again; rank 0 is given a moment to say who was lost first.
func (m *meeting) leave(l *link, cause error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := l.peer.Rank
	if m.all || m.e.links[r] != l {
		return false
	}
	m.e.links[r] = nil
	lost := lostWhileMeeting(l, cause)
	switch {
	case m.e.cfg.Rank == 0:
		m.signal()
	case r == 0:
		go m.fail(lost)
	default:
		time.AfterFunc(lastWords, func() { m.fail(lost) })
	}
	return true
}

func lostWhileMeeting(l *link, cause error) error {
	return fmt.Errorf("tcp: %v was lost while the ranks met: %w", l.peer, cause)
}

// add makes a link of a connection that is through with its greetings.
func (m *meeting) add(peer member, c *tls.Conn) {
	l := newLink(m.e, peer, c)
	m.mu.Lock()
	m.e.links[peer.Rank] = l
	m.mu.Unlock()
	l.start()
	m.signal()
}

// greetJoin is rank 0's answer to a hello.
func (m *meeting) greetJoin(h hello, c *tls.Conn) error {
	if h.Gen != m.e.cfg.Gen {
		return fmt.Errorf("tcp: generation %d is over, this is generation %d", h.Gen, m.e.cfg.Gen)
	}
	if h.Mesh {
		return errors.New("tcp: rank 0 expects no connection of the mesh")
	}
	m.awaitEnd(h.Rank)
	m.mu.Lock()
	err := m.failed
	if err == nil {
		if err = m.objection(&h); err != nil && !m.all {
			m.failed = err // nobody can tell who is right: the job does not start
		}
	}
	if err != nil {
		m.told++
		m.mu.Unlock()
		m.signal()
		return err
	}
	l := newLink(m.e, h.member, c)
	m.e.links[h.Rank] = l
	m.mu.Unlock()
	m.welcome(l)
	return nil
}

// awaitEnd gives the connection that rank had a moment to end: a rank that died may come again.
func (m *meeting) awaitEnd(rank int) {
	m.mu.Lock()
	var l *link
	if rank > 0 && rank < len(m.e.links) {
		l = m.e.links[rank]
	}
	m.mu.Unlock()
	if l == nil {
		return
	}
	t := time.NewTimer(twiceCheck)
	defer t.Stop()
	select {
	case <-l.bye:
	case <-t.C:
	}
}

// objection says why a rank may not join. m.mu is held.
func (m *meeting) objection(h *hello) error {
	cfg := &m.e.cfg
	switch {
	case h.Size != cfg.Size:
		return fmt.Errorf("tcp: ranks disagree about the size of the job: %d (%v) vs %d (%v)", cfg.Size, m.e.self, h.Size, h.member)
	case h.Rank < 0 || h.Rank >= cfg.Size:
		return fmt.Errorf("tcp: %v joined a job of ranks 0 to %d", h.member, cfg.Size-1)
	}
	earlier := m.e.self
	if h.Rank != 0 {
		l := m.e.links[h.Rank]
		if l == nil {
			return nil
		}
		earlier = l.peer
	}
	return fmt.Errorf("tcp: rank %d joined twice: host %s and host %s", h.Rank, earlier.where(), h.where())
}

// greetMesh is the answer of any other rank to the hello of a higher one.
func (m *meeting) greetMesh(h hello, c *tls.Conn) error {
	cfg := &m.e.cfg
	m.mu.Lock()
	ok := h.Mesh && h.Gen == cfg.Gen && h.Size == cfg.Size && h.Rank > cfg.Rank && h.Rank < cfg.Size
	if !ok || m.e.links[h.Rank] != nil {
		m.mu.Unlock()
		return fmt.Errorf("tcp: %v expects no connection from %v", m.e.self, h.member)
	}
	l := newLink(m.e, h.member, c)
	m.e.links[h.Rank] = l
	m.mu.Unlock()
	m.welcome(l)
	return nil
}

// welcome answers a hello and starts the link. When that fails, the link's reader finds out.
func (m *meeting) welcome(l *link) {
	err := writeJSON(l.conn, frameWelcome, m.e.cfg.Gen, m.hello(false))
	if err == nil {
		err = l.raw.SetDeadline(time.Time{})
	}
	if err != nil {
		l.raw.Close()
	}
	l.start()
	m.signal()
}

// sendTable tells everyone who and where all ranks are.
func (m *meeting) sendTable() error {
	table := make([]member, m.e.cfg.Size)
	table[0] = m.e.self
	for _, l := range m.joined() {
		table[l.peer.Rank] = l.peer
	}
	for lo := 0; lo < len(table); lo += tablePart {
		b, err := marshalTable(table[lo:min(lo+tablePart, len(table))])
		if err != nil {
			return err
		}
		for _, l := range m.joined() {
			l.raw.SetWriteDeadline(time.Now().Add(handshakeTime))
			h := header{typ: frameTable, gen: m.e.cfg.Gen, length: uint64(len(b))}
			if err := l.write(&h, b, nil); err != nil { // not posted: the first message of a group must not overtake it
				return fmt.Errorf("tcp: sending %v the list of ranks: %w", l.peer, err)
			}
			l.raw.SetWriteDeadline(time.Time{})
		}
	}
	return nil
}

// readTable waits for rank 0's table.
func (m *meeting) readTable(ctx context.Context, c *tls.Conn) ([]member, error) {
	stop := context.AfterFunc(ctx, func() { c.NetConn().SetReadDeadline(time.Now()) })
	defer stop()
	var table []member
	for len(table) < m.e.cfg.Size {
		var part []member
		err := readJSON(c, frameTable, &part)
		var no rejected
		switch {
		case errors.As(err, &no):
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("tcp: %w: rank %d waits for rank 0 at %s, which waits for the others", context.Cause(ctx),
				m.e.cfg.Rank, m.e.cfg.Addr)
		case err != nil:
			return nil, fmt.Errorf("tcp: rank %d lost rank 0 at %s while waiting for the others: %w", m.e.cfg.Rank, m.e.cfg.Addr, err)
		case len(part) == 0:
			return nil, errors.New("tcp: rank 0 sent an empty table")
		}
		table = append(table, part...)
	}
	return table, nil
}

package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	all     bool          // everyone is here: nobody may come again
	over    bool          // and connected: who leaves now is lost
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
	return hello{member: m.e.self, Size: m.e.cfg.Size, Gen: m.e.cfg.Gen, Plain: m.e.cfg.Plain, Mesh: mesh}
}

// host is rank 0's part: wait for everyone, then send the table and let them connect.
func (m *meeting) host(ctx context.Context) error {
	l, err := m.listen()
	if err != nil {
		return err
	}
	d := newDoor(m.e, l, m.conf, m.greetJoin)
	defer d.close()
	err = m.gather(ctx, func(*link) bool { return true })
	if err == nil {
		err = m.sendTable()
	}
	if err == nil {
		err = m.gather(ctx, (*link).complete)
	}
	if err != nil {
		m.dismiss(err)
	}
	return err
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
	c, zero, err := dial(ctx, m.conf, m.e.cfg.Addr, member{}, m.hello(false))
	if err != nil {
		return err
	}
	table, err := m.readTable(ctx, c)
	if err != nil {
		c.NetConn().Close()
		return err
	}
	return m.connect(ctx, m.add(zero, c), table)
}

// connect makes the rest of the connections: rank 0's for data, and all of those to the ranks below this one.
func (m *meeting) connect(ctx context.Context, zero *link, table []member) error {
	err := m.dialData(ctx, zero, m.e.cfg.Addr)
	for r := 1; r < m.e.cfg.Rank && err == nil; r++ {
		var c *tls.Conn
		if c, _, err = dial(ctx, m.conf, table[r].Addr, table[r], m.hello(true)); err == nil {
			err = m.dialData(ctx, m.add(table[r], c), table[r].Addr)
		}
	}
	if err != nil && !errors.Is(err, errClosing) { // else its reader has found the reason, and ends the meeting
		return m.because(err)
	}
	return m.gather(ctx, (*link).complete)
}

// gather waits until a link to every rank is there that is ready.
func (m *meeting) gather(ctx context.Context, ready func(*link) bool) error {
	for {
		missing, err := m.state(ready)
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

// state returns the ranks that are not connected yet. Once there is none, nobody comes any more, and once all connections
// are complete, nobody goes.
func (m *meeting) state(ready func(*link) bool) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return nil, m.failed
	}
	var missing []string
	complete := true
	for r, l := range m.e.links {
		if r != m.e.cfg.Rank && (l == nil || !ready(l)) {
			missing = append(missing, strconv.Itoa(r))
		}
		complete = complete && (r == m.e.cfg.Rank || l != nil && l.complete())
	}
	m.all = m.all || len(missing) == 0
	m.over = complete
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

// leave handles the end of a connection. At rank 0, the rank may come again until everyone is here; then it is lost. At other ranks, the
// table is there, and who is lost does not come again; rank 0 is given a moment to say who was lost first.
func (m *meeting) leave(l *link, cause error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := l.peer.Rank
	if m.over || m.e.links[r] != l {
		return false
	}
	m.e.links[r] = nil
	lost := lostWhileMeeting(l, cause)
	if g := l.gaveUp.Load(); g != nil {
		lost = g
	}
	switch {
	case m.e.cfg.Rank == 0 && !m.all:
		m.signal()
	case r == 0 || m.e.cfg.Rank == 0:
		go m.fail(lost)
	default:
		time.AfterFunc(lastWords, func() { m.fail(lost) })
	}
	return true
}

func lostWhileMeeting(l *link, cause error) error {
	return &lostMember{l.peer.Rank, fmt.Errorf("tcp: %v was lost while the ranks met: %w", l.peer, cause)}
}

// add makes a link of a connection that is through with its greetings.
func (m *meeting) add(peer member, c *tls.Conn) *link {
	l := newLink(m.e, peer, c)
	l.expect()
	m.mu.Lock()
	m.e.links[peer.Rank] = l
	m.mu.Unlock()
	l.start()
	m.signal()
	return l
}

// greetJoin is rank 0's answer to a hello.
func (m *meeting) greetJoin(h hello, c *tls.Conn) error {
	if h.Data > 0 {
		return m.greetData(h, c)
	}
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
	m.enlist(h.member, c)
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
	case h.Plain != cfg.Plain:
		return fmt.Errorf("tcp: ranks disagree about encryption: %s (%v) vs %s (%v): set RINGO_ENCRYPT alike", onOff(!cfg.Plain), m.e.self,
			onOff(!h.Plain), h.member)
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

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// greetMesh is the answer of any other rank to the hello of a higher one.
func (m *meeting) greetMesh(h hello, c *tls.Conn) error {
	if h.Data > 0 {
		return m.greetData(h, c)
	}
	cfg := &m.e.cfg
	m.mu.Lock()
	ok := h.Mesh && h.Gen == cfg.Gen && h.Size == cfg.Size && h.Rank > cfg.Rank && h.Rank < cfg.Size
	if !ok || m.e.links[h.Rank] != nil {
		m.mu.Unlock()
		return fmt.Errorf("tcp: %v expects no connection from %v", m.e.self, h.member)
	}
	m.enlist(h.member, c)
	return nil
}

// enlist makes the link to a peer that dialled. It is called with m.mu held, and gives it back.
func (m *meeting) enlist(peer member, c *tls.Conn) {
	l := newLink(m.e, peer, c)
	l.expect()
	l.main.wmu.Lock() // until it is welcome, nothing else is sent: neither the list of ranks nor data
	m.e.links[peer.Rank] = l
	m.mu.Unlock()
	m.welcome(l)
}

// welcome answers a hello and starts the link, whose lock for writing is held. When that fails, the link's reader finds out.
func (m *meeting) welcome(l *link) {
	err := writeJSON(l.main.conn, frameWelcome, m.e.cfg.Gen, m.hello(false))
	if err == nil {
		err = l.main.raw.SetDeadline(time.Time{})
	}
	l.main.wmu.Unlock()
	if err != nil {
		l.main.raw.Close()
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
			l.main.raw.SetWriteDeadline(time.Now().Add(handshakeTime))
			h := header{typ: frameTable, gen: m.e.cfg.Gen, length: uint64(len(b))}
			if err := l.main.write(&h, b); err != nil { // not posted: the first message of a group must not overtake it
				return fmt.Errorf("tcp: sending %v the list of ranks: %w", l.peer, err)
			}
			l.main.raw.SetWriteDeadline(time.Time{})
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

package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

const (
	tablePart  = 256                    // ranks that one frameTable lists
	twiceCheck = 100 * time.Millisecond // how long the end of a connection may take to be noticed
)

func (m *meeting) hello(mesh bool) hello {
	return hello{member: m.e.self, Size: m.e.cfg.Size, Gen: m.e.cfg.Gen, Plain: m.e.cfg.Plain, Mesh: mesh}
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
	m.awaitEnd(&h)
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

// awaitEnd gives the connection that the rank had a moment to end: a rank that died may come again. When it is the same
// process that comes again, because a handshake took it too long, that connection is ended here.
func (m *meeting) awaitEnd(h *hello) {
	m.mu.Lock()
	var l *link
	if h.Rank > 0 && h.Rank < len(m.e.links) {
		l = m.e.links[h.Rank]
	}
	again := l != nil && !m.all && l.peer == h.member
	m.mu.Unlock()
	if l == nil {
		return
	}
	if again {
		l.main.raw.Close()
		<-l.bye
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

package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/internal/acceptor"
)

const (
	tablePart    = 256                    // ranks that one frameTable lists
	oldLinkGrace = 100 * time.Millisecond // how long the end of a connection may take to be noticed
)

func (rv *rendezvous) hello(mesh bool) hello {
	return hello{member: rv.e.self, Size: rv.e.cfg.Size, Gen: rv.e.cfg.Gen, Plain: rv.e.cfg.Plain, Mesh: mesh}
}

// acceptJoin is rank 0's answer to a hello.
func (rv *rendezvous) acceptJoin(h hello, c *tls.Conn) error {
	if h.Data > 0 {
		return rv.acceptData(h, c)
	}
	if h.Gen != rv.e.cfg.Gen {
		return fmt.Errorf("tcp: generation %d is over, this is generation %d", h.Gen, rv.e.cfg.Gen)
	}
	if h.Mesh {
		return errors.New("tcp: rank 0 expects no connection of the mesh")
	}
	rv.awaitOldLink(&h)
	rv.mu.Lock()
	err := rv.failed
	if err == nil {
		if err = rv.checkHello(&h); err != nil && !rv.allHere {
			rv.failed = err // it is unknown which rank is right, so the job does not start
		}
	}
	if err != nil {
		rv.rejected++
		rv.mu.Unlock()
		rv.signal()
		return err
	}
	rv.addAccepted(h.member, c)
	return nil
}

// awaitOldLink gives the connection that the rank had a moment to end: a rank that died may join again. If the same
// process joins again, because its handshake took too long, the old connection is closed here.
func (rv *rendezvous) awaitOldLink(h *hello) {
	rv.mu.Lock()
	var l *link
	if h.Rank > 0 && h.Rank < len(rv.e.links) {
		l = rv.e.links[h.Rank]
	}
	again := l != nil && !rv.allHere && l.peer == h.member
	rv.mu.Unlock()
	if l == nil {
		return
	}
	if again {
		l.main.raw.Close()
		<-l.peerDone
		return
	}
	t := time.NewTimer(oldLinkGrace)
	defer t.Stop()
	select {
	case <-l.peerDone:
	case <-t.C:
	}
}

// checkHello says why a rank may not join. m.mu is held.
func (rv *rendezvous) checkHello(h *hello) error {
	cfg := &rv.e.cfg
	switch {
	case h.Size != cfg.Size:
		return fmt.Errorf("tcp: ranks disagree about the size of the job: %d (%v) vs %d (%v)", cfg.Size, rv.e.self, h.Size, h.member)
	case h.Plain != cfg.Plain:
		return fmt.Errorf("tcp: ranks disagree about encryption: %s (%v) vs %s (%v): set RINGO_ENCRYPT alike", onOff(!cfg.Plain), rv.e.self,
			onOff(!h.Plain), h.member)
	case h.Rank < 0 || h.Rank >= cfg.Size:
		return fmt.Errorf("tcp: %v joined a job of ranks 0 to %d", h.member, cfg.Size-1)
	}
	earlier := rv.e.self
	if h.Rank != 0 {
		l := rv.e.links[h.Rank]
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

// acceptMesh is the answer of any other rank to the hello of a higher one.
func (rv *rendezvous) acceptMesh(h hello, c *tls.Conn) error {
	if h.Data > 0 {
		return rv.acceptData(h, c)
	}
	cfg := &rv.e.cfg
	rv.mu.Lock()
	ok := h.Mesh && h.Gen == cfg.Gen && h.Size == cfg.Size && h.Rank > cfg.Rank && h.Rank < cfg.Size
	if !ok || rv.e.links[h.Rank] != nil {
		rv.mu.Unlock()
		return fmt.Errorf("tcp: %v expects no connection from %v", rv.e.self, h.member)
	}
	rv.addAccepted(h.member, c)
	return nil
}

// addAccepted makes the link to a peer that dialled. It is called with m.mu held, and gives it back.
func (rv *rendezvous) addAccepted(peer member, c *tls.Conn) {
	l := newLink(rv.e, peer, c)
	l.expect()
	l.main.wmu.Lock() // until it is welcome, nothing else is sent: neither the list of ranks nor data
	rv.e.links[peer.Rank] = l
	rv.mu.Unlock()
	rv.welcome(l)
}

// welcome answers a hello and starts the link, whose lock for writing is held. When that fails, the link's reader finds out.
func (rv *rendezvous) welcome(l *link) {
	err := writeJSON(l.main.conn, frameWelcome, rv.e.cfg.Gen, rv.hello(false))
	if err == nil {
		err = l.main.raw.SetDeadline(time.Time{})
	}
	l.main.wmu.Unlock()
	if err != nil {
		l.main.raw.Close()
	}
	l.start()
	rv.signal()
}

// sendTable tells everyone who and where all ranks are.
func (rv *rendezvous) sendTable() error {
	table := make([]member, rv.e.cfg.Size)
	table[0] = rv.e.self
	for _, l := range rv.links() {
		table[l.peer.Rank] = l.peer
	}
	for lo := 0; lo < len(table); lo += tablePart {
		b, err := marshalTable(table[lo:min(lo+tablePart, len(table))])
		if err != nil {
			return err
		}
		for _, l := range rv.links() {
			l.main.raw.SetWriteDeadline(time.Now().Add(acceptor.HandshakeTime))
			h := header{typ: frameTable, gen: rv.e.cfg.Gen, length: uint64(len(b))}
			if err := l.main.write(&h, b); err != nil { // not posted: the first message of a group must not overtake it
				return fmt.Errorf("tcp: sending %v the list of ranks: %w", l.peer, err)
			}
			l.main.raw.SetWriteDeadline(time.Time{})
		}
	}
	return nil
}

// readTable waits for rank 0's table.
func (rv *rendezvous) readTable(ctx context.Context, c *tls.Conn) ([]member, error) {
	stop := context.AfterFunc(ctx, func() { c.NetConn().SetReadDeadline(time.Now()) })
	defer stop()
	var table []member
	for len(table) < rv.e.cfg.Size {
		var part []member
		err := readJSON(c, frameTable, &part)
		var no rejected
		switch {
		case errors.As(err, &no):
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("tcp: %w: rank %d waits for rank 0 at %s, which waits for the others", context.Cause(ctx),
				rv.e.cfg.Rank, rv.e.cfg.Addr)
		case err != nil:
			return nil, fmt.Errorf("tcp: rank %d lost rank 0 at %s while waiting for the others: %w", rv.e.cfg.Rank, rv.e.cfg.Addr, err)
		case len(part) == 0:
			return nil, errors.New("tcp: rank 0 sent an empty table")
		}
		table = append(table, part...)
	}
	return table, nil
}

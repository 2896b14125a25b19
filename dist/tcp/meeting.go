package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/internal/ranks"
)

// lateComers is how long rank 0 stays to say why there will be no job.
const lateComers = 500 * time.Millisecond

// meeting is a rendezvous in progress.
type meeting struct {
	e    *Engine
	conf *tls.Config
	end  context.CancelCauseFunc // of the context that everything here waits with
	door *door

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

// because returns the error that ended the meeting, or else err. Who was led astray knows best, even when the others have
// already missed it.
func (m *meeting) because(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil && !errors.Is(err, errAstray) {
		return m.failed
	}
	return err
}

// host is rank 0's part: wait for everyone, then send the table and let them connect.
func (m *meeting) host(ctx context.Context) error {
	l, err := m.listen(ctx)
	if err != nil {
		return err
	}
	m.door = newDoor(m.e, l, m.conf, m.greetJoin)
	defer m.door.close()
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
	l, err := m.listen(ctx)
	if err != nil {
		return err
	}
	m.e.self.Addr = l.Addr().String()
	m.door = newDoor(m.e, l, m.conf, m.greetMesh)
	defer m.door.close()
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
			err := fmt.Errorf("tcp: %w: waiting for %s of %d", context.Cause(ctx), ranks.Names(missing...), m.e.cfg.Size)
			if why := m.door.failure(); why != nil {
				err = fmt.Errorf("%w, which could not connect: %w", err, why)
			}
			return m.e.cfg.awaited(err)
		}
	}
}

// state returns the ranks that are not connected yet. Once there is none, nobody comes any more, and once all connections
// are complete, nobody goes.
func (m *meeting) state(ready func(*link) bool) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return nil, m.failed
	}
	var missing []int
	complete := true
	for r, l := range m.e.links {
		if r != m.e.cfg.Rank && (l == nil || !ready(l)) {
			missing = append(missing, r)
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

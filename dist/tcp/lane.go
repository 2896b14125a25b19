package tcp

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// lane runs the operations of a group and is the Transport of its algorithms.
type lane struct {
	g     *group
	op    *backend.Op
	print uint64
}

// run is the lane's goroutine.
func (g *group) run() {
	defer g.e.wg.Done()
	l := &lane{g: g}
	m := algo.NewMessages(l, g.tuner)
	for {
		op, print := g.next()
		if op == nil {
			return
		}
		l.op, l.print = op, print
		err := g.Deserted(op.Seq)
		if err == nil {
			err = m.Run(op)
		}
		for _, p := range g.peers {
			if p != nil {
				p.giveBack()
			}
		}
		g.finish(op, err)
	}
}

// next waits for an operation; nil means that there will be none.
func (g *group) next() (*backend.Op, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		switch {
		case g.err != nil || g.ended && g.issued == g.done:
			return nil, 0
		case g.issued > g.done:
			g.running = true
			r := &g.ops[(g.done+1)%history]
			return r.op, r.print
		}
		g.work.Wait()
	}
}

// finish marks op done, or fails the group.
func (g *group) finish(op *backend.Op, err error) {
	if a := g.accused.Load(); err == nil && a != nil {
		err = g.awaitFailure(a)
	}
	if err != nil {
		g.fail(g.opError(op, err), true)
	}
	g.mu.Lock()
	g.running = false
	if err == nil {
		g.done = op.Seq
	}
	g.ops[op.Seq%history].op = nil
	g.wakeAll()
	g.mu.Unlock()
	g.e.tell()
}

// opError is err as the failure of op, unless it is one already.
func (g *group) opError(op *backend.Op, err error) error {
	if e, ok := err.(*backend.Error); ok {
		return e
	}
	e := backend.OpError(&g.spec, op, err)
	e.Host = g.e.self.where()
	return e
}

// Rank returns this rank's index in the group.
func (l *lane) Rank() int { return l.g.spec.Rank }

// Size returns the number of ranks in the group.
func (l *lane) Size() int { return len(l.g.spec.Ranks) }

// Send sends b to peer.
func (l *lane) Send(peer int, tag uint64, b []byte) error {
	if a := l.g.accused.Load(); a != nil {
		return l.g.awaitFailure(a)
	}
	l.g.waitsFor.Store(int32(peer))
	return l.fail(l.g.peers[peer].send(l.op.Kind, l.op.Seq, uint8(tag), l.print, b))
}

// fail fails the group at once: another goroutine may send, or wait for a message, in this operation.
func (l *lane) fail(err error) error {
	if err != nil {
		l.g.fail(l.g.opError(l.op, err), true)
	}
	return err
}

// Recv fills b with the next message of peer with this tag.
func (l *lane) Recv(peer int, tag uint64, b []byte) error {
	p := l.g.peers[peer]
	p.post(l.op.Seq, uint8(tag), l.print, b)
	_, err := l.await(peer, p, len(b))
	return l.fail(err)
}

// Take receives the next message of peer with this tag, which has n bytes, without a copy where there can be none.
func (l *lane) Take(peer int, tag uint64, n int) ([]byte, error) {
	p := l.g.peers[peer]
	p.lend(l.op.Seq, uint8(tag), l.print, n)
	b, err := l.await(peer, p, n)
	return b, l.fail(err)
}

// SendRecv sends and receives at once.
func (l *lane) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	p := l.g.peers[from]
	p.post(l.op.Seq, uint8(tag), l.print, in)
	if err := l.Send(to, tag, out); err != nil {
		p.cancel()
		return err
	}
	_, err := l.await(from, p, len(in))
	return err
}

func (l *lane) await(peer int, p *pipe, want int) ([]byte, error) {
	l.g.waitsFor.Store(int32(peer))
	b, err := p.await()
	var m *misfit
	if errors.As(err, &m) {
		return nil, l.misfit(peer, p, want, m)
	}
	return b, err
}

// misfit is the error of a message of peer that is another than the one of want bytes.
func (l *lane) misfit(peer int, p *pipe, want int, m *misfit) error {
	g := l.g
	if m.print {
		g.mu.Lock()
		g.accuse(p, l.op.Seq)
		g.mu.Unlock()
		return g.awaitFailure(p.link)
	}
	if size := l.op.DType.Size(); l.op.Kind == backend.AllToAllV {
		from, to := g.spec.Ranks[peer], g.e.cfg.Rank
		return backend.RowsMismatch(l.op, g.spec.Name, from, to, int(m.total)/size, want/size, l.op.Row)
	}
	return fmt.Errorf("rank %d sends %d bytes, want %d", p.link.peer.Rank, m.total, want)
}

package tcp

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// worker runs the operations of a group and is the Transport of its algorithms.
type worker struct {
	g     *group
	op    *backend.Op
	print uint64
}

// run is the worker's goroutine.
func (g *group) run() {
	defer g.e.wg.Done()
	w := &worker{g: g}
	m := algo.NewMessages(w, g.tuner)
	for {
		op, print := g.next()
		if op == nil {
			return
		}
		w.op, w.print = op, print
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
		case g.err != nil || g.closing && g.issued == g.done:
			return nil, 0
		case g.issued > g.done:
			g.running = true
			r := g.ops.At(g.done + 1)
			return r.Op, r.Print
		}
		g.work.Wait()
	}
}

// finish marks op done, or fails the group.
func (g *group) finish(op *backend.Op, err error) {
	if a := g.mismatched.Load(); err == nil && a != nil {
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
	g.ops.At(op.Seq).Op = nil
	g.wakeAll()
	g.mu.Unlock()
	g.e.wake()
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
func (w *worker) Rank() int { return w.g.spec.Rank }

// Size returns the number of ranks in the group.
func (w *worker) Size() int { return len(w.g.spec.Ranks) }

// Send sends b to peer.
func (w *worker) Send(peer int, tag uint64, b []byte) error {
	if a := w.g.mismatched.Load(); a != nil {
		return w.g.awaitFailure(a)
	}
	return w.fail(w.g.peers[peer].send(w.op.Kind, w.op.Seq, uint8(tag), w.print, b))
}

// fail fails the group at once: another goroutine may send, or wait for a message, in this operation.
func (w *worker) fail(err error) error {
	if err != nil {
		w.g.fail(w.g.opError(w.op, err), true)
	}
	return err
}

// Recv fills b with the next message of peer with this tag.
func (w *worker) Recv(peer int, tag uint64, b []byte) error {
	p := w.g.peers[peer]
	p.request(w.op.Seq, uint8(tag), w.print, b)
	_, err := w.await(peer, p, len(b))
	return w.fail(err)
}

// Take receives the next message of peer with this tag, which has n bytes, without a copy where there can be none.
func (w *worker) Take(peer int, tag uint64, n int) ([]byte, error) {
	p := w.g.peers[peer]
	p.lend(w.op.Seq, uint8(tag), w.print, n)
	b, err := w.await(peer, p, n)
	return b, w.fail(err)
}

// SendRecv sends and receives at once.
func (w *worker) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	p := w.g.peers[from]
	p.request(w.op.Seq, uint8(tag), w.print, in)
	if err := w.Send(to, tag, out); err != nil {
		p.cancel()
		return err
	}
	_, err := w.await(from, p, len(in))
	return w.fail(err)
}

func (w *worker) await(peer int, p *pipe, want int) ([]byte, error) {
	w.g.waitsFor.Store(int32(peer))
	b, err := p.await()
	var m *messageMismatch
	if errors.As(err, &m) {
		return nil, w.mismatch(peer, p, want, m)
	}
	return b, err
}

// mismatch is the error of a message of peer that is another than the one of want bytes.
func (w *worker) mismatch(peer int, p *pipe, want int, m *messageMismatch) error {
	g := w.g
	if m.print {
		g.mu.Lock()
		g.reportMismatch(p, w.op.Seq)
		g.mu.Unlock()
		return g.awaitFailure(p.link)
	}
	if size := w.op.DType.Size(); w.op.Kind == backend.AllToAllV {
		from, to := g.spec.Ranks[peer], g.e.cfg.Rank
		return backend.RowsMismatch(w.op, g.spec.Name, from, to, int(m.total)/size, want/size, w.op.Row)
	}
	return fmt.Errorf("rank %d sends %d bytes, want %d", p.link.peer.Rank, m.total, want)
}

package mpi

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// smallMessage is how much Transport.Send sends without waiting for the peer.
const smallMessage = 64 << 10

// work is the goroutine that runs our algorithms for a group, over its communicator.
func (b *endpoint) work() {
	m := algo.NewMessages(&transport{b: b, taken: make([][]byte, len(b.spec.Ranks))}, b.tuner)
	b.e.lock()
	defer b.e.mu.Unlock()
	for {
		for b.todo == nil && b.err == nil && !b.closed {
			b.cond.Wait()
		}
		op := b.todo
		if op == nil {
			return
		}
		b.e.mu.Unlock()
		err := m.Run(op)
		b.e.lock()
		b.todo, b.running = nil, false
		if err == nil {
			b.finish()
			b.e.moved = true
		} else {
			b.failOp(op.Seq, err)
		}
		b.cond.Broadcast()
	}
}

// transport is the backend.Transport of a group.
type transport struct {
	b     *endpoint
	taken [][]byte
}

// Rank returns this rank's index in the group.
func (t *transport) Rank() int { return t.b.spec.Rank }

// Size returns the number of ranks in the group.
func (t *transport) Size() int { return len(t.b.spec.Ranks) }

// Send sends b to peer.
func (t *transport) Send(peer int, tag uint64, b []byte) error {
	t.b.e.lock()
	defer t.b.e.mu.Unlock()
	r := t.send(peer, tag, b)
	return t.await(r)
}

// send begins to send. It copies a small message, so that its request is over at once.
func (t *transport) send(peer int, tag uint64, b []byte) *request {
	e := t.b.e
	r := &request{of: t.b, p2p: true}
	small := len(b) <= smallMessage
	if small {
		r = e.newRequest()
		r.own = append(r.own[:0], b...)
		b = r.own
	}
	if r.err = t.usable(); r.err != nil {
		return r
	}
	t.b.counters.Wire[t.b.todo.Kind].Add(uint64(len(b)))
	r.err = e.isend(r, t.b.comm, peer, int(tag), unsafe.Pointer(unsafe.SliceData(b)), len(b))
	err := r.err
	if e.start(r); small {
		if r.over {
			e.recycle(r)
		}
		return &request{over: true, err: err}
	}
	return r
}

// usable returns the failure of the group, once no call is in the way.
func (t *transport) usable() error {
	for t.b.err == nil && t.b.e.away != "" {
		t.b.cond.Wait()
	}
	if t.b.err != nil {
		return t.b.err
	}
	return nil
}

// recv begins to receive.
func (t *transport) recv(peer int, tag uint64, b []byte) *request {
	r := &request{of: t.b, p2p: true, writes: true}
	if r.err = t.usable(); r.err != nil {
		return r
	}
	r.err = t.b.e.irecv(r, t.b.comm, peer, int(tag), unsafe.Pointer(unsafe.SliceData(b)), len(b))
	t.b.e.start(r)
	return r
}

// await waits for a request. Those who wait for the operation drive MPI meanwhile.
func (t *transport) await(r *request) error {
	for !r.over && r.err == nil && t.b.err == nil && !t.b.e.test(r) {
		t.b.cond.Wait()
	}
	if r.err == nil && !r.over {
		return t.b.err
	}
	return r.err
}

// Recv fills b.
func (t *transport) Recv(peer int, tag uint64, b []byte) error {
	t.b.e.lock()
	defer t.b.e.mu.Unlock()
	err := t.await(t.recv(peer, tag, b))
	t.b.counters.Received.Add(uint64(len(b)))
	return err
}

// Take receives n bytes into memory of the transport.
func (t *transport) Take(peer int, tag uint64, n int) ([]byte, error) {
	if cap(t.taken[peer]) < n {
		t.taken[peer] = make([]byte, n)
	}
	b := t.taken[peer][:n]
	return b, t.Recv(peer, tag, b)
}

// SendRecv sends and receives at the same time.
func (t *transport) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	t.b.e.lock()
	defer t.b.e.mu.Unlock()
	r := t.recv(from, tag, in)
	if err := t.await(t.send(to, tag, out)); err != nil {
		return err
	}
	t.b.counters.Received.Add(uint64(len(in)))
	return t.await(r)
}

var _ backend.Transport = (*transport)(nil)

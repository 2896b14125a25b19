package mpi

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// smallMessage is how much Transport.Send sends without waiting for the peer.
const smallMessage = 64 << 10

// runOurs runs one of our algorithms for an operation, over the communicator of the group.
func (b *endpoint) runOurs(op *backend.Op) {
	if b.ours == nil {
		b.ours = algo.NewMessages(&transport{b: b, taken: make([][]byte, len(b.spec.Ranks))}, b.tuner)
	}
	err := b.ours.Run(op)
	b.e.lock()
	defer b.e.mu.Unlock()
	b.running = false
	if err == nil {
		b.finish()
		b.e.moves++
	} else {
		b.failOp(op.Seq, err)
	}
	b.cond.Broadcast()
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
	return t.await(t.send(peer, tag, b))
}

// send begins to send. It copies a small message, and then need not wait.
func (t *transport) send(peer int, tag uint64, b []byte) *request {
	e, r := t.b.e, &request{of: t.b, p2p: true}
	small := len(b) <= smallMessage
	if small {
		r = e.newRequest()
		r.of, r.own = t.b, append(r.own[:0], b...)
		b = r.own
	}
	t.begin(r, e.isend, peer, tag, b)
	t.b.counters.Wire[t.b.op(t.b.done+1).Copy.Kind].Add(uint64(len(b)))
	switch {
	case !small:
		return r
	case r.over && r.err == nil:
		e.recycle(r)
	}
	return &request{over: true, err: r.err}
}

// recv begins to receive.
func (t *transport) recv(peer int, tag uint64, b []byte) *request {
	r := &request{of: t.b, p2p: true, writes: true}
	t.begin(r, t.b.e.irecv, peer, tag, b)
	return r
}

// begin begins a message when no call is in the way, unless the group has failed.
func (t *transport) begin(r *request, call func(*request, uintptr, int, int, unsafe.Pointer, int), peer int, tag uint64, b []byte) {
	for t.b.err == nil && t.b.e.away != "" {
		t.b.cond.Wait()
	}
	if t.b.err != nil {
		r.err = t.b.err
	} else {
		call(r, t.b.comm, peer, int(tag), unsafe.Pointer(unsafe.SliceData(b)), len(b))
	}
	t.b.e.start(r)
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

package dist

import (
	"context"

	"github.com/ringo-ml/ringo/tensor"
)

// Work is an operation that may still be running. It is a small value, which can be kept and asked at any time; the zero Work is done.
// Wait for every Work, or hand it on: give its Pending to package tensor, or wait for a later one of the group or on the same memory. If
// one failed and nobody waited for it, the next call on the group, its Close, or Run, returns the failure. If it succeeded, Close or Run
// warns.
type Work struct {
	l   *lane
	seq uint64
}

// Wait blocks until the next operation on the tensor's device sees the result (on a CPU: until it is there). It drives all operations of
// the rank that are in flight. The error is the first failure of the group.
func (w Work) Wait() error {
	w.settle()
	return w.wait(background, true)
}

// WaitHost blocks until the host can read the result, or until ctx ends. Then it returns ctx.Err(), and the operation goes on.
func (w Work) WaitHost(ctx context.Context) error {
	w.settle()
	return w.wait(ctx, false)
}

// wait is Wait or WaitHost. With order it ends as soon as the device waits for the operation.
func (w Work) wait(ctx context.Context, order bool) error {
	if w.l == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r := w.l.c.recording(); r != nil {
		return w.recordWait(r, order)
	}
	if w.seq <= w.l.done.Load() {
		return nil
	}
	g, c := w.l.g, w.l.c
	if err := g.enter(); err != nil {
		return err
	}
	defer g.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.wait(ctx, w.l, w.seq, order)
	if err != nil && err == g.err {
		g.reported = true
	}
	return err
}

// Done reports whether the operation is over. It does not block; it makes one step of the rank's operations.
func (w Work) Done() bool {
	if w.l == nil {
		return true
	}
	done := w.l.FenceDone(w.seq)
	if !done && w.l.c.recording() == nil { // during a capture, CUDA does not allow a query
		w.l.c.poll()
		done = w.l.FenceDone(w.seq)
	}
	if done {
		w.settle()
	}
	return done
}

// Pending returns w in the form that package tensor uses: a fence and a number on it.
func (w Work) Pending() tensor.Pending {
	if w.l == nil {
		return tensor.Pending{}
	}
	w.settle()
	return tensor.Pending{F: w.l, Seq: w.seq}
}

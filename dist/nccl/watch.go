package nccl

import (
	"errors"
	"fmt"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
)

// How often the engine's goroutine looks: while an operation is not queued or somebody waits, and otherwise.
const (
	soon  = 20 * time.Microsecond
	later = 2 * time.Millisecond
	calm  = 20 * time.Millisecond
)

// watch is the engine's goroutine: it asks for asynchronous errors, drives the control engine while the host waits for the
// device, and ends operations that make no progress.
func (e *Engine) watch() {
	defer close(e.ended)
	pause, timer := soon, time.NewTimer(calm)
	defer timer.Stop()
	for {
		open, urgent, moved := e.tick()
		switch {
		case moved:
			pause = soon
			e.ring()
		case urgent || e.parked():
			pause = min(pause+pause/2, later)
		default:
			pause = calm
		}
		var next <-chan time.Time
		if open {
			timer.Reset(pause)
			next = timer.C
		}
		select {
		case <-next:
		case <-e.stir:
			pause = soon
		case <-e.quit:
			return
		}
	}
}

// tick does a step for every end. It reports whether any has an operation in flight, whether one is not queued, and whether
// anything got further.
func (e *Engine) tick() (open, urgent, moved bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.ends {
		b.checkCut()
		open = open || len(b.cuts) > 0
		if b.issued == b.ran && b.issued == b.agreed || b.err != nil {
			continue
		}
		before := b.queued + b.ran + b.agreed + uint64(b.state)
		b.step()
		if err := b.asyncError(); err != nil {
			b.failAt(b.ran+1, err)
		}
		moved = moved || b.err != nil || b.queued+b.ran+b.agreed+uint64(b.state) != before
		b.checkTime()
		b.checkCall()
		open = true
		urgent = urgent || b.queued < b.issued
	}
	return open, urgent, moved
}

// checkTime fails the group when nothing got further within its timeout.
func (b *endpoint) checkTime() {
	if b.err != nil || b.spec.Timeout <= 0 || b.ran == b.issued || time.Since(b.since) < b.spec.Timeout {
		return
	}
	err := backend.TimedOut(b.ctl, b.spec.Ranks, b.ran+1, b.spec.Timeout)
	b.failAt(b.ran+1, fmt.Errorf("%w: %s", err, b.whereabouts(b.ran+1)))
}

// whereabouts says where an operation is that makes no progress.
func (b *endpoint) whereabouts(seq uint64) string {
	op, at := &b.slot(seq).op, "on the device"
	switch {
	case b.state == asking:
		at = "waiting for the id of the communicator"
	case b.state == making && b.from != nil:
		at = "waiting for ncclCommSplit of group " + b.from.parent.spec.Name
	case b.state == making:
		at = "in ncclCommInitRankConfig"
	case seq > b.queued && !b.call.IsZero():
		at = "in a call of NCCL"
	case seq > b.queued:
		at = "behind other operations"
	}
	if op.Count > 0 {
		return fmt.Sprintf("%s, shape %v", at, op.Shape)
	}
	return at
}

// asyncError is a failure that NCCL noticed by itself.
func (b *endpoint) asyncError() error {
	if b.err != nil || b.state != ready {
		return nil
	}
	return b.e.lib.Err("ncclCommGetAsyncError", b.comm.AsyncError())
}

// failAt is fail with what happened to operation seq.
func (b *endpoint) failAt(seq uint64, err error) {
	known := (*backend.Error)(nil)
	switch {
	case errors.As(err, &known): // the control engine's: the group's first cause
	case seq > b.issued: // no operation, but a split
		err = &backend.Error{Rank: b.spec.Ranks[b.spec.Rank], Group: b.spec.Name, Cause: err}
	default:
		err = backend.OpError(&b.spec, &b.slot(seq).op, err)
	}
	b.fail(err)
}

// fail poisons the group on all ranks and aborts the communicator. Engine.mu is held.
func (b *endpoint) fail(err error) {
	if b.err != nil {
		return
	}
	_ = b.ctl.Abort(err)
	if _, first := b.ctl.Progress(); first != nil {
		err = first
	}
	b.err = err
	if b.boot != nil && b.boot.be != nil {
		_ = b.boot.be.Abort(err)
		_ = b.boot.close()
	}
	b.abort()
	b.e.ring()
}

// abort ends what runs on the device, and a call that the goroutine that issues is in. It is done on a goroutine: NCCL may
// wait for the other ranks of the host to do the same.
func (b *endpoint) abort() {
	if b.aborted {
		return
	}
	b.aborted = true
	b.e.turn.Broadcast()
	ran := b.state == ready
	if !ran {
		close(b.quiet)
	}
	if b.state == none {
		return
	}
	b.e.wg.Go(func() {
		_ = b.e.onThread(func() error { // the failure that led here is what matters
			_ = b.comm.Abort(b.idle)
			return b.drop()
		})
		if ran {
			close(b.quiet)
		}
		b.e.ring()
	})
}

// quietTime is how long a failed operation may keep the memory of a rank.
const quietTime = 10 * time.Second

// awaitQuiet waits until nothing of this rank runs on the stream any more.
func (b *endpoint) awaitQuiet() {
	select {
	case <-b.quiet:
	case <-time.After(quietTime):
	}
}

// release gives the communicator back, on a goroutine: NCCL may wait for the other ranks of the host. Engine.mu is held.
func (b *endpoint) release() {
	if b.closed {
		return
	}
	b.closed = true
	keep := b.e.ends[:0]
	for _, x := range b.e.ends {
		if x != b {
			keep = append(keep, x)
		}
	}
	clear(b.e.ends[len(keep):])
	b.e.ends = keep
	if b.boot != nil {
		_ = b.boot.close()
	}
	b.advance()
	if b.aborted || b.state == none {
		return
	}
	b.aborted = true
	b.e.turn.Broadcast()
	over := b.state == ready && b.ran == b.issued
	b.e.wg.Go(func() {
		_ = b.e.onThread(func() error { // nobody is there to hear of an error
			if over && b.comesToRest() {
				_ = b.comm.Destroy()
			} else { // to destroy it would wait for what runs: for ranks that may be gone
				_ = b.comm.Abort(b.idle)
			}
			return b.drop()
		})
	})
}

// comesToRest waits until the goroutine that issues makes no call any more. It returns false after the group's timeout: a split may hang.
func (b *endpoint) comesToRest() bool {
	var late <-chan time.Time
	if b.spec.Timeout > 0 {
		t := time.NewTimer(b.spec.Timeout)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-b.idle:
		return true
	case <-late:
		return false
	}
}

// drop gives the stream and the events back.
func (b *endpoint) drop() (err error) {
	if b.flag != 0 {
		err = errors.Join(b.stream.Sync(), b.e.pool.Free(b.flag), b.freeRows())
	}
	if b.stream != nil {
		err = errors.Join(err, b.stream.Close())
	}
	for i := range b.slots {
		if s := &b.slots[i]; s.before != nil {
			err = errors.Join(err, s.before.Close(), s.after.Close())
			s.before, s.after = nil, nil
		}
	}
	return err
}

package nccl

import (
	"errors"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/nccl"
)

// How often the engine's goroutine looks: while NCCL is busy or somebody waits, and otherwise.
const (
	soon  = 20 * time.Microsecond
	later = 2 * time.Millisecond
	calm  = 20 * time.Millisecond
)

// watch is the engine's goroutine: it issues what could not be issued at once, asks for asynchronous errors, drives the
// control engine while the host waits for the device, and ends operations that make no progress.
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

// tick does a step for every end. It reports whether any has an operation in flight, whether one waits for NCCL to come
// back, and whether anything got further.
func (e *Engine) tick() (open, urgent, moved bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.ends {
		if b.issued == b.ran && b.issued == b.agreed || b.err != nil {
			continue
		}
		before := b.queued + b.ran + b.agreed + uint64(b.state)
		b.step()
		if err := b.asyncError(); err != nil {
			b.fail(backend.OpError(&b.spec, &b.slot(b.ran+1).op, err))
		}
		moved = moved || b.err != nil || b.queued+b.ran+b.agreed+uint64(b.state) != before
		b.checkTime()
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
	s := b.slot(b.ran + 1)
	b.fail(backend.OpError(&b.spec, &s.op, backend.TimedOut(b, b.spec.Ranks, s.op.Seq, b.spec.Timeout)))
}

// asyncError is a failure that NCCL noticed by itself.
func (b *endpoint) asyncError() error {
	if b.err != nil || b.state != ready {
		return nil
	}
	return b.e.lib.Err("ncclCommGetAsyncError", b.comm.AsyncError())
}

// pump issues what can be issued, in the order in which it was given; a group whose communicator is not ready, or busy,
// holds up no other one.
func (e *Engine) pump() {
	idle := true
	for _, b := range e.ends {
		idle = idle && (b.queued == b.issued || b.err != nil)
	}
	if idle {
		return
	}
	if err := e.Device.Lock(); err != nil {
		return // the next call on the device says so again
	}
	defer e.Device.Unlock()
	for _, b := range e.ends {
		if b.state != ready {
			b.poll()
		}
	}
	for {
		var next *endpoint
		for _, b := range e.ends {
			if b.issuable() && (next == nil || b.slot(b.queued+1).ticket < next.slot(next.queued+1).ticket) {
				next = b
			}
		}
		if next == nil {
			return
		}
		next.call()
	}
}

// poll brings the communicator, or the call that NCCL is busy with, further. The device's context is current.
func (b *endpoint) poll() {
	if b.err != nil {
		return
	}
	var err error
	switch b.state {
	case asking, making:
		err = b.connect()
	case busy:
		r := b.comm.AsyncError()
		if r == nccl.InProgress {
			return
		}
		if err = b.e.lib.Err("ncclCommGetAsyncError", r); err == nil {
			err = b.proceed(b.slot(b.queued + 1))
		}
	}
	if err == nil {
		return
	}
	if known := (*backend.Error)(nil); !errors.As(err, &known) { // else the control engine's: the group's first cause
		err = backend.OpError(&b.spec, &b.slot(b.queued+1).op, err)
	}
	b.fail(err)
}

// issuable reports whether the next operation for the device can be given to NCCL.
func (b *endpoint) issuable() bool {
	for b.queued < b.issued && !b.slot(b.queued+1).device {
		b.queued++
	}
	return b.err == nil && b.state == ready && b.queued < b.issued
}

// call gives NCCL the next operation. The device's context is current.
func (b *endpoint) call() {
	s := b.slot(b.queued + 1)
	b.stage = 0
	err := b.stream.Wait(s.before)
	if err == nil {
		err = b.proceed(s)
	}
	if err != nil {
		b.fail(backend.OpError(&b.spec, &s.op, err))
	}
}

// proceed gives NCCL what is left of an operation, as far as it takes it at once.
func (b *endpoint) proceed(s *slot) error {
	for b.state = ready; b.stage < stages(&s.op); {
		b.stage++
		name, r, err := b.run(s)
		if err == nil {
			err = b.e.lib.Err(name, r)
		}
		if err != nil {
			return err
		}
		if r == nccl.InProgress {
			b.state = busy
			return nil
		}
	}
	return b.called()
}

// called marks the end of an operation that is on the stream.
func (b *endpoint) called() error {
	s := b.slot(b.queued + 1)
	if err := b.freeRows(); err != nil {
		return err
	}
	if b.custom {
		b.custom = false
		if err := b.e.lib.Err("ncclRedOpDestroy", b.comm.DestroyOp(b.op)); err != nil {
			return err
		}
	}
	if err := s.after.Record(b.stream); err != nil {
		return err
	}
	b.queued++
	return nil
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

// abort ends what runs on the device, on a goroutine: NCCL may wait for the other ranks of the host to do the same.
func (b *endpoint) abort() {
	if b.aborted {
		return
	}
	b.aborted = true
	if b.state == none {
		close(b.quiet)
		return
	}
	b.e.wg.Go(func() {
		_ = b.e.onThread(func() error { // the failure that led here is what matters
			if b.comm != nil && b.comm.Open() {
				_ = b.comm.Abort()
			}
			return b.drop()
		})
		close(b.quiet)
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
	over := b.state == ready && b.ran == b.issued
	b.e.wg.Go(func() {
		_ = b.e.onThread(func() error { // nobody is there to hear of an error
			switch {
			case b.comm == nil || !b.comm.Open():
			case over:
				_ = b.comm.Destroy()
			default: // NCCL refuses to destroy what it is busy with, and waits for what runs: for ranks that may be gone
				_ = b.comm.Abort()
			}
			return b.drop()
		})
	})
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

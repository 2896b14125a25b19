package nccl

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/cuda"
)

// How often the engine's goroutine looks: while an operation is not queued or somebody waits, and otherwise.
const (
	soon  = 20 * time.Microsecond
	later = 2 * time.Millisecond
	calm  = 20 * time.Millisecond
)

// watch is the engine's goroutine: it asks for asynchronous errors and what has run, drives the control engine while the host
// waits for the device, and ends operations that make no progress.
func (e *Engine) watch() {
	defer close(e.ended)
	pause, timer := soon, time.NewTimer(calm)
	defer timer.Stop()
	for {
		e.stand.Reset(calm)
		asked := e.ask()
		e.stand.Stop()
		open, urgent, moved := e.tick()
		moved = moved || asked
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

// tick does a step for every end, without a call that may block. It reports whether any has an operation in flight, whether
// one is not queued, and whether anything got further.
func (e *Engine) tick() (open, urgent, moved bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.ends {
		if !b.busy() {
			continue
		}
		before := b.queued + b.ran + b.agreed + uint64(b.state)
		b.step()
		moved = moved || b.err != nil || b.queued+b.ran+b.agreed+uint64(b.state) != before
		b.checkTime()
		b.checkCut()
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
	case b.state == asking && b.boot == nil:
		at = "in ncclGetUniqueId"
	case b.state == asking:
		at = "waiting for the id of the communicator"
	case b.state == making && b.from != nil:
		at = "waiting for ncclCommSplit of group " + b.from.parent.spec.Name
	case b.state == making:
		at = "in ncclCommInitRankConfig"
	case seq > b.queued && !b.call.IsZero():
		at = "in a call of NCCL, or of the driver"
	case seq > b.queued && b.slot(seq).device && b.slot(seq).ticket == 0:
		at = "in a call of the driver that marks the compute stream"
	case seq > b.queued:
		at = "behind other operations"
	case b.e.silence() > calm:
		at = fmt.Sprintf("on the device, as far as is known: the driver has not answered for %v", b.e.silence().Round(time.Millisecond))
	}
	if op.Count > 0 {
		return fmt.Sprintf("%s, shape %v", at, op.Shape)
	}
	return at
}

// failAt is fail with what happened to operation seq.
func (b *endpoint) failAt(seq uint64, err error) {
	known := (*backend.Error)(nil)
	switch {
	case errors.As(err, &known): // the control engine's: the group's first cause
	case seq > b.issued: // a communicator that no operation needs yet
		err = &backend.Error{Rank: b.spec.Ranks[b.spec.Rank], Group: b.spec.Name, Op: "communicator", Cause: err}
	default:
		err = backend.OpError(&b.spec, &b.slot(seq).op, err)
	}
	b.fail(err)
}

// fail poisons the group on all ranks and aborts the communicator; of an end that has left nobody is to hear. Engine.mu is held.
func (b *endpoint) fail(err error) {
	if b.over() {
		return
	}
	_ = b.ctl.Abort(err)
	if _, first := b.ctl.Progress(); first != nil {
		err = first
	}
	b.err = err
	if b.boot != nil && b.boot.be != nil {
		_ = b.boot.be.Abort(err)
		b.closeBootstrap()
	}
	b.end()
	b.e.ring()
}

// leave makes the engine forget the end, and gives the communicator back. It returns false when that is so already. Engine.mu is held.
func (b *endpoint) leave() bool {
	if b.left {
		return false
	}
	b.left = true
	b.e.ends = slices.DeleteFunc(b.e.ends, func(x *endpoint) bool { return x == b })
	b.e.turn.Broadcast()
	if b.boot != nil {
		b.closeBootstrap()
	}
	if b.err == nil {
		b.end()
	}
	return true
}

// end gives everything back after a failure, or behind what has run. It is done on a goroutine: NCCL may wait for the other
// ranks of the host to do the same. An abort ends what runs on the device, and a call that the goroutine that issues is in.
func (b *endpoint) end() {
	b.done()
	b.e.turn.Broadcast()
	ran := b.state == ready
	if !ran {
		close(b.quiet)
	}
	if b.state == none {
		return
	}
	queued := ran && b.err == nil && b.toQueue() > b.issued
	b.e.wg.Go(func() {
		_ = b.e.onThread(func() error { // nobody is there to hear of an error
			if queued && b.hasRun() {
				_ = b.comm.Destroy()
			} else { // to destroy it would wait for what runs: for ranks that may be gone
				_ = b.comm.Abort(b.idle)
			}
			return b.drop()
		})
		if ran {
			close(b.quiet)
		}
		b.e.ring()
	})
}

// quietTime is how long a failed operation may keep the memory of a rank. A variable for tests.
var quietTime = 10 * time.Second

// awaitQuiet waits until nothing of this rank runs on the stream any more.
func (b *endpoint) awaitQuiet() {
	select {
	case <-b.quiet:
	case <-time.After(quietTime):
	}
}

// hasRun waits until nobody else uses the end, and reports whether the device is past everything.
func (b *endpoint) hasRun() bool {
	<-b.idle
	for seq := b.issued; seq > b.ran; seq-- {
		if s := b.slot(seq); s.device {
			done, err := s.after.Done()
			return done && err == nil
		}
	}
	return true
}

// drop gives the stream and the events back. Nobody else uses the end any more.
func (b *endpoint) drop() (err error) {
	if b.flag != 0 {
		err = errors.Join(b.stream.Sync(), b.e.pool.Free(b.flag), b.freeRows())
	}
	if b.stream != nil {
		err = errors.Join(err, b.stream.Close())
	}
	for i := range b.slots {
		s := &b.slots[i]
		for _, x := range []*cuda.Event{s.before, s.after} {
			if x != nil {
				err = errors.Join(err, x.Close())
			}
		}
		s.before, s.after = nil, nil
	}
	b.e.closeGroup(b.here)
	return err
}

package nccl

import (
	"time"

	"github.com/ringo-ml/ringo/internal/nccl"
)

// Calls of the driver and of NCCL may block. So Engine.mu is free during each of them: timeouts go on, and the other ranks hear
// of the failure. Events are asked by the watcher alone. While it is in such a call, a timer does the rest of its work.

// unlocked makes calls that may block, on an end that is not over. Until they return, its communicator, stream and events are kept.
// Engine.mu is held before and after.
func (b *endpoint) unlocked(f func() error) error {
	b.users++
	b.e.mu.Unlock()
	err := b.e.onThread(f)
	b.e.mu.Lock()
	b.done()
	return err
}

// done notes that a goroutine makes no calls any more. Engine.mu is held.
func (b *endpoint) done() {
	if b.users--; b.users == 0 {
		close(b.idle)
	}
}

// ask asks NCCL for asynchronous errors, and the driver which operations have run. It reports whether anything got further.
func (e *Engine) ask() (moved bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked[:0], e.ends...) // the list may change meanwhile
	for _, b := range e.asked {
		moved = b.ask() || moved
	}
	clear(e.asked)
	return moved
}

func (b *endpoint) ask() (moved bool) {
	if b.over() || b.state != ready || !b.busy() {
		return false
	}
	var state nccl.Result
	var done bool
	for first := true; !b.over(); first = false {
		s := b.running()
		if s == nil && !first {
			break
		}
		b.e.asking = time.Now()
		err := b.unlocked(func() (err error) {
			if first {
				state = b.comm.AsyncError()
			}
			if s != nil {
				done, err = s.after.Done()
			}
			return err
		})
		b.e.asking = time.Time{}
		switch {
		case b.over():
		case state != nccl.Success:
			b.failAt(b.ran+1, b.e.lib.Err("ncclCommGetAsyncError", state))
		case err != nil:
			b.failAt(b.ran+1, err)
		case s == nil || !done:
			return moved
		default:
			s.passed, moved = true, true
			b.advance()
		}
	}
	return moved || b.err != nil
}

// running returns the operation that the device is in, as far as is known; nil: none.
func (b *endpoint) running() *slot {
	if b.ran < min(b.queued, b.issued) && b.slot(b.ran+1).device {
		return b.slot(b.ran + 1)
	}
	return nil
}

// standIn does a step of the watcher that needs neither NCCL nor the driver, if the watcher is in a call of them for long.
func (e *Engine) standIn() {
	_, _, moved := e.tick()
	if moved {
		e.ring()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.asking.IsZero() {
		e.stand.Reset(calm)
	}
}

// silence returns how long the driver, or NCCL, has not answered the watcher. Engine.mu is held.
func (e *Engine) silence() time.Duration {
	if e.asking.IsZero() {
		return 0
	}
	return time.Since(e.asking)
}

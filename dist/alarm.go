package dist

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// alarm makes contexts that end at a deadline which may be moved and taken back. One lane has one; unlike
// context.WithTimeout it allocates nothing per wait. The timer is lazy: when it fires too early it goes to sleep again.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer
	armed bool // the timer will fire, at
	fires time.Time
	at    time.Time
	ctx   *rung
}

// rung is the context.Context of an alarm until it rings. One that ended stays so: what was derived from it may look late.
type rung struct {
	done chan struct{}
	over atomic.Bool
}

func (r *rung) Deadline() (time.Time, bool) { return time.Time{}, false }

func (r *rung) Done() <-chan struct{} { return r.done }

func (r *rung) Err() error {
	if r.over.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func (r *rung) Value(any) any { return nil }

func (r *rung) end() {
	r.over.Store(true)
	close(r.done)
}

// set moves the deadline to d from now. The context ends then, unless the deadline is moved again.
func (a *alarm) set(d time.Duration) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.at = now.Add(d)
	if a.ctx == nil || a.ctx.over.Load() {
		a.ctx = &rung{done: make(chan struct{})}
	}
	if a.armed && !a.at.Before(a.fires) {
		return a.ctx
	}
	a.armed, a.fires = true, a.at
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
	return a.ctx
}

// clear takes the deadline back.
func (a *alarm) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Time{}
}

// stop ends the alarm for good.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Time{}
	if a.timer != nil {
		a.timer.Stop()
	}
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
	if a.at.IsZero() || a.ctx.over.Load() {
		return
	}
	if left := time.Until(a.at); left > 0 {
		a.armed, a.fires = true, a.at
		a.timer.Reset(left)
		return
	}
	a.ctx.end()
}

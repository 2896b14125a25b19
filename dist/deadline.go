package dist

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadlineTimer makes contexts that end at a deadline, which can be moved or removed. Each lane has one. Unlike context.WithTimeout it
// allocates nothing for a wait. A later deadline does not reset the time.Timer: if it fires too early, it is started again.
type deadlineTimer struct {
	mu    sync.Mutex
	timer *time.Timer
	armed bool // the timer is running
	fires time.Time
	at    time.Time
	ctx   *deadlineContext
}

// deadlineContext is the context.Context of a deadlineTimer, until it fires. Then it stays ended, and set makes a new one: a context that
// was derived from it may look at it later.
type deadlineContext struct {
	done chan struct{}
	over atomic.Bool
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *deadlineContext) Done() <-chan struct{} { return c.done }

func (c *deadlineContext) Err() error {
	if c.over.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func (c *deadlineContext) Value(any) any { return nil }

func (c *deadlineContext) end() {
	c.over.Store(true)
	close(c.done)
}

// set moves the deadline to d from now. The context ends then, unless the deadline is moved again.
func (t *deadlineTimer) set(d time.Duration) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.at = now.Add(d)
	if t.ctx == nil || t.ctx.over.Load() {
		t.ctx = &deadlineContext{done: make(chan struct{})}
	}
	if t.armed && !t.at.Before(t.fires) {
		return t.ctx
	}
	t.armed, t.fires = true, t.at
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.fire)
	} else {
		t.timer.Reset(d)
	}
	return t.ctx
}

// clear removes the deadline.
func (t *deadlineTimer) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Time{}
}

// stop ends the timer for good.
func (t *deadlineTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Time{}
	if t.timer != nil {
		t.timer.Stop()
	}
}

func (t *deadlineTimer) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed = false
	if t.at.IsZero() || t.ctx.over.Load() {
		return
	}
	if left := time.Until(t.at); left > 0 {
		t.armed, t.fires = true, t.at
		t.timer.Reset(left)
		return
	}
	t.ctx.end()
}

package dist

import (
	"context"
	"sync"
	"time"
)

// alarm is a context.Context that ends at a deadline which may be moved and taken back. One lane has one; unlike
// context.WithTimeout it allocates nothing per wait. The timer is lazy: when it fires too early it goes to sleep again.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer
	armed bool // the timer will fire, at
	fires time.Time
	at    time.Time
	done  chan struct{}
	fired bool
}

// set moves the deadline to d from now.
func (a *alarm) set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.at = now.Add(d)
	if a.done == nil || a.fired {
		a.done, a.fired = make(chan struct{}), false
	}
	if a.armed && !a.at.Before(a.fires) {
		return
	}
	a.armed, a.fires = true, a.at
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
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
	if a.at.IsZero() || a.fired {
		return
	}
	if left := time.Until(a.at); left > 0 {
		a.armed, a.fires = true, a.at
		a.timer.Reset(left)
		return
	}
	a.fired = true
	close(a.done)
}

// Deadline, Done, Err and Value make the alarm a context.Context.
func (a *alarm) Deadline() (time.Time, bool) { return time.Time{}, false }

func (a *alarm) Done() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

func (a *alarm) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fired {
		return context.DeadlineExceeded
	}
	return nil
}

func (a *alarm) Value(any) any { return nil }

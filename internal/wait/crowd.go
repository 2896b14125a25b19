package wait

import "sync/atomic"

// Crowd counts the goroutines of a process that compute or spin, among those that wait for each other. With it, a waiter
// knows whether it may spin: as long as there is a core for everyone who is awake. When there are more goroutines than
// cores, the early ones park at once and leave their core to those who still compute, and the last ones spin, so that no
// core goes to sleep just before it is needed. (Yielding in turns is no substitute: runtime.Gosched goes through one lock.)
//
// A goroutine leaves the crowd while it is parked on a Bell of the crowd; who rings the bell counts it back in at once,
// before it runs.
type Crowd struct {
	_     [64]byte
	awake atomic.Int64
	_     [56]byte
}

// NewCrowd returns a crowd of n goroutines that are awake.
func NewCrowd(n int) *Crowd {
	c := &Crowd{}
	c.awake.Store(int64(n))
	return c
}

// Leave says that one of the goroutines has ended, or that it sleeps somewhere else.
func (c *Crowd) Leave() { c.add(-1) }

func (c *Crowd) add(n int64) {
	if c != nil {
		c.awake.Add(n)
	}
}

// Awake returns how many are computing or spinning now.
func (c *Crowd) Awake() int { return int(c.awake.Load()) }

// NewBell returns a quiet bell for a member of the crowd.
func (c *Crowd) NewBell() *Bell { return &Bell{crowd: c, wake: make(chan struct{}, 1)} }

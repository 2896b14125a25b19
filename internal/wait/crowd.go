package wait

import "sync/atomic"

// Crowd counts the awake goroutines of a process (those that compute or spin), among goroutines that wait for each other. With it, a
// waiter knows whether it may spin: only if there is a core for every awake goroutine. If there are more goroutines than cores, the early
// ones park at once and leave their cores to those that still compute. The last ones spin, so that no core goes to sleep just before it
// is needed. (To yield instead does not help: runtime.Gosched takes one global lock.)
//
// A goroutine is not counted while it is parked on a Bell of the crowd. The goroutine that rings the bell counts it again at once, before
// it runs.
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

// Leave says that one of the goroutines has ended, or sleeps elsewhere.
func (c *Crowd) Leave() { c.add(-1) }

func (c *Crowd) add(n int64) {
	if c != nil {
		c.awake.Add(n)
	}
}

// Awake returns how many goroutines compute or spin now.
func (c *Crowd) Awake() int { return int(c.awake.Load()) }

// NewBell returns a quiet bell for a member of the crowd.
func (c *Crowd) NewBell() *Bell { return &Bell{crowd: c, wake: make(chan struct{}, 1)} }

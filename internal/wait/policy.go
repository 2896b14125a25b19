package wait

import (
	"runtime"
	"sync/atomic"
	"time"
)

// SpinTime is about twice the time of waking a goroutine whose core has gone to sleep (5–8 µs if the core slept shortly, about 70 µs if
// it slept deeply, on cloud machines with 2 and 4 cores). A longer spin costs more than parking.
const SpinTime = 150 * time.Microsecond

// MaxYields is how often a goroutine yields its core before it parks, if there are more goroutines than cores.
const MaxYields = 32

// ParkAtOnce ends the spins of policies that are made later. Trainings of tests set it: to spin took half of their time, on cores that the
// tests of another package want.
var ParkAtOnce atomic.Bool

// Policy says how long to wait before parking. The zero Policy parks at once.
type Policy struct {
	Spin   time.Duration // spin for this time
	Yields int           // or call runtime.Gosched so many times
	Crowd  *Crowd        // may be nil: spin only while at most Room of them are awake
	Room   int
}

// For returns the policy of goroutines without a Crowd. runnable is how many goroutines want to run at the same time (ranks × threads):
// they spin if each has a core, and yield otherwise.
func For(runnable int) Policy {
	if ParkAtOnce.Load() {
		return Policy{}
	}
	if runnable <= runtime.GOMAXPROCS(0) {
		return Policy{Spin: SpinTime}
	}
	return Policy{Yields: MaxYields}
}

// Among returns the policy of a member of a crowd. Each member computes with so many threads.
func Among(c *Crowd, threads int) Policy {
	if ParkAtOnce.Load() {
		return Policy{}
	}
	return Policy{Spin: SpinTime, Crowd: c, Room: max(1, runtime.GOMAXPROCS(0)/threads)}
}

const (
	clockEvery = 64 // polls between two reads of the clock
	stuckLooks = 8  // reads of a clock that stands still (testing/synctest), after which the spin ends
)

// Spinner is one wait in progress. It is a value; it does not allocate.
type Spinner struct {
	policy      Policy
	polls       int
	start, last time.Time
	stuck       int
	over        bool
}

// Start begins a wait.
func (p Policy) Start() Spinner { return Spinner{policy: p} }

// Reset begins again, after something happened.
func (s *Spinner) Reset() { *s = Spinner{policy: s.policy} }

// Again is called after each poll that found nothing. It returns false when it is time to park. It yields the core if the policy says so.
func (s *Spinner) Again() bool {
	s.polls++
	if s.over || s.policy.Crowd != nil && s.policy.Crowd.Awake() > s.policy.Room {
		return false
	}
	if s.policy.Spin <= 0 {
		if s.polls > s.policy.Yields {
			return false
		}
		runtime.Gosched()
		return true
	}
	if s.polls%clockEvery != 1 {
		return true
	}
	now := time.Now()
	if s.start.IsZero() {
		s.start, s.last = now, now
		return true
	}
	if !now.After(s.last) {
		s.stuck++
	}
	s.last = now
	s.over = s.stuck >= stuckLooks || now.Sub(s.start) >= s.policy.Spin
	return !s.over
}

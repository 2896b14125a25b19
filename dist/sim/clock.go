package sim

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Time is a time or a duration in the simulation, in picoseconds: a byte takes 2.5 of them at 400 GB/s. As times are whole numbers, events
// that happen at the same time do so on every machine.
type Time int64

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / 1e12 }

// String writes t as a time.Duration, rounded to nanoseconds.
func (t Time) String() string { return time.Duration(math.Round(float64(t) / 1e3)).String() }

// forever is any time that does not fit. A thread that gets there ends the simulation with an error.
const forever Time = math.MaxInt64

// plus is the sum of two times, of which none is negative.
func (t Time) plus(more Time) Time {
	if more > forever-t {
		return forever
	}
	return t + more
}

// of returns how long n units take that take so many picoseconds each.
func of(n int, each float64) Time {
	if x := math.Round(float64(n) * each); x < 1<<63 {
		return Time(x)
	}
	return forever
}

func nanoseconds(x float64) Time { return Time(math.Round(x * 1e3)) }

// thread is a coroutine (iter.Pull) of a rank. What it does does not depend on time, as messages have no content. So its function runs
// ahead and writes down steps, which the engine takes later, without a change of goroutines for each. Each thread has its own clock,
// which is never behind that of the engine. It may be ahead as long as no other thread notices it.
type thread struct {
	now     Time
	steps   []step
	done    int // of steps
	rank    *rank
	after   *thread                 // goes on at the same time
	joiners []*thread               // wait for its end
	next    func() (struct{}, bool) // writes down more steps; nil: all is done
	stop    func()
	yield   func(struct{}) bool
	err     error
}

// manySteps is how many steps a thread writes down at a time.
const manySteps = 48

// step is something that a thread does and that takes time, or is noticed by others.
type step struct {
	tag  uint64
	n    int   // bytes, picoseconds, or the number of a thread or a span
	peer int32 // rank
	what action
}

type action uint8

const (
	send action = iota
	receive
	pause
	begin // of a span
	end
	fork
	join
	post
)

var (
	errEnded = errors.New("sim: the simulation has ended")
	errLong  = errors.New("sim: this takes more than 106 days, and times do not fit: take fewer bytes, more bandwidth or less computation")
)

// record writes down a step of the thread whose function runs.
func (e *engine) record(s step) error {
	t := e.writer
	if len(t.steps) == manySteps && !t.yield(struct{}{}) {
		return errEnded
	}
	t.steps = append(t.steps, s)
	return nil
}

// turns is the threads that go on at one time, in the order in which that became known.
type turns struct {
	at          Time
	first, last *thread // a list; last counts if there is a first one
}

// engine is the clock, and the threads in the order of their times. In most algorithms many ranks do something at the same time, so the
// queue has times, and not threads. What is resumed is later than most of the queue, so that few of it move.
type engine struct {
	now     Time
	last    Time // when the last thread so far ended
	threads []*thread
	queue   []turns
	over    int     // of the queue: less than half
	writer  *thread // whose function runs
	err     error
}

// thread makes a thread of a rank, which does not run yet, and has no memory for that.
func (e *engine) thread(r *rank, f func() error) *thread {
	t := &thread{rank: r}
	t.next = func() (struct{}, bool) {
		t.steps = make([]step, 0, manySteps)
		t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
			t.yield = yield
			t.err = f()
		})
		return t.next()
	}
	e.threads = append(e.threads, t)
	return t
}

// resume lets t go on at a time, or at its own if that is later.
func (e *engine) resume(at Time, t *thread) {
	t.now = max(t.now, at)
	i, ok := slices.BinarySearchFunc(e.queue, t.now, func(x turns, at Time) int { return cmp.Compare(x.at, at) })
	if !ok {
		e.queue = slices.Insert(e.queue, i, turns{at: t.now})
	}
	x := &e.queue[i]
	if x.first == nil {
		x.first = t
	} else {
		x.last.after = t
	}
	x.last = t
}

// sync reports whether no other thread has anything to do before t, so that t may do what others notice. If not, t goes on later.
func (e *engine) sync(t *thread) bool {
	if t.now > e.now && (e.queue[e.over].first != nil || len(e.queue) > e.over+1 && e.queue[e.over+1].at <= t.now) {
		e.resume(t.now, t)
		t.done-- // it takes the step again
		return false
	}
	e.now = max(e.now, t.now)
	return true
}

// run lets threads run until all have ended. If some wait forever, it returns an error that says for what.
func (e *engine) run() error {
	defer func() {
		for _, t := range e.threads {
			if e.writer = t; t.stop != nil { // its function may go on for a while: each of its steps is refused
				t.stop()
			}
		}
	}()
	for len(e.queue) > 0 {
		x := &e.queue[e.over]
		t := x.first
		if t == nil {
			if e.over++; 2*e.over >= len(e.queue) {
				e.queue, e.over = slices.Delete(e.queue, 0, e.over), 0
			}
			continue
		}
		e.now, x.first, t.after = x.at, t.after, nil
		if e.turn(t); e.err != nil {
			return e.err
		}
	}
	for _, t := range e.threads {
		if t.next != nil {
			return fmt.Errorf("sim: after %v %s, forever", e.now, t.misses())
		}
	}
	return nil
}

// turn takes steps of a thread until it waits or ends.
func (e *engine) turn(t *thread) {
	for e.err == nil {
		if t.now == forever {
			e.err = errLong
			return
		}
		if t.done == len(t.steps) {
			t.steps, t.done, e.writer = t.steps[:0], 0, t
			if _, more := t.next(); !more && len(t.steps) == 0 {
				e.err, e.last = t.err, max(e.last, t.now)
				t.next, t.stop, t.yield, t.steps = nil, nil, nil, nil // most threads of a program are over
				for _, x := range t.joiners {
					e.resume(t.now, x)
				}
				return
			}
		}
		t.done++
		if !t.rank.take(t, &t.steps[t.done-1]) {
			return
		}
	}
}

// lets reports whether t is over, so that another thread may go on. If not, that one goes on when t is over.
func (t *thread) lets(another *thread) bool {
	if t.next != nil {
		t.joiners = append(t.joiners, another)
		return false
	}
	another.now = max(another.now, t.now)
	return true
}

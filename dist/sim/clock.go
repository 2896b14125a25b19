package sim

import (
	"container/heap"
	"fmt"
	"iter"
	"math"
	"time"
)

// Time is a time or a duration in the simulation, in picoseconds: a byte takes 2.5 of them at 400 GB/s. As times are whole numbers, events
// that happen at the same time do so on every machine.
type Time int64

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / 1e12 }

// String writes t as a time.Duration, rounded to nanoseconds.
func (t Time) String() string { return time.Duration(math.Round(float64(t) / 1e3)).String() }

// of returns how long n units take that take so many picoseconds each.
func of(n int, each float64) Time { return Time(math.Round(float64(n) * each)) }

// thread is a goroutine of a rank. Threads run one at a time, and each has its own clock, which is never behind that of the engine. A
// thread may run ahead of the engine's clock as long as no other thread notices it.
type thread struct {
	now    Time
	next   func() (struct{}, bool) // runs it until it waits
	stop   func()
	yield  func(struct{}) bool
	err    error
	over   bool
	joiner *thread // waits for its end

	from  sender  // of the message that it waits for
	got   message // and the message
	waits *rank   // the rank that waits, for an error
}

// bucket is the threads that go on at one time, in the order in which that became known.
type bucket struct {
	at      Time
	threads []*thread
}

type buckets []*bucket

func (b buckets) Len() int           { return len(b) }
func (b buckets) Less(i, j int) bool { return b[i].at < b[j].at }
func (b buckets) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *buckets) Push(x any)        { *b = append(*b, x.(*bucket)) }
func (b *buckets) Pop() any {
	old := *b
	x := old[len(old)-1]
	*b = old[:len(old)-1]
	return x
}

// engine is the clock, and the threads in the order of their times. In most algorithms many ranks do something at the same time, so it
// is times that are in a heap, and not threads.
type engine struct {
	now     Time
	threads []*thread
	queue   buckets
	at      map[Time]*bucket
	last    *bucket // the one that was used last
	spare   *bucket
	running *bucket
	place   int // of the current thread in it
	err     error
}

func newEngine() *engine { return &engine{at: map[Time]*bucket{}} }

// start makes a thread that begins at a time.
func (e *engine) start(at Time, f func() error) *thread {
	t := &thread{}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		t.err = f()
	})
	e.threads = append(e.threads, t)
	e.resume(at, t)
	return t
}

func (e *engine) current() *thread { return e.running.threads[e.place] }

// resume lets t go on at a time, or at its own if that is later.
func (e *engine) resume(at Time, t *thread) {
	t.now = max(t.now, at)
	if e.last == nil || e.last.at != t.now {
		e.last = e.bucket(t.now)
	}
	e.last.threads = append(e.last.threads, t)
}

func (e *engine) bucket(at Time) *bucket {
	b := e.at[at]
	if b == nil {
		if b = e.spare; b == nil {
			b = &bucket{}
		}
		e.spare, b.at, e.at[at] = nil, at, b
		heap.Push(&e.queue, b)
	}
	return b
}

// wait ends the turn of the current thread. It returns false if the simulation has ended.
func (e *engine) wait() bool { return e.current().yield(struct{}{}) && e.err == nil }

// sync waits until no other thread has anything to do before the current one. A thread calls it before it does what others can notice. It
// returns false if the simulation has ended.
func (e *engine) sync() bool {
	t := e.current()
	alone := e.place == len(e.running.threads)-1 && (len(e.queue) == 0 || t.now < e.queue[0].at)
	switch {
	case t.now <= e.now:
		return true
	case alone:
		e.now = t.now
		return true
	}
	e.resume(t.now, t)
	return e.wait()
}

// run lets threads run until all have ended. If some wait forever, it returns an error that says for what.
func (e *engine) run() error {
	defer func() {
		for _, t := range e.threads {
			t.stop()
		}
	}()
	for len(e.queue) > 0 {
		b := heap.Pop(&e.queue).(*bucket)
		e.now, e.running = b.at, b
		for e.place = 0; e.place < len(b.threads); e.place++ {
			t := b.threads[e.place]
			if _, more := t.next(); !more {
				e.end(t)
			}
			if e.err != nil {
				return e.err
			}
		}
		delete(e.at, b.at)
		if e.last == b {
			e.last = nil
		}
		b.threads, e.spare = b.threads[:0], b
	}
	for _, t := range e.threads {
		if !t.over {
			return fmt.Errorf("sim: after %v %s, forever", e.now, t.waits.misses())
		}
	}
	return nil
}

// end is after the last turn of a thread.
func (e *engine) end(t *thread) {
	t.over = true
	if t.joiner != nil {
		e.resume(t.now, t.joiner)
	}
	if t.err != nil && t.joiner == nil && e.err == nil {
		e.err = t.err
	}
}

package tensortest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// remoteQueue runs jobs in order, on a goroutine, after random delays. Sometimes it runs nothing until somebody waits for it or many jobs
// are queued: so the host gets far ahead of it.
type remoteQueue struct {
	dev *Remote
	cpu *cpu.Device // whose threads compute

	mu     sync.Mutex
	cond   *sync.Cond
	jobs   []func() error
	pushed uint64 // jobs given
	done   uint64 // jobs run
	wanted uint64 // somebody waits for the jobs up to this one
	err    error  // the first since the last Sync
	closed bool
}

const maxBehind = 64 // jobs that a queue may delay

func newRemoteQueue(d *Remote, seed uint64) *remoteQueue {
	q := &remoteQueue{dev: d, cpu: cpu.New(1)}
	q.cond = sync.NewCond(&q.mu)
	go q.run(rand.New(rand.NewPCG(seed, 11)))
	return q
}

func (q *remoteQueue) push(job func() error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed { // the garbage collector may free tensors at any time
		return
	}
	q.jobs = append(q.jobs, job)
	q.pushed++
	q.cond.Broadcast()
}

func (q *remoteQueue) run(r *rand.Rand) {
	defer q.cpu.Close()
	for {
		job := q.take(r)
		if job == nil {
			return
		}
		if r.IntN(64) == 0 {
			time.Sleep(time.Duration(r.IntN(50)) * time.Microsecond) //sleep: the delay is what this device is for
		}
		err := guarded(job)
		q.mu.Lock()
		if q.err == nil && err != nil {
			q.err = fmt.Errorf("%v: %w", q.dev, err)
		}
		q.done++
		q.cond.Broadcast()
		q.mu.Unlock()
	}
}

// take waits for the next job, and sometimes longer.
func (q *remoteQueue) take(r *rand.Rand) func() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	behind := 0
	if r.IntN(8) == 0 {
		behind = r.IntN(maxBehind)
	}
	for !q.closed && (len(q.jobs) == 0 || len(q.jobs) <= behind && q.wanted <= q.done) {
		q.cond.Wait()
	}
	if len(q.jobs) == 0 {
		return nil
	}
	job := q.jobs[0]
	q.jobs = q.jobs[1:]
	return job
}

// guarded returns a kernel's panic as an error.
func guarded(job func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); ok {
				err = e
			} else {
				err = fmt.Errorf("%v", r)
			}
		}
	}()
	return job()
}

// wait waits until n jobs have run.
func (q *remoteQueue) wait(n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wanted = max(q.wanted, n)
	q.cond.Broadcast()
	for q.done < n {
		q.cond.Wait()
	}
}

func (q *remoteQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

// Sync waits for all jobs.
func (q *remoteQueue) Sync() error {
	q.dev.counting(func(c *Counts) { c.Syncs++ })
	q.mu.Lock()
	n := q.pushed
	q.mu.Unlock()
	q.wait(n)
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.err
	q.err = nil
	return err
}

// Mark returns a Pending that is over when the jobs so far have run.
func (q *remoteQueue) Mark() tensor.Pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	return tensor.Pending{F: q, Seq: q.pushed}
}

// After makes later jobs wait for p.
func (q *remoteQueue) After(p tensor.Pending) error {
	other, ok := p.F.(*remoteQueue)
	if !ok {
		return p.Wait()
	}
	q.push(func() error {
		other.wait(p.Seq)
		return nil
	})
	return nil
}

// FenceDone reports whether a mark is over. From now on the queue runs up to it without delays.
func (q *remoteQueue) FenceDone(seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wanted = max(q.wanted, seq)
	q.cond.Broadcast()
	return q.done >= seq
}

// FenceWait waits for a mark. The next Sync returns an error.
func (q *remoteQueue) FenceWait(seq uint64) error {
	q.dev.counting(func(c *Counts) { c.Waits++ })
	q.wait(seq)
	return nil
}

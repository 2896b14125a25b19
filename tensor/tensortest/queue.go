package tensortest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/tensor"
)

// remoteQueue runs jobs in order, on a goroutine, after random delays. Sometimes it does nothing until somebody waits for it
// or many jobs have come together: so the host is as far ahead as it can be.
type remoteQueue struct {
	dev *Remote
	cpu *tensor.CPU // whose threads compute

	mu     sync.Mutex
	cond   *sync.Cond
	jobs   []func() error
	pushed uint64 // jobs given
	done   uint64 // jobs run
	wanted uint64 // up to here somebody waits
	err    error  // the first since the last Sync
	closed bool
}

const maxBehind = 64 // jobs that a queue leaves undone until it is hurried

func newRemoteQueue(d *Remote, seed uint64) *remoteQueue {
	q := &remoteQueue{dev: d, cpu: tensor.NewCPU(1)}
	q.cond = sync.NewCond(&q.mu)
	go q.run(rand.New(rand.NewPCG(seed, 11)))
	return q
}

func (q *remoteQueue) push(job func() error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed { // tensors are freed by the garbage collector, whenever that is
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

// take waits for the next job, and perhaps longer.
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

// guarded makes an error of a kernel's panic.
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

// Mark returns the end of the jobs given so far.
func (q *remoteQueue) Mark() tensor.Pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	return tensor.Pending{F: q, Seq: q.pushed}
}

// After makes the jobs to come wait for p.
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

// FenceDone reports whether a mark has been passed. Who asks wants it to be.
func (q *remoteQueue) FenceDone(seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wanted = max(q.wanted, seq)
	q.cond.Broadcast()
	return q.done >= seq
}

// FenceWait waits for a mark. An error is left to the next Sync.
func (q *remoteQueue) FenceWait(seq uint64) error {
	q.dev.counting(func(c *Counts) { c.Waits++ })
	q.wait(seq)
	return nil
}

package cpu

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
)

// pool runs a function on parts of a range, on threads that persist. The calling goroutine is one of them. The cuts are fixed. Who computes
// a part is not: when the caller has done its own part, it also does those that no thread has begun. So a small kernel need not wait until
// a sleeping thread wakes up, and no kernel waits for a thread that lost its core.
type pool struct {
	n       int
	grain   int // least number of elements of a part
	policy  wait.Policy
	workers []*worker
	done    *wait.Bell
	left    atomic.Int32
	started sync.Once
	closed  bool
	failed  atomic.Pointer[kernelPanic]

	fn    Part // the work
	q     *Queue
	a     *tensor.Args
	total int
	align int
	parts int
}

type worker struct {
	bell  *wait.Bell
	jobs  atomic.Uint32 // counts the parts given to this worker
	taken atomic.Uint32 // counts those that somebody has begun
	_     [64]byte
}

// take claims part number job, for the worker or for the caller.
func (w *worker) take(job uint32) bool { return w.taken.CompareAndSwap(job-1, job) }

// kernelPanic carries a panic from a worker to the goroutine that launched the kernel.
type kernelPanic struct {
	value any
	stack []byte
}

// String returns the panic and where it happened.
func (k *kernelPanic) String() string {
	return fmt.Sprintf("%v [on a worker thread]\n%s", k.value, k.stack)
}

// newPool returns a pool of n threads. runnable is the number of threads on this host that want to run at the same time.
func newPool(n, runnable int) *pool {
	return &pool{n: n, grain: grainElems, policy: wait.For(runnable), done: wait.NewBell()}
}

func (p *pool) start() {
	for i := 1; i < p.n; i++ {
		w := &worker{bell: wait.NewBell()}
		p.workers = append(p.workers, w)
		go p.work(w, i)
	}
}

func (p *pool) work(w *worker, i int) {
	for seen := uint32(0); ; {
		job := seen
		for s := p.policy.Start(); job == seen; job = w.jobs.Load() {
			if !s.Again() {
				_ = w.bell.Park(context.Background())
			}
		}
		seen = job
		if !w.take(job) {
			continue
		}
		if p.fn == nil {
			return
		}
		p.guard(i, i)
		if p.left.Add(-1) == 0 {
			p.done.Ring()
		}
	}
}

func (p *pool) close() {
	p.started.Do(func() {})
	if p.closed {
		return
	}
	p.closed, p.n, p.fn = true, 1, nil
	for _, w := range p.workers {
		w.jobs.Add(1)
		w.bell.Ring()
	}
}

// run cuts [0,n) into as many equal parts as there are threads, but none smaller than grain, and calls fn for them. Cuts are multiples of
// align. fn's results must not depend on the cuts. A panic of fn becomes a panic of the caller.
func (p *pool) run(q *Queue, a *tensor.Args, n, grain, align int, fn Part) {
	parts := min(p.n, n/max(grain, 1))
	if parts <= 1 {
		if n > 0 {
			fn(q, a, 0, n, 0)
		}
		return
	}
	p.started.Do(p.start)
	p.fn, p.q, p.a, p.total, p.align, p.parts = fn, q, a, n, align, parts
	p.left.Store(int32(parts - 1))
	for _, w := range p.workers[:parts-1] {
		w.jobs.Add(1)
		w.bell.Ring()
	}
	p.guard(0, 0)
	for i := parts - 1; i > 0; i-- {
		if w := p.workers[i-1]; w.take(w.jobs.Load()) {
			p.guard(i, 0)
			p.left.Add(-1)
		}
	}
	for s := p.policy.Start(); p.left.Load() != 0; {
		if !s.Again() {
			_ = p.done.Park(context.Background())
		}
	}
	p.a = nil // it is a part of a tape, which the caller may free
	if f := p.failed.Swap(nil); f != nil {
		if fail, ok := f.value.(*tensor.Failure); ok {
			panic(fail)
		}
		panic(f)
	}
}

// guard runs part i on a thread and records its panic: the other parts must end before the caller panics.
func (p *pool) guard(i, thread int) {
	defer func() {
		if r := recover(); r != nil {
			p.failed.CompareAndSwap(nil, &kernelPanic{r, debug.Stack()})
		}
	}()
	lo, hi := p.cut(i), p.cut(i+1)
	if lo < hi {
		p.fn(p.q, p.a, lo, hi, thread)
	}
}

func (p *pool) cut(i int) int {
	if i >= p.parts {
		return p.total
	}
	return min(p.total, (p.total*i/p.parts+p.align-1)/p.align*p.align)
}

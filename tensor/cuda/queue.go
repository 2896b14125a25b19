package cuda

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/tensor"
)

// Queue is a stream of a device, with the memory that a launch on it needs.
type Queue struct {
	dev    *Device
	stream *cuda.Stream
	args   cuda.Args // of the launch that is being prepared
	op     tensor.Op
	s      strided // parameters
	list   tensorList
	gemm   blas.Gemm // the product that is being prepared
	tmap   cuda.TensorMap
	sub    tensor.Args // of a kernel that another kernel's launcher launches

	varying *varying // the varying launch that current launches belong to

	mu    sync.Mutex
	marks [marksKept]mark
	seq   uint64        // of the last mark
	past  atomic.Uint64 // marks up to this one are over
	work  scratch
	count tensor.Tensor // see counters
}

// marksKept is the number of marks with an event of their own. An older mark counts as over when the mark that took its event is over.
const marksKept = 64

type mark struct {
	seq   uint64
	event *cuda.Event
}

func (d *Device) newQueue(name string) (*Queue, error) {
	s, err := d.gpu.NewStream(name, 0)
	if err != nil {
		return nil, err
	}
	q := &Queue{dev: d, stream: s}
	for i := range q.marks {
		if q.marks[i].event, err = d.gpu.NewEvent(false); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *Queue) close() error {
	var errs []error
	for _, m := range q.marks {
		errs = append(errs, m.event.Close())
	}
	return errors.Join(append(errs, q.stream.Close())...)
}

// Stream returns the queue's stream.
func (q *Queue) Stream() *cuda.Stream { return q.stream }

// Device returns the queue's device.
func (q *Queue) Device() *Device { return q.dev }

// Sync waits until everything launched on the queue is done. It returns the first error since the last Sync: an index out of range, or the
// error after which the device cannot be used.
func (q *Queue) Sync() error {
	d := q.dev
	if err := q.refuse("sync", "waits"); err != nil {
		return err
	}
	if err := d.locked(q.stream.Sync); err != nil {
		return d.fail("sync", err)
	}
	if err := d.failure(); err != nil {
		return err
	}
	return d.badIndex()
}

// badIndex returns the error that kernels reported, and clears it. The word holds the operation in its highest byte, a bit that says that
// it is set, and the index in 55 bits.
func (d *Device) badIndex() error {
	w := atomic.SwapUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(d.bad.Bytes()))), 0)
	if w == 0 {
		return nil
	}
	return &tensor.Failure{Op: tensor.Op(w >> 56).String(), Err: fmt.Errorf("%v: index %d is out of range", d, int64(w<<9)>>9)}
}

// Mark returns a Pending that is over when everything launched on the queue so far is done.
func (q *Queue) Mark() tensor.Pending {
	if err := q.refuse("mark", "marks a place that others are to wait for"); err != nil {
		panic(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seq++
	m := &q.marks[q.seq%marksKept]
	err := q.dev.locked(func() error { return m.event.Record(q.stream) })
	if err != nil {
		panic(q.dev.fail("mark", err))
	}
	m.seq = q.seq
	return tensor.Pending{F: q, Seq: q.seq}
}

// settle marks all marks of the queue as over.
func (q *Queue) settle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.past.Store(q.seq)
}

// refuse is Device.refuse, if the queue is recorded.
func (q *Queue) refuse(op, what string) error {
	if q != q.dev.queues[computeQueue] {
		return nil
	}
	return q.dev.refuse(op, what)
}

// FenceDone reports whether a mark is over. While a graph is recorded it reports false: asking the driver would make the recording invalid.
func (q *Queue) FenceDone(seq uint64) bool {
	if seq <= q.past.Load() {
		return true
	}
	if q.dev.recorded.Load() != nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.marks[seq%marksKept]
	var done bool
	err := q.dev.locked(func() (err error) {
		done, err = m.event.Done()
		return err
	})
	if err != nil {
		q.dev.noteFailure("mark", err)
		return q.dev.failure() != nil // on a failed device all is over; FenceWait returns the error
	}
	if done {
		q.past.Store(max(q.past.Load(), m.seq))
	}
	return done
}

// FenceWait blocks until a mark is over.
func (q *Queue) FenceWait(seq uint64) error {
	if q.FenceDone(seq) {
		return q.dev.failure()
	}
	q.mu.Lock()
	e := q.marks[seq%marksKept].event
	q.mu.Unlock()
	if err := q.dev.locked(e.Sync); err != nil {
		return q.dev.fail("wait", err)
	}
	return q.dev.failure()
}

// After makes all later launches on the queue wait until p is over. The host waits only if p is not a mark of a CUDA queue.
func (q *Queue) After(p tensor.Pending) error {
	of, ok := p.F.(*Queue)
	if !ok {
		return p.Wait()
	}
	if of == q || p.Seq <= of.past.Load() {
		return nil
	}
	if err := q.refuse("after", "waits for what is not part of the step"); err != nil {
		return err
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	return q.dev.locked(func() error { return q.stream.Wait(of.marks[p.Seq%marksKept].event) })
}

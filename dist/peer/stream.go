package peer

import (
	"errors"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/internal/cuda"
)

// stream is a rank's queue for the operations of a group.
type stream struct {
	dev    *Device
	size   int // ranks of the group
	s      *cuda.Stream
	slots  [2 * backend.Depth]slot // a peer is at most Depth operations behind
	copies copies
	ranks  ranks
	args   cuda.Args

	mu     sync.Mutex // guards closed, for peers that wait in Idle
	closed bool
}

// slot has the events of an operation, for which peers or the compute stream wait.
type slot struct{ issued, shared, settled *cuda.Event }

// NewStream makes a queue for the operations of a group of n ranks.
func (d *Device) NewStream(name string, n int) (local.Stream, error) {
	q := &stream{dev: d, size: n}
	q.copies.pool = d.gpu.NewPool("one-shot copies of " + name)
	err := d.locked(func() (err error) {
		if q.s, err = d.gpu.NewStream("peers of "+name, 0); err != nil {
			return err
		}
		for i := range q.slots { // all now, so that later steps make none
			s := &q.slots[i]
			for _, e := range []**cuda.Event{&s.issued, &s.shared, &s.settled} {
				if *e, err = d.gpu.NewEvent(false); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return q, err
}

func (q *stream) slot(seq uint64) *slot { return &q.slots[seq%uint64(len(q.slots))] }

// locked calls f with the device's context current.
func (d *Device) locked(f func() error) error {
	if err := d.gpu.Lock(); err != nil {
		return err
	}
	defer d.gpu.Unlock()
	return f()
}

// Issued marks how far the compute stream has been filled, behind the copy of a one-shot all-reduce.
func (q *stream) Issued(op *backend.Op) error {
	oneShot, err := q.isOneShot(op)
	if err != nil {
		return err
	}
	return q.dev.locked(func() error {
		if oneShot {
			if err := q.copyInput(op); err != nil {
				return err
			}
		}
		return q.slot(op.Seq).issued.Record(q.dev.compute)
	})
}

// Queue queues this rank's share of an operation, after what the ranks whose memory it uses have issued.
func (q *stream) Queue(s *algo.Share) error {
	return q.dev.locked(func() error {
		for _, p := range s.After {
			if err := q.s.Wait(p.(*stream).slot(s.Op.Seq).issued); err != nil {
				return err
			}
		}
		for i := range s.Copies {
			if err := q.copy(&s.Copies[i]); err != nil {
				return err
			}
		}
		if s.Count > 0 {
			if err := q.reduce(s); err != nil {
				return err
			}
		}
		return q.slot(s.Op.Seq).shared.Record(q.s)
	})
}

func (q *stream) copy(c *algo.Copy) error {
	to, from := q.dev.gpu, c.From.(*stream).dev.gpu
	if to == from {
		return q.s.Copy(devPtr(c.Dst), devPtr(c.Src), c.Bytes)
	}
	return q.s.CopyPeer(devPtr(c.Dst), to, devPtr(c.Src), from, c.Bytes)
}

// Settle marks the end of an operation, after the shares of peers.
func (q *stream) Settle(seq uint64, peers []algo.Stream) error {
	return q.dev.locked(func() error {
		for _, p := range peers {
			if err := q.s.Wait(p.(*stream).slot(seq).shared); err != nil {
				return err
			}
		}
		return q.slot(seq).settled.Record(q.s)
	})
}

// Order makes the compute stream wait for the end of an operation.
func (q *stream) Order(seq uint64) error {
	return q.dev.locked(func() error { return q.dev.compute.Wait(q.slot(seq).settled) })
}

// Passed reports whether the device has finished an operation.
func (q *stream) Passed(seq uint64) (done bool, err error) {
	err = q.dev.locked(func() (err error) {
		done, err = q.slot(seq).settled.Done()
		return err
	})
	return done, err
}

// Idle waits until the stream is empty.
func (q *stream) Idle(most time.Duration) {
	done := make(chan struct{})
	go func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.closed {
			_ = q.dev.locked(q.s.Sync) // a failed device runs nothing any more
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(most):
	}
}

// Close waits until the stream is empty and closes it.
func (q *stream) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return q.dev.locked(func() error {
		err := errors.Join(q.s.Sync(), q.s.Close())
		for i := range q.slots {
			s := &q.slots[i]
			err = errors.Join(err, s.issued.Close(), s.shared.Close(), s.settled.Close())
		}
		return errors.Join(err, q.copies.close())
	})
}

package local

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// Device is what the engine needs of a rank's device if Go code cannot access its memory. Package peer has the one of CUDA.
type Device interface {
	// Meet makes the two devices able to use each other's memory. The error says why they cannot.
	Meet(other Device) error
	// NewStream makes a queue for the operations of a group of n ranks.
	NewStream(name string, n int) (Stream, error)
}

// Stream is a queue of operations on a Device. Idle may be called by any goroutine.
type Stream interface {
	algo.Stream
	// Order makes everything that the device gets to compute from now on run after operation seq, which is settled.
	Order(seq uint64) error
	// Passed reports whether the device has finished operation seq, which is settled. The error is the device's failure.
	Passed(seq uint64) (bool, error)
	// Idle waits until everything that was queued has run, but at most so long.
	Idle(most time.Duration)
	// Close frees the queue when everything that was queued has run.
	Close() error
}

// Use sets the rank's device, before the ranks start. If all ranks have one, and can access each other's memory, operations on device
// memory are done on the devices.
func (e *Engine) Use(d Device) {
	h := e.hub
	for _, o := range h.ranks {
		if o.device != nil && h.apart == nil {
			h.apart = d.Meet(o.device)
		}
	}
	e.device, e.look = d, time.AfterFunc(time.Hour, e.bell.Ring)
	e.look.Stop()
	h.devices++
}

// Apart returns why ranks exchange device memory through host memory. It is nil if they need not, or if no rank has any.
func (e *Engine) Apart() error {
	h := e.hub
	if h.devices == 0 || h.apart != nil || h.devices == len(h.ranks) {
		return h.apart
	}
	for _, r := range h.ranks {
		if r.device == nil {
			return fmt.Errorf("rank %d computes in host memory", r.rank)
		}
	}
	return nil
}

// lookEvery is how often the host asks the device for its progress. Each query costs about a microsecond in the driver.
const lookEvery = 50 * time.Microsecond

// quietTime is how long a failed operation may keep a rank's memory: a device that runs longer is stuck.
const quietTime = 10 * time.Second

// TakesDevice reports whether the ranks can access each other's device memory.
func (b *endpoint) TakesDevice(*backend.Op) bool {
	h := b.engine.hub
	return h.devices == len(h.ranks) && h.apart == nil
}

// prepare puts op in order on the device: after everything that the device has got to compute so far. If the group has used the device, a
// barrier is over when the devices have reached it, as on all engines for devices.
func (b *endpoint) prepare(op *backend.Op) error {
	op.Copied = nil
	if op.Kind == backend.Barrier && b.stream != nil {
		op.Dst.Device = true
	}
	if !op.OnDevice() {
		return nil
	}
	err := b.makeStream()
	switch {
	case op.Src.Bytes > 0 && op.Dst.Bytes > 0 && op.Src.Device != op.Dst.Device:
		err = errors.New("input and output are in different memory, one of them the host's")
	case err == nil:
		err = b.stream.Issued(op)
	}
	if err != nil {
		return backend.OpError(&b.spec, op, err)
	}
	return nil
}

func (b *endpoint) makeStream() error {
	if b.stream != nil {
		return nil
	}
	s, err := b.engine.device.NewStream(b.spec.Name, b.Size())
	if err != nil {
		return err
	}
	b.me.busy.Lock() // after a failure, a peer may read it
	b.me.stream = s
	b.me.busy.Unlock()
	b.stream, b.past = s, b.direct.Done()
	b.engine.dropping.Lock()
	b.engine.streamed = append(b.engine.streamed, b)
	b.engine.dropping.Unlock()
	return nil
}

// Stream returns the stream of a peer that has posted an operation on device memory.
func (b *endpoint) Stream(peer int) algo.Stream { return b.group.members[peer].Load().stream }

// over returns the number of the last operation that is over for the host, too. Without look, it asks the device only every lookEvery.
func (b *endpoint) over(look bool) (uint64, error) {
	done := b.direct.Done()
	if b.stream == nil {
		return done, nil
	}
	before := b.past
	for ; b.past < done; b.past++ {
		op := &b.posting(b.past + 1).Op
		if !op.OnDevice() {
			continue
		}
		now := time.Now()
		if !look && now.Sub(b.looked) < lookEvery {
			break
		}
		ok, err := b.stream.Passed(b.past + 1)
		if err != nil {
			return b.past, backend.OpError(&b.spec, op, err)
		}
		if !ok {
			b.looked = now
			break
		}
	}
	b.setBusy(b.past < done)
	if b.past > before {
		b.engine.bell.Ring() // another goroutine of the rank may wait for this
	}
	return b.past, nil
}

// setBusy notes whether the device still has work that somebody may wait for.
func (b *endpoint) setBusy(busy bool) {
	if busy == b.busy {
		return
	}
	b.busy = busy
	if busy {
		b.engine.busy.Add(1)
	} else {
		b.engine.busy.Add(-1)
	}
}

// Order makes the device's compute queue wait for operations up to seq, if they are queued. An operation on host memory is over then,
// without the device. For barriers the host waits.
func (b *endpoint) Order(seq uint64) bool {
	if b.stream == nil || b.Aborted() || seq > b.direct.Done() {
		return false
	}
	if k := b.posting(seq).Op.Kind; k == backend.Barrier || k == backend.MonitoredBarrier {
		return false
	}
	for seq > b.past && !b.posting(seq).Op.OnDevice() {
		seq--
	}
	return seq <= b.past || b.stream.Order(seq) == nil
}

// quiesce waits, after a failure, until no device uses this rank's memory, or a peer's memory for this rank.
func (b *endpoint) quiesce() {
	for i := range b.group.members {
		m := b.group.members[i].Load()
		if m == nil {
			continue
		}
		m.busy.Lock() // wait for the peer's Leave; a later Enter sees the failure
		s := m.stream
		m.busy.Unlock()
		if s != nil {
			s.Idle(quietTime)
		}
	}
	if b.stream != nil {
		_, _ = b.over(true) // the group has its first failure already
		b.setBusy(false)
	}
}

// unused reports whether this rank has closed the group, and no peer needs its stream any more. A peer may be behind: it waits for events
// of the stream, and reads copies of inputs that belong to it.
func (b *endpoint) unused() bool {
	if !b.closed {
		return false
	}
	return b.group.failed.Load() != nil || int(b.group.closed.Load()) == b.Size()
}

// dropStreams closes the streams of those groups.
func (e *Engine) dropStreams(of func(b *endpoint) bool) error {
	e.dropping.Lock()
	defer e.dropping.Unlock()
	var errs []error
	e.streamed = slices.DeleteFunc(e.streamed, func(b *endpoint) bool {
		if !of(b) {
			return false
		}
		if f := b.group.failed.Load(); f != nil {
			_ = b.failure(f) // waits for the peers' streams
		}
		b.setBusy(false)
		errs = append(errs, b.stream.Close())
		b.stream = nil
		return true
	})
	return errors.Join(errs...)
}

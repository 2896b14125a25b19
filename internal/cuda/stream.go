package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Stream is a queue of work on a device. Work of one stream runs in order. Work of
// different streams runs at the same time, and only events order it (streams are
// non-blocking: the legacy default stream does not order them).
type Stream struct {
	Name      string
	dev       *Device
	handle    uintptr
	capturing bool
	debug     bool  // wait after every launch
	reaches   bool  // the device can use ordinary host memory
	kind      int32 // for cuPointerGetAttribute, which must write it somewhere
}

// NewStream makes a stream. A lower number is a higher priority; 0 is the lowest
// one and the default, -5 the highest one on today's devices.
func (dev *Device) NewStream(name string, priority int) (*Stream, error) {
	const nonBlocking = 1
	reaches, err := dev.Attribute(pageableAccess)
	if err != nil {
		return nil, err
	}
	s := &Stream{Name: name, dev: dev, debug: debugging(), reaches: reaches != 0}
	r := dl.Call(dev.drv.fn.StreamCreate, uintptr(unsafe.Pointer(&s.handle)), nonBlocking, uintptr(priority))
	if err := dev.check("cuStreamCreateWithPriority", r); err != nil {
		return nil, err
	}
	return s, nil
}

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.dev }

// Handle is the CUstream, for libraries such as NCCL and cuBLASLt.
func (s *Stream) Handle() uintptr { return s.handle }

// Close destroys the stream; queued work still runs.
func (s *Stream) Close() error {
	return s.dev.check("cuStreamDestroy", dl.Call(s.dev.drv.fn.StreamDestroy, s.handle))
}

// Sync waits for all work queued on the stream. Stats counts it.
func (s *Stream) Sync() error {
	s.dev.stats.syncs.Add(1)
	return s.dev.check("cuStreamSynchronize", dl.Call4(s.dev.drv.fn.StreamSynchronize, s.handle, 0, 0, 0))
}

// Done reports whether everything queued so far has run, without waiting.
func (s *Stream) Done() (bool, error) {
	r := dl.Call4(s.dev.drv.fn.StreamQuery, s.handle, 0, 0, 0)
	if int32(r) == codeNotReady {
		return false, nil
	}
	return int32(r) == 0, s.dev.check("cuStreamQuery", r)
}

// Event is a mark in a stream that other streams and the host can wait for.
type Event struct {
	dev    *Device
	handle uintptr
}

// NewEvent makes an event. A timed one can be given to Elapsed; an untimed one is
// cheaper.
func (dev *Device) NewEvent(timed bool) (*Event, error) {
	const disableTiming = 2
	flags := uintptr(disableTiming)
	if timed {
		flags = 0
	}
	e := &Event{dev: dev}
	r := dl.Call(dev.drv.fn.EventCreate, uintptr(unsafe.Pointer(&e.handle)), flags)
	if err := dev.check("cuEventCreate", r); err != nil {
		return nil, err
	}
	return e, nil
}

// Close destroys the event.
func (e *Event) Close() error {
	return e.dev.check("cuEventDestroy", dl.Call(e.dev.drv.fn.EventDestroy, e.handle))
}

// Record marks the end of the work queued on s so far; the event's earlier mark is
// forgotten. Event and stream must be of the same device.
func (e *Event) Record(s *Stream) error {
	return s.dev.check("cuEventRecord", dl.Call4(s.dev.drv.fn.EventRecord, e.handle, s.handle, 0, 0))
}

// Done reports whether the work before the last mark has run. An event that was
// never recorded is done.
func (e *Event) Done() (bool, error) {
	r := dl.Call4(e.dev.drv.fn.EventQuery, e.handle, 0, 0, 0)
	if int32(r) == codeNotReady {
		return false, nil
	}
	return int32(r) == 0, e.dev.check("cuEventQuery", r)
}

// Sync makes the host wait for the last mark. Stats counts it.
func (e *Event) Sync() error {
	e.dev.stats.syncs.Add(1)
	return e.dev.check("cuEventSynchronize", dl.Call4(e.dev.drv.fn.EventSynchronize, e.handle, 0, 0, 0))
}

// Elapsed returns the milliseconds between two timed events that have run.
func (e *Event) Elapsed(since *Event) (float32, error) {
	var ms float32
	r := dl.Call(e.dev.drv.fn.EventElapsedTime, uintptr(unsafe.Pointer(&ms)), since.handle, e.handle)
	return ms, e.dev.check("cuEventElapsedTime", r)
}

// Wait makes all work that is queued on s later wait for the event's last mark,
// which may be in a stream of another device. The host does not wait.
func (s *Stream) Wait(e *Event) error {
	return s.dev.check("cuStreamWaitEvent", dl.Call4(s.dev.drv.fn.StreamWaitEvent, s.handle, e.handle, 0, 0))
}

package dist

import (
	"fmt"
	"sync/atomic"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// lane is a queue of operations that are done in order: the collectives of a group, the messages from one rank to another, or the batches
// of a group. A lane without a backend holds batches: an entry is done when its parts are. All fields but the atomics are guarded by
// comm.mu.
type lane struct {
	c      *comm
	g      *group
	be     backend.Backend
	async  bool  // progresses by itself: a busy wait would take the core from the engine's goroutines
	ranks  []int // world ranks of the members
	ring   backend.History[slot]
	uses   [backend.Depth]use // of the operations in ring; apart from them, because each issue goes through all
	issued uint64
	done   atomic.Uint64 // operations up to this one succeeded
	over   atomic.Bool   // the group failed: all later operations are over

	caps    backend.Caps
	device  backend.DeviceUser // nil: host memory only, and the host waits
	ordered atomic.Uint64      // the device's compute queue already waits for operations up to this one
	err     error              // the first cause; set before over
	active  bool               // in comm.active
	waited  atomic.Uint64      // the last operation for which somebody has waited

	track        *recordedOps  // what the last captured step does here
	crowded      bool          // an operation waits until there is a free slot
	waiting      bool          // a goroutine waits here for its wake-up, while another one drives
	waiters      int           // goroutines that wait for this lane before they issue on another one
	wake         chan struct{} // one token for that goroutine
	deadline     deadlineTimer
	traced       int32  // its number in traces
	lastProgress int64  // comm.now of the last progress: a wait began, an operation finished, bytes moved
	wire         uint64 // bytes moved or received until then
}

// slot is one operation in flight. Its slices are reused.
type slot struct {
	op          backend.Op
	counts      []int
	dims        []int // uses dimsBuf
	dimsBuf     [tensor.MaxNDim]int
	parts       []Work
	flightEntry int   // its number in the flight recorder
	issued      int64 // comm.now
	staged      staged
	xs          [2]tensor.Tensor // kept until it is done: the garbage collector does not see a device address
}

func (l *lane) slot(seq uint64) *slot { return l.ring.At(seq % backend.Depth) }

func (l *lane) idle() bool { return l.over.Load() || l.done.Load() == l.issued }

// result reports whether operation seq is over, and its error.
func (l *lane) result(seq uint64) (bool, error) {
	if seq <= l.done.Load() {
		return true, nil
	}
	if l.over.Load() {
		return true, l.err
	}
	return false, nil
}

// order makes the device wait for operation seq, if the engine can do so.
func (l *lane) order(seq uint64) bool {
	switch {
	case seq <= l.ordered.Load():
		return true
	case l.be == nil:
		for _, p := range l.slot(seq).parts {
			if over, err := p.l.result(p.seq); over && err == nil {
				continue
			}
			if !p.l.order(p.seq) {
				return false
			}
		}
		return true
	case l.device == nil || l.over.Load() || !l.device.Order(seq):
		return false
	}
	l.ordered.Store(seq)
	return true
}

// advance makes one bounded step for the lane. It reports whether an operation finished.
func (l *lane) advance() bool {
	if l.over.Load() {
		return false
	}
	before := l.done.Load()
	var done uint64
	var err error
	if l.be == nil {
		done, err = l.joined()
	} else {
		done, err = l.be.Progress()
	}
	l.finish(done)
	if err != nil {
		l.g.fail(err)
	}
	return done > before
}

// finish notes that operations up to done are over.
func (l *lane) finish(done uint64) {
	before := l.done.Load()
	if done <= before {
		return
	}
	l.lastProgress = l.c.now()
	for s := before + 1; s <= done; s++ {
		l.unstage(l.slot(s))
		l.slot(s).xs = [2]tensor.Tensor{}
		l.c.usage[l.slot(s).op.Kind].flight += l.lastProgress - l.slot(s).issued
		l.c.noteFinished(l, s)
	}
	l.done.Store(done)
	l.tell()
}

// joined is Progress for a lane of batches.
func (l *lane) joined() (uint64, error) {
	done := l.done.Load()
	for done < l.issued {
		for _, p := range l.slot(done + 1).parts {
			if over, err := p.l.result(p.seq); !over || err != nil {
				return done, err
			}
		}
		done++
	}
	return done, nil
}

// current returns the lane and the number of the operation that l waits for: its own, or the first part of a batch that is not over.
func (l *lane) current() (*lane, uint64) {
	seq := l.done.Load() + 1
	if l.be != nil {
		return l, seq
	}
	for _, p := range l.slot(seq).parts {
		if over, _ := p.l.result(p.seq); !over {
			return p.l.current()
		}
	}
	return l, seq
}

// tell wakes the goroutines that wait for this lane.
func (l *lane) tell() {
	if l.waiters == 0 {
		l.notify()
		return
	}
	for _, x := range l.c.lanes {
		x.notify()
	}
}

func (l *lane) notify() {
	if !l.waiting {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// stop aborts the lane's operations in the engine, which stops using this rank's memory. It returns the first cause.
func (l *lane) stop(err error) error {
	_ = l.be.Abort(err)
	done, first := l.be.Progress()
	l.finish(done)
	if first != nil {
		return first
	}
	return err
}

// end fails every operation that is not done, after the engine has stopped using the memory.
func (l *lane) end(err error) {
	if l.over.Load() {
		return
	}
	l.err = err
	l.over.Store(true)
	l.deadline.clear()
	l.tell()
}

// FenceDone reports whether operation seq is over, or whether kernels that are launched from now on run after it. With it, lane is a
// tensor.Fence.
func (l *lane) FenceDone(seq uint64) bool {
	if t := l.recordingOf(); t != nil && seq >= t.ops[0].seq {
		return seq <= t.waited || l.over.Load()
	}
	return seq <= l.done.Load() || seq <= l.ordered.Load() || l.over.Load()
}

// FenceUses says what operation seq is if it is not over and writes memory from lo up to hi, or reads it and write is set; otherwise "".
func (l *lane) FenceUses(seq uint64, lo, hi uintptr, write bool) string {
	if l.FenceDone(seq) || !l.c.mu.TryLock() {
		return ""
	}
	defer l.c.mu.Unlock()
	u, mem := &l.uses[seq%backend.Depth], span{lo, hi}
	if l.issued-seq >= backend.Depth || !u.written.overlaps(mem) && !(write && u.read.overlaps(mem)) {
		return ""
	}
	return fmt.Sprintf("%v seq %d of group %s", l.slot(seq).op.Kind, seq, l.g.name)
}

// FenceWait blocks until operation seq is over and returns its error.
func (l *lane) FenceWait(seq uint64) error { return Work{l, seq}.wait(background, true) }

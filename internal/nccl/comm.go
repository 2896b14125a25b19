package nccl

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// ID is an ncclUniqueId: who has the same one meets in a communicator.
type ID [128]byte

// UniqueID makes an ID. One rank does, and tells the others.
func (l *Lib) UniqueID() (id ID, err error) {
	r := Result(int32(dl.Call(l.fn.GetUniqueID, uintptr(unsafe.Pointer(&id)))))
	return id, l.Err("ncclGetUniqueId", r)
}

// Comm is one rank's end of a communicator. One goroutine makes the calls, with
// its OS thread locked; AsyncError and Abort may come from another one at any time.
type Comm struct {
	lib    *Lib
	handle uintptr // NCCL writes it early in Init, while another thread may wait for it in Abort
	state  int32   // what AsyncError is told
}

// NewComm makes a Comm for Init.
func (l *Lib) NewComm() *Comm { return &Comm{lib: l} }

// Open reports whether there is a communicator.
func (c *Comm) Open() bool { return atomic.LoadUintptr(&c.handle) != 0 }

// config is an ncclConfig_t as NCCL 2.22 has it. Later ones are longer; NCCL
// reads as much as size says and takes its defaults for the rest.
type config struct {
	size       uint64
	magic      uint32
	version    uint32
	blocking   int32
	cgaCluster int32
	minCTAs    int32
	maxCTAs    int32
	netName    uintptr
	splitShare int32
	_          int32
}

// blocking leaves everything but blocking to NCCL and its environment variables.
func blocking() config {
	const unset = math.MinInt32
	return config{size: uint64(unsafe.Sizeof(config{})), magic: 0xcafebeef, version: MinVersion, blocking: 1,
		cgaCluster: unset, minCTAs: unset, maxCTAs: unset, splitShare: unset}
}

// Init makes the communicator of n ranks that have the same id, on the device
// whose context is current. It waits for the others.
func (c *Comm) Init(n int, id *ID, rank int) Result {
	cfg := blocking()
	r := initRank(c.lib.fn.InitRankConfig, &c.handle, n, id, rank, &cfg)
	runtime.KeepAlive(c) // a Comm is always on the heap, which does not move
	return Result(int32(r))
}

// NoColor is the color of ranks that get no communicator of a split.
const NoColor = -1

// HasSplit reports whether this library splits communicators.
func (l *Lib) HasSplit() bool { return l.fn.Split != 0 }

// Split makes child a communicator of the ranks that give the same color, in the
// order of key. All ranks of c call it, with nothing in flight on c, and wait for
// each other. NCCL writes child at the end: to end a split that hangs, abort c.
func (c *Comm) Split(color, key int, child *Comm) Result {
	cfg := blocking()
	r := dl.Call(c.lib.fn.Split, c.handle, uintptr(color), uintptr(key), uintptr(unsafe.Pointer(&child.handle)), uintptr(unsafe.Pointer(&cfg)))
	runtime.KeepAlive(child)
	return Result(int32(r))
}

// AsyncError is the state of the communicator: Success, or a failure since it was
// made, here or on another rank.
func (c *Comm) AsyncError() Result {
	r := hot(c.lib.fn.GetAsyncError, atomic.LoadUintptr(&c.handle), uintptr(unsafe.Pointer(&c.state)))
	runtime.KeepAlive(c)
	if r != Success {
		return r
	}
	return Result(c.state)
}

// Destroy ends a communicator whose operations are over, and gives it back.
func (c *Comm) Destroy() Result {
	r := Result(int32(dl.Call(c.lib.fn.Destroy, c.handle)))
	atomic.StoreUintptr(&c.handle, 0)
	return r
}

// Abort ends the communicator's operations wherever they are, also a call that
// the goroutine of the communicator is in, and gives it back. idle is closed when
// nobody makes a call any more, AsyncError included. The OS thread of the caller is
// locked.
//
// In a group, NCCL ends the operations at once but frees the communicator only in
// ncclGroupEnd, and so behind the calls that still use it (see MinVersion).
func (c *Comm) Abort(idle <-chan struct{}) Result {
	for !c.Open() {
		select {
		case <-idle:
			if !c.Open() { // Init was not called, or has failed early
				return Success
			}
		case <-time.After(time.Millisecond):
		}
	}
	start := c.lib.GroupStart()
	r := Result(int32(dl.Call(c.lib.fn.Abort, atomic.LoadUintptr(&c.handle))))
	<-idle
	r = max(start, r, c.lib.GroupEnd())
	atomic.StoreUintptr(&c.handle, 0)
	return r
}

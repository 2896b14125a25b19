package nccl

import (
	"math"
	"runtime"
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

// Comm is one rank's end of a communicator. NCCL writes the handle while the
// communicator is being made, on a thread of its own: a Comm must stay reachable
// until then.
type Comm struct {
	lib    *Lib
	handle uintptr
	state  int32 // what AsyncError is told
}

// Open reports whether there is a communicator.
func (c *Comm) Open() bool { return c.handle != 0 }

// config is an ncclConfig_t as NCCL 2.18 had it. Later ones are longer; NCCL
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

// nonBlocking leaves everything else to NCCL and its environment variables.
func nonBlocking() config {
	const unset = math.MinInt32
	return config{size: uint64(unsafe.Sizeof(config{})), magic: 0xcafebeef, version: MinVersion, blocking: 0,
		cgaCluster: unset, minCTAs: unset, maxCTAs: unset, splitShare: unset}
}

// Init begins to make the communicator of n ranks that have the same id, on the
// device whose context is current. It does not wait for the others: AsyncError
// is InProgress until they have come.
func (l *Lib) Init(n int, id *ID, rank int) (*Comm, Result) {
	c, cfg := &Comm{lib: l}, nonBlocking()
	r := initRank(l.fn.InitRankConfig, &c.handle, n, id, rank, &cfg)
	return c, Result(int32(r))
}

// AsyncError is the state of the communicator: Success, InProgress, or a failure
// since it was made, here or on another rank.
func (c *Comm) AsyncError() Result {
	r := hot(c.lib.fn.GetAsyncError, c.handle, uintptr(unsafe.Pointer(&c.state)))
	runtime.KeepAlive(c) // a Comm is always on the heap, which does not move
	if r != Success {
		return r
	}
	return Result(c.state)
}

// Destroy ends a communicator whose operations are over, and gives it back.
func (c *Comm) Destroy() Result {
	r := Result(int32(dl.Call(c.lib.fn.Destroy, c.handle)))
	c.handle = 0
	return r
}

// Abort ends the communicator's operations wherever they are, and gives it back.
func (c *Comm) Abort() Result {
	r := Result(int32(dl.Call(c.lib.fn.Abort, c.handle)))
	c.handle = 0
	return r
}

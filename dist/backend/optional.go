package backend

import (
	"context"
	"time"

	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
)

// Interfaces that an Engine or a Backend may implement in addition. Package dist checks for these, and for no others. shm is a group of
// dist/tcp whose ranks share memory; nccl passes what is not its own on to the engine that it has for control.
//
//	of an Engine   local tcp  mpi  nccl       what for
//	Allocator       -    x    -    -          buffers that peers read in place
//	Crowder         x    -    -    x          ranks in a process: how long a wait spins
//	Finisher        x    x    x    x          a rank that has ended fails those that wait for it
//	Leaver          x    -    -    x          nobody waits for its answer after a failure
//	Parker          x    x    x    x          sleep until any group of the rank has progress
//	Rebuilder       x    x    -    x          survivors go on after a failure
//
//	of a Backend   local tcp  shm  mpi  nccl  what for
//	Algorithms      x    x    x    x    x     forced algorithms, and counts of those that ran
//	Closer          x    x    x    x    x     a group that is dropped
//	DeviceUser      x    -    -    -    x     device memory without a copy, and waits on the device
//	Listener        -    x    -    -    -     a late rank that may be lost is not blamed yet
//	Named           -    -    x    -    -     the engine's name for users
//	Peeker          x    x    x    x    x     RecvAny
//	Splitter        -    -    -    -    x     ncclCommSplit
//	Suspecter       x    x    x    x    x     a timeout names ranks
//	Witness         -    -    -    x    x     a timeout names the library's call

// Allocator is implemented by an Engine that may have memory that peers read and write in place.
type Allocator interface {
	// Alloc returns n bytes of zeroed memory. It exists as long as the engine is open, or owner is reachable.
	Alloc(n int) (p, owner tensor.Ptr, err error)
	// Free frees memory of Alloc. No operation may use it any more.
	Free(p tensor.Ptr) error
}

// Closer is implemented by a Backend that must free something. Close is called when all operations of this rank are over; peers may still
// be finishing theirs.
type Closer interface {
	Close() error
}

// Finisher is implemented by an Engine that can tell the others that its rank issues no more operations, in any group. Then a rank that
// waits for one fails at once with ErrLeft.
type Finisher interface {
	Finish()
}

// Suspecter is implemented by a Backend that can tell whom operation seq waits for, so that a timeout names the ranks
// (indices in the group): absent ones have not started the operation, stalled ones have started and not finished it.
type Suspecter interface {
	Suspects(seq uint64) (absent, stalled []int)
}

// Listener is implemented by a Backend that hears signs of life of the job's processes. Overdue reports whether one of them is given up
// within d unless it gives one. A rank that seems late may only wait for it.
type Listener interface {
	Overdue(d time.Duration) bool
}

// Splitter is a Backend that can make the groups of a split from what it has. All members of the group call it when its
// operations so far are over, before those of a color open their group: child is its ID, and key the rank in it. A rank in no
// group gives the color -1. It does not wait.
type Splitter interface {
	Split(child uint64, color, key int)
}

// Witness is a Backend that knows where operation seq is while it makes no progress: in a call of a library, such as
// "ncclCommInitRankConfig", with its shape.
type Witness interface {
	Whereabouts(seq uint64) string
}

// Rebuilder is implemented by an Engine whose groups can be rebuilt after a failure. Survivors waits until the members of the failed
// group s that are left agree on who they are. It returns their world ranks, in group order: the same list on all of them, or an error. A
// list has a quorum of the group (more than half, or half with the first member): if a network is cut in two parts, at most one part goes
// on. Survivors waits up to timeout for members that are alive and have not called it; a later member gets an error. If ctx ends, it
// returns ctx.Err() and may be called again.
type Rebuilder interface {
	Survivors(ctx context.Context, s Spec, timeout time.Duration) ([]int, error)
}

// Leaver is implemented by an Engine that does not notice by itself that its rank is done. After Leave, nobody waits for the rank in
// Survivors.
type Leaver interface {
	Leave()
}

// Peeker is implemented by a Backend with Caps.RecvAny. HasPosted reports whether the peer of a point-to-point group has started its
// operation seq. Deserted returns an Error with ErrLeft or ErrClosed if the peer never will. The Engine is then a Parker, which wakes up
// for both.
type Peeker interface {
	HasPosted(seq uint64) bool
	Deserted(seq uint64) error
}

// Parker is implemented by an Engine with Caps.RecvAny, or with a Backend that is not Async. Park sleeps until any backend of this rank
// may have made progress since the last Park, or until ctx ends.
type Parker interface {
	Park(ctx context.Context) error
}

// Named is implemented by a Backend that does not move data in the way that its Engine's name says, for example over shared memory.
type Named interface {
	Name() string
}

// Crowder is implemented by an Engine that counts the ranks of this process that are awake. This decides how long a wait spins.
type Crowder interface {
	Crowd() *wait.Crowd
}

// Algorithms is implemented by a Backend that has several algorithms, and says which one runs an operation.
type Algorithms interface {
	Algorithms() []string // the names that Op.Algo may have
	Choice(op *Op) string
}

// DeviceUser is implemented by a Backend that may use memory of the rank's device, in operations that run on the device's queues.
type DeviceUser interface {
	// TakesDevice reports whether it uses device memory for op, the same on all ranks of the group. Otherwise package dist gives it a copy
	// in host memory.
	TakesDevice(op *Op) bool
	// Order makes everything that is launched on the device's compute queue from now on wait for operation seq; then the host need not
	// wait. It returns false if it cannot do so yet, because the operation is not queued on the device. It never blocks.
	Order(seq uint64) bool
}

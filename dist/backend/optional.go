package backend

import (
	"context"
	"time"

	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
)

// What an Engine or a Backend may implement besides. Package dist looks for these interfaces, and for no others.

// Allocator is implemented by an Engine that may have memory which peers read and write in place.
type Allocator interface {
	// Alloc returns n bytes of zeroed memory. It is there while the engine is, or owner is reachable.
	Alloc(n int) (p, owner tensor.Ptr, err error)
	// Free gives memory of Alloc back. No operation may use it any more.
	Free(p tensor.Ptr) error
}

// Closer is implemented by a Backend that holds something to give back. Close is called when all operations of this rank
// are over; peers may still be finishing theirs.
type Closer interface {
	Close() error
}

// Finisher is implemented by an Engine that can tell the others that its rank issues no operation any more, in any group:
// whoever waits for one fails at once with ErrLeft.
type Finisher interface {
	Finish()
}

// Suspecter is implemented by a Backend that can tell whom operation seq waits for, so that a timeout names the ranks
// (indices in the group): absent ones have not started the operation, stalled ones have started and not finished it.
type Suspecter interface {
	Suspects(seq uint64) (absent, stalled []int)
}

// Witness is a Backend that knows where operation seq is while it makes no progress: in a call of a library, such as
// "ncclCommInitRankConfig", with its shape.
type Witness interface {
	Whereabouts(seq uint64) string
}

// Orderer is implemented by a Backend whose operations run on queues of the rank's device. Order makes what is launched on
// the device's compute queue from now on wait for operation seq, and reports whether it could: the host need not wait then.
// It never blocks; it cannot yet while the operation is not queued on the device.
type Orderer interface {
	Order(seq uint64) bool
}

// Rebuilder is implemented by an Engine whose groups can be made anew after a failure. Survivors waits until the members of
// the failed group s that are left have agreed on who they are, and returns their world ranks, in group order: the same list
// to all of them, or an error. A list has a quorum of the group (more than half, or half with the first member), so that a
// network that is cut goes on in one part at most. Members that are alive and have not called it are waited for up to
// timeout; who comes later gets an error. When ctx ends it returns ctx.Err(), and may be called again.
type Rebuilder interface {
	Survivors(ctx context.Context, s Spec, timeout time.Duration) ([]int, error)
}

// Leaver is implemented by an Engine that does not notice by itself that its rank is done. Leave says so: nobody waits for
// the rank in Survivors any more.
type Leaver interface {
	Leave()
}

// Peeker is implemented by a Backend with Caps.RecvAny. HasPosted reports whether the peer of a point-to-point group has
// started its operation seq; Deserted returns ErrLeft or ErrClosed, in an Error, when it never will. The Engine is then a
// Parker, which wakes up for both.
type Peeker interface {
	HasPosted(seq uint64) bool
	Deserted(seq uint64) error
}

// Parker is implemented by an Engine with Caps.RecvAny, or with a Backend that is not Async: Park sleeps until any backend
// of this rank may have got further since the last Park, or until ctx ends.
type Parker interface {
	Park(ctx context.Context) error
}

// Algorithms is implemented by a Backend that offers a choice: the names that Op.Algo may have.
type Algorithms interface {
	Algorithms() []string
}

// Named is implemented by a Backend whose data moves by another way than its Engine's name says: over shared memory, say.
type Named interface {
	Name() string
}

// Chooser is implemented by a Backend that can tell which algorithm runs op.
type Chooser interface {
	Choice(op *Op) string
}

// Crowder is implemented by an Engine that counts the ranks of this process that are awake: how long to spin depends on it.
type Crowder interface {
	Crowd() *wait.Crowd
}

// DeviceTaker is implemented by a Backend that may take memory of the rank's device. TakesDevice reports whether it does for op,
// the same on all ranks of the group; else package dist gives it a copy in host memory.
type DeviceTaker interface {
	TakesDevice(op *Op) bool
}

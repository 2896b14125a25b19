package backend

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/tensor"
)

// Spec names a group: the same ID, Parent and Ranks on all members.
//
// Point-to-point messages travel in groups of their own: for each ordered pair of ranks that exchange messages, package
// dist opens a Backend whose Ranks are [sender, receiver] and issues nothing but Send (on rank 0 of it) and Recv (on rank
// 1, with Peer 0), in order. Such a Backend is opened when it is first used, on either side first. Kind Batch never
// reaches an engine: its parts do.
type Spec struct {
	ID     uint64 // hash of the group's path, unique in the job
	Parent uint64 // ID of the group that this one was made from; 0: none. When the parent fails, this group fails too, with the same cause
	Name   string // for people, such as "world" or "dp"
	Gen    uint32 // generation, from 1: grows with Rebuild. Parent is of the same generation
	Ranks  []int  // world ranks of the members, in group order
	Rank   int    // this rank's index in Ranks
	// Messages names a forced algorithm that needs a Transport: memory that the members share is of no use.
	Messages string
	// Timeout is how long an operation may go without progress: for engines that have to look for themselves, because
	// nobody on the host waits.
	Timeout time.Duration
}

// Engine moves bytes for one rank of a job.
type Engine interface {
	// Name is "local", "tcp", … as -json reports it.
	Name() string
	// Open makes this rank's end of a group. It does not wait for peers.
	Open(s Spec) (Backend, error)
	// Close ends the rank's part in the job after all its operations are over. After an abort it returns at once.
	Close() error
}

// Backend is one rank's end of one group.
type Backend interface {
	Caps() Caps
	// Issue takes an operation, in sequence order. It never waits for a peer. op stays valid until it is done.
	Issue(op *Op) error
	// Progress does a bounded step of work and returns the number of the last operation that is done. An error is the
	// first failure of the group; it stays.
	Progress() (done uint64, err error)
	// Park sleeps until operation seq may have become done, until ctx ends (it returns ctx.Err()) or the group fails.
	Park(ctx context.Context, seq uint64) error
	// Abort fails every operation in flight on all ranks of the group, with cause. After it returned, no peer writes
	// into this rank's buffers once their Wait has returned.
	Abort(cause error) error
	// Counters returns the bytes that this rank has written for this group.
	Counters() *Counters
}

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
// patience; who comes later gets an error. When ctx ends it returns ctx.Err(), and may be called again.
type Rebuilder interface {
	Survivors(ctx context.Context, s Spec, patience time.Duration) ([]int, error)
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

// Caps tells what an engine can do.
type Caps struct {
	Kinds, Reds, DTypes uint64 // bit sets over Kind, Red, tensor.DType
	RecvAny             bool   // Recv from any rank
	Device              bool   // it takes memory of the rank's device; else package dist stages that through host memory
	Async               bool   // the Backend makes progress without being driven; others of the engine may not
	MaxCount            int    // elements in one operation; 0: no limit
}

// AllKinds, AllReds and AllDTypes are the full sets for Caps.
const (
	AllKinds  uint64 = 1<<NumKinds - 1
	AllReds   uint64 = 1<<NumReds - 1
	AllDTypes uint64 = 1<<tensor.NumDTypes - 1
)

// Counters are bytes sent by this rank, per kind: Wire is counted where bytes are written to a connection or to (and
// read from) a peer's memory, headers excluded; Headers is what framing adds. Received are the bytes that came in over
// connections: no traffic of this rank, but a sign that an operation goes on.
type Counters struct {
	Wire     [NumKinds]atomic.Uint64
	Headers  atomic.Uint64
	Received atomic.Uint64
}

// Transport sends and receives tagged bytes between the ranks of a group. Messages between two ranks with one tag arrive
// in order. All calls block; they return early, with the group's failure, when the group is aborted. One goroutine may send
// while another receives; an error of one of them then ends the other's call.
type Transport interface {
	Rank() int
	Size() int
	// Send returns when b may be reused. It does not wait for the peer to receive a small message (≤ 64 KiB).
	Send(peer int, tag uint64, b []byte) error
	// Recv fills b; a message of another length is an error.
	Recv(peer int, tag uint64, b []byte) error
	// Take is Recv of n bytes into memory of the transport, which saves a copy. They are valid until the next Take from
	// peer, or the end of the operation.
	Take(peer int, tag uint64, n int) ([]byte, error)
	// SendRecv does both at once, so that two ranks may exchange large messages.
	SendRecv(to int, out []byte, from int, in []byte, tag uint64) error
}

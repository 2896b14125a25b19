package backend

import (
	"context"
	"fmt"
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

// Engine moves bytes for one rank of a job. What it and its Backends may offer besides is in optional.go.
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

// Caps tells what an engine can do in host memory. What it cannot is refused before Issue.
type Caps struct {
	Kinds, Reds, DTypes uint64 // bit sets over Kind, Red, tensor.DType
	RecvAny             bool   // Recv from any rank
	Async               bool   // the Backend makes progress without being driven; others of the engine may not
	MaxCount            int    // elements of the input, or of the output, of one operation; 0: no limit
}

// Lacks says what the engine cannot do of op, such as "bxor" or "int64"; "" when it can do it.
func (c *Caps) Lacks(op *Op) string {
	n := max(op.Src.Bytes, op.Dst.Bytes)
	switch {
	case c.Kinds>>op.Kind&1 == 0:
		return op.Kind.String()
	case op.Kind.Reduces() && c.Reds>>op.Red&1 == 0:
		return op.Red.String()
	case n > 0 && c.DTypes>>op.DType&1 == 0:
		return op.DType.String()
	case n > 0 && c.MaxCount > 0 && n/op.DType.Size() > c.MaxCount:
		return fmt.Sprintf("%d elements, it has a limit of %d", n/op.DType.Size(), c.MaxCount)
	}
	return ""
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

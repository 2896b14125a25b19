package backend

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/tensor"
)

// Spec describes a group. ID, Parent and Ranks are the same on all members.
//
// Point-to-point messages have groups of their own: for each ordered pair of ranks that exchange messages, package dist opens a Backend
// whose Ranks are [sender, receiver]. On it, rank 0 issues only Send, and rank 1 only Recv (with Peer 0), in order. Each side opens it
// when it first uses it, so one side may be first. An engine never gets the kind Batch, only the parts of a batch.
type Spec struct {
	ID     uint64 // hash of the group's path, unique in the job
	Parent uint64 // ID of the group that this one was made from; 0: none. If the parent fails, this group fails with the same cause
	Name   string // for people, such as "world" or "dp"
	Gen    uint32 // generation, from 1; each Rebuild adds one. Parent has the same generation
	Ranks  []int  // world ranks of the members, in group order
	Rank   int    // this rank's index in Ranks
	// Messages is the name of a forced algorithm that needs a Transport; "" if there is none. If it is set, the group cannot use shared
	// memory.
	Messages string
	// Timeout is how long an operation may go without progress. Engines need it for operations that nobody on the host waits for.
	Timeout time.Duration
}

// Engine moves bytes for one rank of a job. optional.go has what it and its Backends may implement in addition.
type Engine interface {
	// Name is "local", "tcp", … as -json reports it.
	Name() string
	// Open makes this rank's endpoint of a group. It does not wait for peers.
	Open(s Spec) (Backend, error)
	// Close ends the rank's part in the job, after all its operations are over. After an abort it returns at once.
	Close() error
}

// Backend is one rank's endpoint of one group.
type Backend interface {
	Caps() Caps
	// Issue begins an operation. Operations come in the order of their numbers. It never waits for a peer. op stays valid until it is
	// done.
	Issue(op *Op) error
	// Progress makes one bounded step and returns the number of the last operation that is done. An error is the first failure of the
	// group; later calls return it, too.
	Progress() (done uint64, err error)
	// Park sleeps until operation seq may have become done, until ctx ends (it returns ctx.Err()) or the group fails.
	Park(ctx context.Context, seq uint64) error
	// Abort fails every operation in flight on all ranks of the group, with cause. After Abort, no peer writes into a rank's buffers once
	// Progress has returned the failure there.
	Abort(cause error) error
	// Counters returns the bytes that this rank has moved for this group.
	Counters() *Counters
}

// Caps is what an engine can do in host memory. Package dist refuses other operations before Issue.
type Caps struct {
	Kinds, Reds, DTypes uint64 // bit sets over Kind, Red, tensor.DType
	RecvAny             bool   // Recv from any rank
	Async               bool   // this Backend makes progress without calls of Progress; other Backends of the engine may need them
}

// Lacks returns what op needs and the engine cannot do, such as "bxor" or "int64"; "" if it can do op.
func (c *Caps) Lacks(op *Op) string {
	switch {
	case c.Kinds>>op.Kind&1 == 0:
		return op.Kind.String()
	case op.Kind.Reduces() && c.Reds>>op.Red&1 == 0:
		return op.Red.String()
	case max(op.Src.Bytes, op.Dst.Bytes) > 0 && c.DTypes>>op.DType&1 == 0:
		return op.DType.String()
	}
	return ""
}

// AllKinds, AllReds and AllDTypes are the full sets for Caps.
const (
	AllKinds  uint64 = 1<<NumKinds - 1
	AllReds   uint64 = 1<<NumReds - 1
	AllDTypes uint64 = 1<<tensor.NumDTypes - 1
)

// Counters are bytes by kind of operation. Wire is counted when bytes are written to a connection, or to (or read from) a peer's memory,
// without headers. Headers is what framing adds. Received is the bytes that came in over connections. They are not this rank's traffic,
// but they show that an operation makes progress.
type Counters struct {
	Wire     [NumKinds]atomic.Uint64
	Headers  atomic.Uint64
	Received atomic.Uint64
}

// Transport sends and receives tagged bytes between the ranks of a group. Messages between two ranks with one tag arrive in order. All
// calls block. If the group is aborted, they return its failure. One goroutine may send while another receives; if one of them fails, the
// call of the other returns, too.
type Transport interface {
	Rank() int
	Size() int
	// Send returns when b may be reused. It does not wait for the peer to receive a small message (≤ 64 KiB).
	Send(peer int, tag uint64, b []byte) error
	// Recv fills b; a message of another length is an error.
	Recv(peer int, tag uint64, b []byte) error
	// Take is Recv of n bytes into memory of the transport. It saves a copy. The bytes are valid until the next Take from peer, or the
	// end of the operation.
	Take(peer int, tag uint64, n int) ([]byte, error)
	// SendRecv does both at the same time, so that two ranks can exchange large messages.
	SendRecv(to int, out []byte, from int, in []byte, tag uint64) error
}

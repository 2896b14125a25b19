package local

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/wait"
)

// Hub is what the goroutine ranks of a job share.
type Hub struct {
	ranks    []*Engine
	crowd    *wait.Crowd
	fault    Fault
	finished atomic.Int32 // ranks that issue no more operations

	devices int   // ranks that have called Use
	apart   error // why two of them cannot access each other's memory

	mu         sync.Mutex
	groups     map[key]*group
	agreements map[key]*agreement
	returned   []bool // by rank: its function has returned
}

// key names a group.
type key struct {
	id  uint64
	gen uint32
}

// Fault is called before rank reads or writes a block of `bytes` bytes of peer's memory. If it returns true, the block is dropped and not
// counted. Tests inject delays and losses with it.
type Fault func(rank, peer, bytes int) (drop bool)

// NewHub returns a hub for n ranks.
func NewHub(n int) *Hub {
	h := &Hub{groups: map[key]*group{}, agreements: map[key]*agreement{}, returned: make([]bool, n), crowd: wait.NewCrowd(n)}
	for i := range n {
		h.ranks = append(h.ranks, &Engine{hub: h, rank: i, bell: h.crowd.NewBell()})
	}
	return h
}

// SetFault installs a fault for tests. Call it before the ranks start.
func (h *Hub) SetFault(f Fault) { h.fault = f }

// Engine returns the engine of one rank.
func (h *Hub) Engine(rank int) backend.Engine { return h.ranks[rank] }

// Groups returns how many groups are open on any rank.
func (h *Hub) Groups() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.groups)
}

// Engine is one rank's part of a Hub.
type Engine struct {
	hub      *Hub
	rank     int
	bell     *wait.Bell
	finished atomic.Bool

	device   Device      // nil: the rank computes in host memory
	dropping sync.Mutex  // guards streamed: groups may be closed on several goroutines
	streamed []*endpoint // those with a stream
	busy     atomic.Int64
	look     *time.Timer
}

// Name returns "local".
func (e *Engine) Name() string { return "local" }

// Crowd counts the ranks that are awake.
func (e *Engine) Crowd() *wait.Crowd { return e.hub.crowd }

// Close frees what the rank has on its device. The rest is garbage when the ranks have ended.
func (e *Engine) Close() error {
	return e.dropStreams(func(*endpoint) bool { return true })
}

// Finish says that this rank issues no more operations.
func (e *Engine) Finish() {
	if e.finished.CompareAndSwap(false, true) {
		e.hub.finished.Add(1)
		e.hub.ringAll()
	}
}

func (h *Hub) ringAll() {
	for _, r := range h.ranks {
		r.bell.Ring()
	}
}

// Park sleeps until any group of this rank may have made progress, or until ctx ends.
func (e *Engine) Park(ctx context.Context) error {
	if e.busy.Load() > 0 { // a device does not wake us: sleep shortly
		e.look.Reset(lookEvery)
		defer e.look.Stop()
	}
	return e.bell.Park(ctx)
}

// group is the shared part of one group.
type group struct {
	key     key
	parent  *group
	members []atomic.Pointer[member]
	bells   []*wait.Bell
	posts   arrivals
	ends    arrivals
	open    int          // members that have not closed it; guarded by Hub.mu
	closed  atomic.Int32 // members that have closed it
	failed  atomic.Pointer[failure]
}

type failure struct{ err error }

// arrivals counts how many members have posted each operation. The last one wakes those that wait for all.
type arrivals []struct {
	n atomic.Uint64 // over all operations that used this entry
	_ [56]byte
}

// newArrivals makes an entry for each operation in flight. Two members need none: the one that posts wakes the other.
func newArrivals(members int) arrivals {
	if members <= 2 {
		return nil
	}
	return make(arrivals, 2*backend.Depth)
}

// last counts a member that has posted operation seq, and reports whether all have. A member posts seq+2*Depth only after all have posted
// seq, so counts of different operations do not mix.
func (t arrivals) last(seq uint64, members int) bool {
	return t == nil || t[seq%uint64(len(t))].n.Add(1)%uint64(members) == 0
}

// member is what one rank shows its peers. Each number has its own cache line.
type member struct {
	_        [64]byte
	posted   atomic.Uint64
	_        [120]byte
	finished atomic.Uint64
	_        [120]byte
	closed   atomic.Bool
	busy     sync.Mutex // held while this rank accesses peers' memory
	stream   Stream     // nil: no operation on device memory yet; written under busy
	ring     backend.History[backend.Posting]
}

// Open returns this rank's side of a group.
func (e *Engine) Open(s backend.Spec) (backend.Backend, error) {
	if s.Rank < 0 || s.Rank >= len(s.Ranks) || s.Ranks[s.Rank] != e.rank {
		return nil, fmt.Errorf("local: rank %d is not member %d of group %s", e.rank, s.Rank, s.Name)
	}
	g, err := e.hub.join(s)
	if err != nil {
		return nil, err
	}
	b := &endpoint{engine: e, group: g, spec: s, hash: backend.HashString(s.Name), me: &member{}}
	b.direct = algo.NewDirect(s, b)
	if !g.members[s.Rank].CompareAndSwap(nil, b.me) {
		return nil, fmt.Errorf("local: rank %d opens group %s twice", e.rank, s.Name)
	}
	return b, nil
}

func (h *Hub) join(s backend.Spec) (*group, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := key{s.ID, s.Gen}
	g := h.groups[k]
	if g == nil {
		n := len(s.Ranks)
		g = &group{key: k, parent: h.groups[key{s.Parent, s.Gen}], members: make([]atomic.Pointer[member], n), open: n,
			posts: newArrivals(n), ends: newArrivals(n)}
		for _, r := range s.Ranks {
			g.bells = append(g.bells, h.ranks[r].bell)
		}
		if p := g.parent; p != nil && p.failed.Load() != nil {
			g.failed.Store(p.failed.Load())
		}
		h.groups[k] = g
	}
	if len(g.members) != len(s.Ranks) {
		return nil, fmt.Errorf("local: group %s has %d members on another rank, %d here", s.Name, len(g.members), len(s.Ranks))
	}
	return g, nil
}

func (h *Hub) leave(g *group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.open--
	if g.open == 0 {
		delete(h.groups, g.key)
	}
}

// fail fails g and the groups made from it, each with its first cause, and wakes all ranks.
func (h *Hub) fail(g *group, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &failure{err}
	g.failed.CompareAndSwap(nil, f)
	for _, c := range h.groups {
		for p := c.parent; p != nil; p = p.parent {
			if p == g {
				c.failed.CompareAndSwap(nil, g.failed.Load())
			}
		}
	}
	h.ringAll()
}

// caps is what the algorithm direct can do in shared memory, without Device.
var caps = backend.Caps{Kinds: backend.AllKinds, Reds: backend.AllReds, DTypes: backend.AllDTypes, RecvAny: true}

package dist

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/tensor"
)

// Group is a set of ranks that communicate. All members call the same operations in the same order. Each operation returns a Work at
// once. Until its Wait has returned, the operation owns its tensors: the program may not read or write an output, or write an input. A
// Group belongs to the goroutine of its rank. Two goroutines may use different groups of a rank at the same time, but not the same one.
//
// Operations of one rank that use the same memory take effect in the order of their calls, as on a CUDA stream. This holds within a group
// and across groups, also for Send and Recv. So a chain of operations on one tensor needs only the last Wait. Operations that do not
// overlap, or that only read, run at the same time. A call waits for the earlier operations that it depends on. If operations run on the
// device, the device waits instead, and so do later kernels. If such an earlier operation failed, and the program has not seen the error
// yet, the new operation and its group fail, too. All ranks must call dependent operations of two groups in the same order: otherwise
// ranks wait for each other until the timeout.
//
// The first failure ends the group: every later call on every member returns it. Groups that were made from it (With, Split, Mesh) fail
// with it. Rebuild makes a new group of the members that are left.
type Group struct {
	*group
	checks *Group // of Agree; nil: not used yet
}

// group is what a Group has. The rank's lanes refer to it, and not to the Group: so that a Group which the program has dropped is garbage,
// and is closed (see dropped).
type group struct {
	c        *comm
	id       uint64
	gen      uint32
	parent   *group // the group that it was made from; nil: none
	name     string
	grid     *grid // the axes of the job
	ranks    []int // world ranks
	rank     int
	timeout  time.Duration
	algo     algos
	lane     *lane
	pairs    map[pair]*lane // of Send and Recv
	heard    int            // the peer that RecvAny returned last; the next call begins after it
	batch    *lane
	along    func() tensor.Axes // Axes, which never change
	using    atomic.Bool        // a goroutine is inside a call
	captured atomic.Bool        // a captured step has operations of it

	// Guarded by comm.mu.
	children  uint64
	err       error  // the first failure
	victim    string // an operation that was in flight when it failed
	seq       uint64 // the number of that operation
	reported  bool   // the program has seen err
	closed    bool
	waited    time.Duration
	payload   [backend.NumKinds]uint64
	calls     [backend.NumKinds]uint64
	algoCalls []algoCalls // by kind and algorithm
}

// pair is the key of a lane of messages: from or to a member of the group.
type pair struct {
	peer int
	send bool
}

// must returns g. It panics without a group, so that the error says where it comes from.
func (g *Group) must() *Group {
	if g == nil {
		panic(&tensor.Failure{Op: "dist.Group",
			Err: errors.New("the group is nil: Split gave this rank none (a negative color), or it was never made")})
	}
	return g
}

// Rank returns this rank's number in the group, from 0.
func (g *Group) Rank() int { return g.must().rank }

// GlobalRank returns this rank's number in the job.
func (g *Group) GlobalRank() int { return g.must().ranks[g.rank] }

// Size returns the number of members.
func (g *Group) Size() int { return len(g.must().ranks) }

// Name returns the group's name, such as "world".
func (g *Group) Name() string { return g.must().name }

// Ranks returns the world ranks of the members, in group order.
func (g *Group) Ranks() []int { return append([]int(nil), g.must().ranks...) }

// Engine returns the name of the engine that moves the group's bytes: "local" between goroutines, "shm" between processes of one host,
// "tcp" between hosts.
func (g *Group) Engine() string { return g.must().engine() }

func (g *group) engine() string {
	if be, ok := g.lane.be.(backend.Named); ok {
		return be.Name()
	}
	return g.c.engine.Name()
}

// Device returns the device of this rank. The group's tensors are in its memory.
func (g *Group) Device() tensor.Device { return g.must().c.dev }

// Waited returns how long this rank has waited for operations of the group. It is the communication time that no computation hid.
func (g *Group) Waited() time.Duration {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	return g.waited
}

// Timeout returns how long an operation may go without progress while its rank waits for it.
func (g *Group) Timeout() time.Duration { return g.must().timeout }

var (
	errClosed  = errors.New("the group is closed")
	errAborted = errors.New("aborted")
)

// open makes a group with this rank in it, and its lane.
func (c *comm) open(s backend.Spec, timeout time.Duration, a algos) (*Group, error) {
	c.reap()
	s.Messages, s.Timeout = a.overMessages(), timeout
	be, err := c.engine.Open(s)
	if err != nil {
		return nil, err
	}
	g := &group{c: c, id: s.ID, gen: s.Gen, name: s.Name, ranks: s.Ranks, rank: s.Rank, timeout: timeout, algo: a, pairs: map[pair]*lane{},
		grid: &grid{n: len(s.Ranks)}}
	g.along = sync.OnceValue(func() tensor.Axes { return g.grid.axes(g.ranks) })
	if err := a.check(be); err != nil {
		_ = be.Abort(err)
		g.err = err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.lane = c.newLane(g, be, s.ID, s.Ranks)
	g.batch = c.newLane(g, nil, backend.Hash64(s.ID, 0x6261746368), s.Ranks)
	if g.err != nil {
		g.lane.end(g.err)
		g.batch.end(g.err)
	}
	return g.handle(), nil
}

// newLane makes a lane with the given id, which is the same on all members. It needs c.mu.
func (c *comm) newLane(g *group, be backend.Backend, id uint64, ranks []int) *lane {
	l := &lane{c: c, g: g, be: be, ranks: ranks, wake: make(chan struct{}, 1)}
	l.traced = c.trace.Lane(trace.Lane{Group: g.name, ID: backend.Hash64(id, uint64(g.gen)), Ranks: ranks})
	if be != nil {
		l.caps = be.Caps()
		l.async = l.caps.Async
		l.device, _ = be.(backend.DeviceUser)
	}
	if be != nil && !l.async {
		c.driven++
	}
	c.lanes = append(c.lanes, l)
	return l
}

// eachLane calls do with each lane of the group. It needs c.mu.
func (g *group) eachLane(do func(l *lane)) {
	do(g.lane)
	do(g.batch)
	for _, l := range g.pairs {
		do(l)
	}
}

// child makes a group from g. If the engine refuses, it panics with a *tensor.Failure, which Run turns into an error.
func (g *Group) child(s backend.Spec, timeout time.Duration, a algos) *Group {
	s.Parent, s.Gen = g.id, g.gen
	made, err := g.c.open(s, timeout, a)
	if err != nil {
		panic(&tensor.Failure{Op: "group " + s.Name, Err: err})
	}
	g.c.mu.Lock()
	made.parent, made.grid = g.group, g.grid
	closed := g.closed
	g.c.mu.Unlock()
	runtime.KeepAlive(g)
	if closed { // a failure of g would not reach the new group
		made.Abort(errClosed)
	}
	return made
}

// enter notes that a goroutine uses the group. It returns an error if another goroutine uses it already.
func (g *group) enter() error {
	if g.using.CompareAndSwap(false, true) {
		return nil
	}
	err := &Error{Rank: g.c.rank, Group: g.name, Cause: fmt.Errorf("two goroutines use group %s at once", g.name)}
	g.abort(err)
	return err
}

func (g *group) leave() { g.using.Store(false) }

// Abort fails the group on all its members with cause: all operations in flight and all later calls return it. It is the only way to
// cancel an operation. After a Wait has returned, no peer writes into its buffers. An earlier failure is kept. Abort may be called from
// any goroutine. The members get an *Error of this rank, unless cause contains an *Error.
func (g *Group) Abort(cause error) {
	if cause == nil {
		cause = errAborted
	}
	var e *Error
	if !errors.As(cause, &e) {
		cause = &Error{Rank: g.c.rank, Group: g.name, Cause: cause}
	}
	g.abort(cause)
}

func (g *group) abort(cause error) {
	_ = g.lane.be.Abort(cause) // the engine keeps the first cause; fail finds it
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.fail(cause)
}

// Err returns the first failure of the group that this rank knows of, or nil.
func (g *Group) Err() error {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.look()
	return g.err
}

// look asks the engine whether the group failed on another rank. It needs c.mu.
func (g *group) look() {
	if g.err == nil && !g.closed {
		if _, err := g.lane.be.Progress(); err != nil {
			g.fail(err)
		}
	}
	if g.err != nil {
		g.reported = true
	}
}

// see marks the group's failure as reported, also for the groups that were made from it.
func (g *group) see() {
	g.c.mu.Lock()
	g.reported = true
	g.c.mu.Unlock()
}

// fail fails the group with err, unless a peer failed it earlier. It needs c.mu.
func (g *group) fail(err error) {
	if g.err != nil || g.closed {
		return
	}
	g.err = g.lane.stop(err)
	g.c.noteLate(g.err)
	g.eachLane(func(l *lane) {
		if l.be != nil && l != g.lane {
			l.stop(g.err)
		}
	})
	done, _ := g.batch.joined() // parts may have succeeded for which only the device has waited
	g.batch.finish(done)
	g.eachLane(func(l *lane) {
		if g.victim == "" && !l.idle() {
			g.seq = l.done.Load() + 1
			g.victim = l.slot(g.seq).op.Kind.String()
		}
	})
	g.eachLane(func(l *lane) { l.end(g.err) })
	if g.victim != "" {
		g.c.unreported = append(g.c.unreported, g)
	}
}

// Close waits for the group's operations on this rank, and then frees what the group has. A failed group may be closed, too. A group takes
// memory until it is closed, until Run returns, or until the program has dropped it: Go's garbage collector finds that, and the rank closes
// it when it makes the next group. Among ranks of a process, and over TCP, it is 8 KB on each rank, and up to 170 KB after some operations.
// Engines may have more from the start: MPI 14 KB, GPUs of a process 9 KB, NCCL 105 KB beside its communicator, and ranks that share memory
// 90 KB, and up to 1 MiB of shared memory for each rank of the group.
func (g *Group) Close() error {
	if err := g.enter(); err != nil {
		return err
	}
	defer g.leave()
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	return g.end()
}

// end is Close. It needs c.mu.
func (g *group) end() error {
	c := g.c
	if g.closed {
		return nil
	}
	err := g.drain()
	g.closed = true
	keep := c.lanes[:0]
	for _, l := range c.lanes {
		if l.g != g {
			keep = append(keep, l)
			continue
		}
		if l.be != nil && !l.async {
			c.driven--
		}
		l.addWire(&c.usage)
		l.deadline.stop()
		if l.err == nil { // the first cause is kept
			l.err = errClosed
		}
		l.over.Store(true)
		if k, ok := l.be.(backend.Closer); ok {
			err = errors.Join(err, k.Close())
		}
	}
	clear(c.lanes[len(keep):])
	c.lanes = keep
	return err
}

// drain waits for all operations in flight. It returns a failure that the program has not seen. It needs c.mu.
func (g *group) drain() error {
	var waits []*lane
	g.eachLane(func(l *lane) { waits = append(waits, l) })
	for _, l := range waits {
		if !l.idle() {
			_ = g.c.wait(background, l, l.issued, false)
		}
	}
	if g.err == nil {
		g.warnUnwaited()
		return nil
	}
	if g.reported || g.victim == "" {
		return nil
	}
	g.reported = true
	return fmt.Errorf("%s seq %d of group %s was never waited for: %w", g.victim, g.seq, g.name, g.err)
}

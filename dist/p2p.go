package dist

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// Send sends t to a member of the group. The k-th Send to a peer matches the peer's k-th Recv from this rank, with the same tag, type and
// number of elements. It is over when t may be written again. This may be only after the peer has called the matching Recv. For a
// non-blocking send, call Wait later.
func (g *Group) Send(t tensor.Tensor, peer, tag int) Work { return g.send(nil, t, peer, tag) }

func (g *Group) send(b *Batch, t tensor.Tensor, peer, tag int) Work {
	defer runtime.KeepAlive(g)
	c := call{kind: backend.Send, root: 1, tag: tag, count: count(t)}
	l, err := g.must().pair(peer, true)
	return g.issue(l, &c, errors.Join(err, c.setInput(t), b.alone(&c)))
}

// Recv fills t with what a member of the group sends.
func (g *Group) Recv(t tensor.Tensor, peer, tag int) Work { return g.recv(nil, t, peer, tag) }

func (g *Group) recv(b *Batch, t tensor.Tensor, peer, tag int) Work {
	defer runtime.KeepAlive(g)
	c := call{kind: backend.Recv, tag: tag, count: count(t)}
	l, err := g.must().pair(peer, false)
	return g.issue(l, &c, errors.Join(err, c.setOutput(t), b.alone(&c)))
}

// pair returns the lane to or from peer. The first use makes it. With an error it returns the group's own lane.
func (g *group) pair(peer int, send bool) (*lane, error) {
	if peer == g.rank {
		return g.lane, fmt.Errorf("peer %d is this rank itself", peer)
	}
	if peer < 0 || peer >= len(g.ranks) {
		return g.lane, fmt.Errorf("peer %d: ranks of group %s are 0 to %d", peer, g.name, len(g.ranks)-1)
	}
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	key := pair{peer, send}
	if l := g.pairs[key]; l != nil {
		return l, nil
	}
	if g.err != nil || g.closed {
		return g.lane, g.err
	}
	from, to, at := g.rank, peer, 0
	if !send {
		from, to, at = peer, g.rank, 1
	}
	id := backend.Hash64(backend.Hash64(g.id, 0x7032702d6c616e65), uint64(from)<<32|uint64(to))
	ranks := []int{g.ranks[from], g.ranks[to]}
	be, err := g.c.engine.Open(backend.Spec{ID: id, Parent: g.id, Gen: g.gen, Name: g.name, Ranks: ranks, Rank: at, Timeout: g.timeout})
	if err != nil {
		return g.lane, err
	}
	l := g.c.newLane(g, be, id, ranks)
	g.pairs[key] = l
	return l, nil
}

// RecvAny waits for a message from any member and puts it in t. It returns the sender. The next message of that rank must have tag and
// the size of t; otherwise it is an error. If all other members have left the job or closed the group, RecvAny fails at once. Only
// engines whose Caps have RecvAny support it.
func (g *Group) RecvAny(t tensor.Tensor, tag int) (peer int, err error) {
	if g.Size() == 1 {
		err := fmt.Errorf("group %s has no other rank to receive from", g.name)
		return -1, g.issueOwn(&call{kind: backend.Recv}, err).Wait()
	}
	if g.c.recording() != nil {
		return -1, g.issueOwn(&call{kind: backend.Recv}, errAnySender).Wait()
	}
	if len(g.ranks) == 2 { // there is only one sender, and Recv notices its failure at once
		peer = 1 - g.rank
	} else if peer, err = g.awaitAny(); err != nil {
		return -1, err
	}
	return peer, g.Recv(t, peer, tag).Wait()
}

// awaitAny blocks until a member has sent a message for which no Recv was called.
func (g *group) awaitAny() (int, error) {
	if !g.lane.caps.RecvAny {
		return -1, fmt.Errorf("dist: engine %s cannot receive from any rank", g.c.engine.Name())
	}
	for peer := range g.ranks {
		if peer == g.rank {
			continue
		}
		if _, err := g.pair(peer, false); err != nil {
			return -1, err
		}
	}
	if err := g.enter(); err != nil {
		return -1, err
	}
	defer g.leave()
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receivers = append(c.receivers, g.lane)
	defer c.forget(g.lane)
	g.lane.lastProgress = g.c.now()
	spin := c.policy.Start()
	for {
		c.drive()
		if g.look(); g.err != nil {
			return -1, g.err
		}
		if peer := g.arrived(); peer >= 0 {
			return peer, nil
		}
		if err := g.abandoned(); err != nil {
			g.fail(err)
			return -1, g.err
		}
		if !g.lane.async && spin.Again() {
			c.mu.Unlock()
			c.mu.Lock()
			continue
		}
		if err := c.parkAny(g.lane.deadline.set(g.lane.timeLeft()), g.lane); err != nil {
			g.fail(&Error{Rank: c.rank, Group: g.name, Op: "recv", Seq: 0,
				Cause: fmt.Errorf("nothing arrived from any rank within %v", g.timeout)})
		}
	}
}

// forget ends the wait of awaitAny, and lets another goroutine drive the engine.
func (c *comm) forget(l *lane) {
	l.deadline.clear()
	for i, x := range c.receivers {
		if x == l {
			c.receivers = append(c.receivers[:i], c.receivers[i+1:]...)
			break
		}
	}
	if !c.leader {
		c.promote()
	}
}

// arrived returns a member whose next message is here and has no Recv yet, or -1. The search begins after the member that was returned
// last, so that all members get a turn.
func (g *group) arrived() int {
	for i := range g.ranks {
		peer := (g.heard + 1 + i) % len(g.ranks)
		l := g.pairs[pair{peer, false}]
		if l != nil && l.be.(backend.Peeker).HasPosted(l.issued+1) {
			g.heard = peer
			return peer
		}
	}
	return -1
}

// abandoned returns an error if no member can send any more: each one has left the job or closed the group, and all received messages
// have arrived (on a device, Wait does not wait for this).
func (g *group) abandoned() error {
	var closed []int
	for peer := range g.ranks {
		l := g.pairs[pair{peer, false}]
		if l == nil {
			continue // this rank
		}
		if !l.idle() || l.be.(backend.Peeker).Deserted(l.issued+1) == nil {
			return nil
		}
		closed = append(closed, peer)
	}
	return &Error{Rank: g.ranks[closed[0]], Group: g.name,
		Cause: fmt.Errorf("nothing can arrive from any rank: %s have left the job or closed the group", backend.Names(g.ranks, closed))}
}

// Batch collects operations that are waited for together.
type Batch struct {
	g     *Group
	parts []Work
	uses  []use           // of its messages
	of    []tensor.Tensor // these: another one must not get the memory of one that is over
}

// Send adds a Group.Send.
func (b *Batch) Send(t tensor.Tensor, peer, tag int) {
	if !b.full(backend.Send, peer) {
		b.Add(b.g.send(b, t, peer, tag))
	}
}

// Recv adds a Group.Recv.
func (b *Batch) Recv(t tensor.Tensor, peer, tag int) {
	if !b.full(backend.Recv, peer) {
		b.Add(b.g.recv(b, t, peer, tag))
	}
}

// alone refuses a message of a batch that reads or writes what another one writes, or writes what another one reads. Messages of a batch
// have no order, and none may wait for another.
func (b *Batch) alone(c *call) error {
	if b == nil {
		return nil
	}
	u := b.g.useOf(c)
	if slices.ContainsFunc(b.uses, func(v use) bool { return v.conflicts(&u) }) {
		return fmt.Errorf("%v overlaps another message of the batch: messages of a batch have no order", c.of.Shape())
	}
	b.uses, b.of = append(b.uses, u), append(b.of, c.of)
	return nil
}

// full reports whether the batch has as many messages to peer, or from it, as can be in flight, and fails the group then. One more would
// wait for the first, and the first may need a later message in the peer's batch.
func (b *Batch) full(kind backend.Kind, peer int) bool {
	if len(b.parts) < backend.Depth {
		return false
	}
	b.g.c.mu.Lock()
	l, n := b.g.pairs[pair{peer, kind == backend.Send}], 0
	b.g.c.mu.Unlock()
	for _, w := range b.parts {
		if w.l == l {
			n++
		}
	}
	if n < backend.Depth {
		return false
	}
	b.Add(b.g.issue(l, &call{kind: kind},
		fmt.Errorf("a batch has more than %d %vs with rank %d; use several batches", backend.Depth, kind, peer)))
	return true
}

// Add adds operations of the group that have been issued already.
func (b *Batch) Add(works ...Work) {
	for _, w := range works {
		if w.l != nil { // the zero Work is done
			b.parts = append(b.parts, w)
		}
	}
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// free gives b back, without what it refers to.
func (b *Batch) free() {
	clear(b.parts)
	clear(b.of)
	*b = Batch{parts: b.parts[:0], uses: b.uses[:0], of: b.of[:0]}
	batches.Put(b)
}

// Batch runs fn, which issues operations, and returns one Work for all of them. Messages of a batch do not wait for each other: a Send
// and the Recv that it needs may be in one batch in any order. There may be at most backend.Depth messages to each peer, and as many from
// it. No other message of the batch may use the memory that a Recv of it fills. Like any operation, a batch waits for earlier operations
// on the same memory.
func (g *Group) Batch(fn func(b *Batch)) Work {
	b := batches.Get().(*Batch)
	b.g = g.must()
	defer b.free()
	defer runtime.KeepAlive(g)
	fn(b)
	if r := g.c.recording(); r != nil {
		return g.recordBatch(r, b.parts)
	}
	return g.join(b.parts)
}

// join returns one Work for several.
func (g *group) join(parts []Work) Work {
	if err := g.enter(); err != nil {
		return g.batch.failed()
	}
	defer g.leave()
	c, l := g.c, g.batch
	c.mu.Lock()
	defer c.mu.Unlock()
	l.makeRoom()
	l.issued++
	if g.err != nil || g.closed {
		return Work{l, l.issued}
	}
	s := l.slot(l.issued)
	s.op = backend.Op{Kind: backend.Batch, Seq: l.issued}
	s.parts = append(s.parts[:0], parts...)
	c.noteIssued(l, &s.op)
	g.calls[backend.Batch]++
	c.activate(l)
	return Work{l, l.issued}
}

package nccl

import "time"

// Each communicator has a goroutine that makes its calls, which may wait for other ranks: to make the communicator, and to
// connect two ranks. The goroutines of a rank take turns in the order in which the operations were issued, so that the GPU
// gets the kernels of several communicators in one order. One that waits for other ranks holds up no other: these ranks may
// come to the operations of two groups in another order.

// patience is how long a call takes that waits for nobody, at most. One that takes longer holds up no other. A variable for
// tests.
var patience = 20 * time.Millisecond

// start begins to make the communicator: for the first operation on device memory, or because a split makes it.
func (b *endpoint) start() {
	if b.state = asking; b.from != nil {
		b.state, b.comm = making, b.from.comm
	} else {
		b.comm = b.e.lib.NewComm()
	}
	b.users++
	b.e.wg.Go(func() {
		err := b.e.onThread(b.issue)
		b.e.mu.Lock()
		defer b.e.mu.Unlock()
		if err != nil {
			b.failAt(b.toQueue(), err)
		}
		b.leaveCuts()
		if b.closed && b.leave() { // Close has left that to this goroutine
			b.e.closeGroup(b.ctl)
		}
		b.done()
	})
}

// issue makes the communicator, and then all calls on it until the end is closed or fails.
func (b *endpoint) issue() error {
	if b.from == nil {
		if err := b.startBootstrap(); err != nil || !b.await(func() bool { return b.state == making }) {
			return err
		}
	}
	if err := b.connect(); err != nil {
		return err
	}
	var op *slot
	var cut *split
	myTurn := func() bool {
		op, cut = b.myTurn()
		return op != nil || cut != nil
	}
	for b.await(myTurn) {
		if cut != nil {
			b.cut(cut)
			continue
		}
		if err := b.queue(op); err != nil {
			return err
		}
		b.e.mu.Lock()
		b.queued++
		b.call, b.slow = time.Time{}, false
		b.e.turn.Broadcast()
		b.e.mu.Unlock()
		b.e.ring() // a host that waits to order the compute stream behind it
	}
	return nil
}

// await waits until something is so, and reports whether it is: not if the end is closed or has failed. A closed one still does
// the splits that were asked for, because all ranks have to.
func (b *endpoint) await(is func() bool) bool {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	for !b.over() && (!b.closed || len(b.cuts) > 0) {
		if is() {
			return true
		}
		b.e.turn.Wait()
	}
	return false
}

// connect makes the communicator, which waits for the other ranks.
func (b *endpoint) connect() error {
	if err := b.prepareStream(); err != nil {
		return err
	}
	var err error
	if b.from != nil {
		<-b.from.over // also if this end is closed: it gets the communicator
		err = b.from.err
	} else {
		err = b.e.lib.Err("ncclCommInitRankConfig", b.comm.Init(len(b.spec.Ranks), &b.boot.id, b.spec.Rank))
	}
	if err != nil {
		return err
	}
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	b.state, b.boot = ready, nil
	b.e.look()
	return nil
}

// toQueue returns the number of the operation that is to be queued next. It may not be issued yet.
func (b *endpoint) toQueue() uint64 {
	for b.queued < b.issued && !b.slot(b.queued+1).device {
		b.queued++
	}
	return b.queued + 1
}

// next returns the operation that is to be queued next, or nil.
func (b *endpoint) next() *slot {
	if s := b.slot(b.toQueue()); b.queued < b.issued && s.ticket > 0 {
		return s
	}
	return nil
}

// myTurn returns the operation to queue, if no other communicator has an earlier one, or the split to make. It begins the call.
func (b *endpoint) myTurn() (*slot, *split) {
	s := b.next()
	if len(b.cuts) > 0 { // before any operation
		b.cuts[0].since, b.slow = time.Now(), true // it waits for the other ranks
		b.e.turn.Broadcast()
		return nil, b.cuts[0]
	}
	if s == nil {
		return nil, nil
	}
	for _, x := range b.e.ends {
		if x == b || x.err != nil || x.state != ready || x.slow {
			continue
		}
		if t := x.next(); t != nil && t.ticket < s.ticket {
			return nil, nil
		}
	}
	b.call = time.Now()
	return s, nil
}

// checkCall lets the others go on when a call waits for other ranks.
func (b *endpoint) checkCall() {
	if !b.slow && !b.call.IsZero() && time.Since(b.call) > patience {
		b.slow = true
		b.e.turn.Broadcast()
	}
}

// queue gives NCCL an operation.
func (b *endpoint) queue(s *slot) error {
	if err := b.stream.Wait(s.before); err != nil {
		return err
	}
	name, r, err := b.run(&s.op)
	if err == nil {
		err = b.e.lib.Err(name, r)
	}
	if err != nil {
		return err
	}
	if err := b.freeRows(); err != nil {
		return err
	}
	if b.custom {
		b.custom = false
		if err := b.e.lib.Err("ncclRedOpDestroy", b.comm.DestroyOp(b.op)); err != nil {
			return err
		}
	}
	return s.after.Record(b.stream)
}

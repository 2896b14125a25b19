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
	b.e.wg.Go(func() {
		defer close(b.idle)
		if err := b.e.onThread(b.issue); err != nil {
			b.e.mu.Lock()
			defer b.e.mu.Unlock()
			b.failAt(b.queued+1, err)
		}
	})
}

// issue makes the communicator, and then all calls on it until the end is closed or fails.
func (b *endpoint) issue() error {
	defer b.leaveCuts()
	if b.from == nil && !b.await(func() bool { return b.state == making }) {
		return nil
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
			if err := b.cut(cut); err != nil {
				return err
			}
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

// await waits until something is so, and reports whether it is: not if the end is closed or has failed.
func (b *endpoint) await(is func() bool) bool {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	for b.err == nil && (!b.closed || len(b.cuts) > 0) {
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

// next returns the operation that is to be queued next, or nil.
func (b *endpoint) next() *slot {
	for b.queued < b.issued && !b.slot(b.queued+1).device {
		b.queued++
	}
	if b.queued == b.issued {
		return nil
	}
	return b.slot(b.queued + 1)
}

// myTurn returns the operation to queue, if no other communicator has an earlier one, or the split to make. It begins the call.
func (b *endpoint) myTurn() (*slot, *split) {
	s := b.next()
	if cut := b.nextCut(); cut != nil {
		cut.began, b.slow = time.Now(), true // it waits for the other ranks
		b.e.look()
		return nil, cut
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

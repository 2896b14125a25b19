package nccl

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/tensor"
)

// bootstrap brings the unique id to all ranks: a broadcast in a group of the control engine that has no other operation.
type bootstrap struct {
	id nccl.ID
	op backend.Op
	be backend.Backend
}

// startBootstrap makes the id on the first rank and begins to hand it out.
func (b *endpoint) startBootstrap() (err error) {
	boot := new(bootstrap)
	if b.spec.Rank == 0 {
		if boot.id, err = b.e.lib.UniqueID(); err != nil {
			return err
		}
	}
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	if b.over() {
		return nil
	}
	b.boot = boot
	b.e.look()
	if len(b.spec.Ranks) == 1 {
		return nil
	}
	s := b.spec
	s.ID, s.Parent, s.Name = backend.Hash64(b.spec.ID, 0x6e63636c2d6964), b.spec.ID, "communicator of "+b.spec.Name
	if b.boot.be, err = b.e.Control.Open(s); err != nil {
		return err
	}
	m := backend.Mem{Ptr: unsafe.Pointer(&b.boot.id), Bytes: len(b.boot.id)}
	b.boot.op = backend.Op{Kind: backend.Broadcast, DType: tensor.Uint8, Seq: 1, Count: m.Bytes, Dst: m}
	if s.Rank == 0 {
		b.boot.op.Src = m
	}
	return b.boot.be.Issue(&b.boot.op)
}

// bootstrapDone reports whether the id is here.
func (b *endpoint) bootstrapDone() (bool, error) {
	if b.boot.be == nil {
		return true, nil
	}
	done, err := b.boot.be.Progress()
	if err != nil || done == 0 {
		return false, err
	}
	b.closeBootstrap()
	return true, nil
}

// closeBootstrap gives the group of the control engine back, if it is open.
func (b *endpoint) closeBootstrap() {
	b.e.closeGroup(b.boot.be)
	b.boot.be = nil
}

// closeGroup closes a group of the control engine, on a goroutine: the engine may wait until what was sent is on its way.
func (e *Engine) closeGroup(be backend.Backend) {
	if c, ok := be.(backend.Closer); ok {
		e.wg.Go(func() { _ = c.Close() })
	}
}

// fetchID brings the id further; with it here, the goroutine that issues goes on.
func (b *endpoint) fetchID() {
	if b.state != asking || b.boot == nil || b.over() {
		return
	}
	ok, err := b.bootstrapDone()
	if err != nil {
		b.failAt(b.toQueue(), err)
	}
	if ok {
		b.state = making
		b.e.turn.Broadcast()
	}
}

// prepareStream makes the end's stream, and the memory that barriers reduce.
func (b *endpoint) prepareStream() (err error) {
	if b.stream, err = b.e.Device.NewStream("nccl "+b.spec.Name, 0); err != nil {
		return err
	}
	if b.flag, err = b.e.pool.Alloc(b.stream, 4); err != nil {
		return err
	}
	return b.stream.Fill32(b.flag, 0, 1)
}

package shm

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The states of a bell, in shared memory.
const (
	quiet    uint32 = iota // nothing happened since the last park
	signaled               // something happened: the next park returns at once
	parked                 // the rank sleeps: who rings writes to its eventfd
)

// one is what wakes an eventfd.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// doorbell wakes a rank that sleeps. It is wait.Bell between processes: a ring between two parks is never lost, and costs a
// system call only when the rank sleeps. A park may also end for nothing.
type doorbell struct {
	state *atomic.Uint32
	file  *os.File // eventfd
	wake  chan struct{}
	over  chan struct{} // closed when listen has ended
}

func newDoorbell(state *atomic.Uint32) (*doorbell, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("shm: eventfd: %w", err)
	}
	b := &doorbell{state: state, file: os.NewFile(uintptr(fd), "eventfd"), wake: make(chan struct{}, 1), over: make(chan struct{})}
	go b.listen()
	return b, nil
}

// listen hands on what peers write to the eventfd.
func (b *doorbell) listen() {
	defer close(b.over)
	buf := make([]byte, 8)
	for {
		if _, err := b.file.Read(buf); err != nil { // closed
			return
		}
		b.token()
	}
}

func (b *doorbell) token() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// ring ends this rank's own current or next park.
func (b *doorbell) ring() {
	if b.state.Load() != signaled && b.state.Swap(signaled) == parked {
		b.token()
	}
}

// forceRing is ring for the case that a peer has died after it set the state, before it woke anybody.
func (b *doorbell) forceRing() {
	b.state.Store(signaled)
	b.token()
}

// park sleeps until the bell has been rung since the last park, or until ctx ends (it returns ctx.Err()).
func (b *doorbell) park(ctx context.Context) error {
	if !b.state.CompareAndSwap(quiet, parked) {
		b.state.Store(quiet)
		return nil
	}
	select {
	case <-b.wake:
		b.state.Store(quiet)
		return nil
	case <-ctx.Done():
		b.state.CompareAndSwap(parked, quiet) // or else it was rung: that stays
		return ctx.Err()
	}
}

func (b *doorbell) close() {
	b.file.Close()
	<-b.over
}

// remoteDoorbell rings the bell of a peer.
type remoteDoorbell struct {
	state *atomic.Uint32
	fd    int
}

func (b *remoteDoorbell) ring() {
	if b.state.Load() != signaled && b.state.Swap(signaled) == parked {
		_, _ = unix.Write(b.fd, one) // fails only when the counter is full: then the peer has enough to wake up for
	}
}

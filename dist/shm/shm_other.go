//go:build !linux

package shm

import (
	"context"
	"errors"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
)

var errLinux = errors.New("shared memory needs Linux")

// Listener stands for what is only there on Linux: Listen returns none.
type Listener struct{}

// Listen returns an error.
func Listen(Config) (*Listener, error) { return nil, errLinux }

// Name returns "".
func (*Listener) Name() string { return "" }

// Close does nothing.
func (*Listener) Close() {}

// Rendezvous returns an error.
func (*Listener) Rendezvous(context.Context, map[int]string) (*Host, error) { return nil, errLinux }

// Host stands for what is only there on Linux: Rendezvous returns none.
type Host struct{}

// Fault is called before a block is moved.
type Fault func(rank, peer, bytes int) (drop bool)

// SetFault does nothing.
func (*Host) SetFault(Fault) {}

// Holds reports false.
func (*Host) Holds([]int) bool { return false }

// Open returns an error.
func (*Host) Open(backend.Spec, uint32) (*End, error) { return nil, errLinux }

// Park returns an error.
func (*Host) Park(context.Context) error { return errLinux }

// Wake does nothing.
func (*Host) Wake() {}

// Alloc returns an error.
func (*Host) Alloc(int) (p, owner unsafe.Pointer, err error) { return nil, nil, errLinux }

// Free returns an error.
func (*Host) Free(unsafe.Pointer) error { return errLinux }

// Close does nothing.
func (*Host) Close() {}

// End stands for what is only there on Linux: Open returns none.
type End struct{}

// Start does nothing.
func (*End) Start(*backend.Op) {}

// Step returns an error.
func (*End) Step() (uint64, error) { return 0, errLinux }

// Fail does nothing.
func (*End) Fail() {}

// Failed reports true.
func (*End) Failed() bool { return true }

// Suspects returns none.
func (*End) Suspects(uint64) (absent, stalled []int) { return nil, nil }

// Reached reports false.
func (*End) Reached(int, uint64) bool { return false }

// Counters returns nil.
func (*End) Counters() *backend.Counters { return nil }

// Close does nothing.
func (*End) Close() {}

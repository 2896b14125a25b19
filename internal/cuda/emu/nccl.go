package emu

import (
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// NCCLFault is a fault of the emulated NCCL.
type NCCLFault int

// The faults.
const (
	NoFault     NCCLFault = iota
	HangingCall           // the call is queued and never runs: its communicator must be aborted
	AsyncError            // the call begins and never ends, and the communicator's state is a remote error
	FailingCall           // the call returns an error
	HangingHost           // the host hangs in the call
)

// FailNCCL makes the n-th call of an operation, from 1, on each communicator in
// which the caller is this rank fail; HangingHost of call 0 is the making of a
// communicator, HangingHost and FailingCall of call -1 a split. NoFault ends it. A Start that follows skips the test
// on a GPU, and if there is no emulator.
func FailNCCL(rank, n int, fault NCCLFault) {
	if faults = fault != NoFault; OnGPU() || missing() != "" {
		return
	}
	dl.Call(ncclControls().Fault, uintptr(rank), uintptr(n), uintptr(fault))
}

// faults is set if NCCL is to fail.
var faults bool

// NCCLCounts are counts of the emulated NCCL since the process began: communicators
// made (also by splits), aborted, destroyed and open now, launches, the bytes of messages
// from one rank to another (of communicators whose ids this process made), reductions
// (PreMulSum) that were made and not destroyed, and calls of ncclCommSplit.
type NCCLCounts struct{ Made, Aborts, Destroyed, Open, Launches, Moved, Reductions, Splits uint64 }

// CountNCCL returns the counts; on a GPU and without an emulator all are 0.
func CountNCCL() (c NCCLCounts) {
	if OnGPU() || missing() != "" {
		return c
	}
	dl.Call(ncclControls().Counts, uintptr(unsafe.Pointer(&c)))
	return c
}

// NCCLOrder returns a number for the communicator of each launch of this rank, at
// most 1,000, in their order, since it was called last: equal on all ranks that are
// threads of this process. On a GPU there are none.
func NCCLOrder(rank int) []uint64 {
	if OnGPU() || missing() != "" {
		return nil
	}
	order := make([]uint64, 1000)
	return order[:dl.Call(ncclControls().Order, uintptr(rank), uintptr(unsafe.Pointer(&order[0])), uintptr(len(order)))]
}

var ncclControls = sync.OnceValue(func() (c struct {
	Fault  uintptr `sym:"emu_nccl_fault"`
	Counts uintptr `sym:"emu_nccl_counts"`
	Order  uintptr `sym:"emu_nccl_order"`
}) {
	dir, err := build()
	if err != nil {
		panic(err)
	}
	lib, err := dl.Open("the emulated NCCL", filepath.Join(dir, "libnccl.so"))
	if err == nil {
		err = lib.Resolve(&c)
	}
	if err != nil {
		panic(err)
	}
	return c
})

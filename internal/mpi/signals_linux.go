package mpi

import (
	"syscall"
	"unsafe"
)

// action is the kernel's struct sigaction, of amd64 and arm64.
type action struct {
	handler, flags, restorer, mask uintptr
}

const numSignals = 64

// rtSigaction reads or sets what a signal does. Signals that cannot be changed give an error, which does not matter here.
func rtSigaction(signal int, set, old *action) {
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}

// keepSignals calls f and then gives every signal the handler that it had before. Libraries of MPI install handlers, for example to print
// a stack. Go's own must stay: it uses SIGURG to stop goroutines, SIGPROF to sample and SIGSEGV for panics, and ends the process if a
// handler of somebody else runs on the small stack of a goroutine. It returns the signals whose handlers had changed.
func keepSignals(f func()) (changed []syscall.Signal) {
	var before [numSignals + 1]action
	for s := 1; s <= numSignals; s++ {
		rtSigaction(s, nil, &before[s])
	}
	f()
	for s := 1; s <= numSignals; s++ {
		var now action
		if rtSigaction(s, nil, &now); now.handler != before[s].handler {
			rtSigaction(s, &before[s], nil)
			changed = append(changed, syscall.Signal(s))
		}
	}
	return changed
}

//go:build !linux

package mpi

import (
	"runtime"
	"syscall"
)

// keepSignals calls f: there is no need, or no way, to keep handlers.
func keepSignals(f func()) []syscall.Signal {
	f()
	return nil
}

// yield lets another goroutine run.
func yield() { runtime.Gosched() }

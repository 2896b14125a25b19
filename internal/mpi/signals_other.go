//go:build !linux

package mpi

import "syscall"

// keepSignals calls f: there is no need, or no way, to keep handlers.
func keepSignals(f func()) []syscall.Signal {
	f()
	return nil
}

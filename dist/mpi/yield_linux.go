package mpi

import (
	"syscall"
	"time"
)

// yield lets another process run that waits for this core.
func yield() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// nap sleeps: MPI has no call that a rank could be woken from. time.Sleep takes a millisecond if no other goroutine runs; two ranks that
// wait for each other in turn would then each be late for the other, for ever.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal may end it
}

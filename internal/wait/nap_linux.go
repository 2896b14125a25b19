package wait

import (
	"syscall"
	"time"
)

// Yield lets another process run that waits for this core.
func Yield() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// Nap sleeps, for waiters that nothing can wake. time.Sleep takes a millisecond if no other goroutine runs: two processes that wait for
// each other in turn would then each be late for the other, for ever.
func Nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal may end it
}

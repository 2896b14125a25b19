package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// keepAwake gives every core a thread that runs where nothing else does, until the program ends: a core that sleeps needs longer to begin
// than a message takes, and how long is up to the kernel, not to a link.
func keepAwake() error {
	cores := runtime.NumCPU()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + cores)
	began := make(chan error)
	for range cores {
		go func() {
			runtime.LockOSThread()
			began <- unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
			//lint:ignore SA5002 a core that spins does not sleep
			for {
			}
		}()
	}
	for range cores {
		if err := <-began; err != nil {
			return fmt.Errorf("cores that do not sleep: %w", err)
		}
	}
	return nil
}

//go:build !linux

package mpi

import (
	"runtime"
	"time"
)

// yield lets another goroutine run.
func yield() { runtime.Gosched() }

// nap sleeps.
func nap(d time.Duration) { time.Sleep(d) } //sleep: MPI has no call that a rank could be woken from

//go:build !linux

package wait

import (
	"runtime"
	"time"
)

// Yield lets another goroutine run.
func Yield() { runtime.Gosched() }

// Nap sleeps, for waiters that nothing can wake.
func Nap(d time.Duration) { time.Sleep(d) } //sleep: this is what it is for

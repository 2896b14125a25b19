package reliability

import (
	"runtime/debug"
	"sync"
)

// SteadyRuntime lets a test count allocations that are not the Go runtime's own, until end is called: nothing collects garbage, which
// empties each sync.Pool, and the runtime has what thousands of goroutines need to wait. It allocates that when goroutines sleep on one
// thread and wake on another, which happens more on a busy machine.
func SteadyRuntime() (end func()) {
	percent := debug.SetGCPercent(-1)
	var asleep, done sync.WaitGroup
	wake, never := make(chan struct{}), make(chan struct{})
	asleep.Add(4000)
	for range 4000 {
		done.Go(func() {
			asleep.Done()
			select {
			case <-wake:
			case <-never:
			}
		})
	}
	asleep.Wait()
	close(wake)
	done.Wait()
	return func() { debug.SetGCPercent(percent) }
}

// Package wait decides how a goroutine waits for another one: it spins for a short time on the clock when a core is free
// for it (a Crowd knows), yields a few times when none is, and then parks on a Bell. The choice makes more difference to small
// collectives than any kernel: waking a parked goroutine takes 5 to 70 µs, a cache line travels in 0.1 µs, and a goroutine
// that spins while others need its core stalls them for a whole time slice.
package wait

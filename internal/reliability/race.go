//go:build race

package reliability

// racing: with the race detector, a sync.Pool forgets some of what it gets back, so that more is allocated.
const racing = true

//go:build race

package reliability

// Racing: the race detector is on. With it, tests take about ten times longer, and a sync.Pool forgets some of what it gets back, so that
// more is allocated.
const Racing = true

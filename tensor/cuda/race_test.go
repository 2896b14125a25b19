//go:build race

package cuda_test

// raceEnabled: the race detector makes sync.Pool forget, which allocates.
const raceEnabled = true

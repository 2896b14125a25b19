//go:build race

package cuda_test

// raceEnabled: under the race detector, sync.Pool drops values at random, which causes allocations.
const raceEnabled = true

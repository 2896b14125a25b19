//go:build race

package blas_test

// raceEnabled: sync.Pool drops values at random, so purego allocates.
const raceEnabled = true

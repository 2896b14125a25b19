//go:build race

package blas_test

// raceEnabled says that sync.Pool forgets things at random, which purego feels.
const raceEnabled = true

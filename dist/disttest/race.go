//go:build race

package disttest

// race reports whether the race detector is on. It makes the tests about ten times slower.
const race = true

//go:build race

package peer_test

// race: the race detector is on, which makes pools forget.
const race = true

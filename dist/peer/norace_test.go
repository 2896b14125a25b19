//go:build !race

package peer_test

const race = false

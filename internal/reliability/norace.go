//go:build !race

package reliability

// Racing: the race detector is on.
const Racing = false

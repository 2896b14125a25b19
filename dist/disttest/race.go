//go:build race

package disttest

// race tells whether the race detector is on: what it looks at takes ten times as long.
const race = true

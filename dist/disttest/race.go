//go:build race

package disttest

// Race reports whether the race detector is on: what it looks at takes ten times as long.
const Race = true

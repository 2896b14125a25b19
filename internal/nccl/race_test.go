//go:build race

package nccl_test

// race: the race detector is on, which makes pools forget.
const race = true

//go:build race

package nccl_test

// race: the race detector is on. With it, sync.Pool drops values at random.
const race = true

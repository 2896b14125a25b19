//go:build !linux

package mpi

import "runtime"

// yield lets another goroutine run.
func yield() { runtime.Gosched() }

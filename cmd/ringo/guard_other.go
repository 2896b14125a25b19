//go:build !linux

package main

// guard only does the work. A guard needs Linux, where a process can become the parent of orphaned descendants.
func (r *runCmd) guard() error { return r.work() }

//go:build !linux

package main

// guard does the work: only Linux makes a process the parent of its descendants' orphans.
func (r *runCmd) guard() error { return r.work() }

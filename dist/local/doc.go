// Package local is the engine for ranks that are goroutines of one process. Package dist uses it; programs need not. A Hub is what the
// ranks of a job share. It has an Engine for each rank.
//
// Nothing is copied into messages. A rank publishes where its buffers are, and peers read and write them in place (algorithm "direct" of
// package algo).
//
// Counters that only grow say which operations each rank has published and finished. An operation is over for a rank when nobody uses its
// buffers any more. A rank holds its own mutex while it uses peers' memory, a few blocks at a time. After a failure, each rank locks
// every peer's mutex once. So when Wait has returned an error, no peer writes any more.
//
// Some devices can read and write each other's memory (Device, which package peer implements for CUDA). Ranks with such devices queue
// their part of an operation there, once all have published it. A rank counts its part as "finished" when it is queued; the devices do
// the rest in order. A rank asks its device for its progress only if somebody waits for it on the host.
//
// A rank that waits spins while there is a core for every rank that is awake. Otherwise it sleeps (package wait). Ranks are woken only if
// there is something to do: the last rank that posts an operation wakes all that sleep.
//
// Files:
//
//	hub.go       Hub, Engine, and groups
//	endpoint.go  one rank's side of a group
//	device.go    operations on the memory of devices
//	rebuild.go   agreement on a new group after a failure
//	maker.go     the engine for a job of one process
package local

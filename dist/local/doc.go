// Package local is the engine for ranks that are goroutines of one process. Package dist uses it; programs need not. A Hub is what the
// ranks of a job share. Each rank has an Engine of it.
//
// Nothing is copied into messages. A rank publishes where its buffers are, and peers read and write them in place (algorithm
// "direct" of package algo).
//
// Counters that only grow say which operations each rank has published and finished. An operation is over for a rank when nobody
// uses its buffers any more. A rank holds its own mutex while it uses peers' memory, a few blocks at a time. After a failure, each rank
// locks every peer's mutex once. So when Wait has returned an error, no peer writes any more.
//
// Some devices can read and write each other's memory (Device, which package peer implements for CUDA). Ranks with such devices queue
// their part of an operation there, once all have published it. A rank has then "finished" what it has queued, and the devices put
// it in order. A rank asks its device for its progress only if somebody waits for it on the host.
//
// A rank that waits spins while there is a core for every rank that is awake. Otherwise it sleeps (package wait). Ranks are woken
// only when there is something to do: the last rank that comes to an operation wakes all that sleep.
package local

// Package local is the engine for ranks that are goroutines of one process. Nothing is copied into messages: a rank posts
// where its buffers are, and peers read and write them in place (algorithm "direct" of package algo). A Hub is what the
// ranks of a job share; each has an Engine of it.
//
// Memory is safe without locks around whole operations: numbers that only grow say how far each rank has posted and
// finished, and an operation is over for a rank when nobody touches its buffers any more. A rank holds its own mutex while
// it touches peers' memory, a few blocks at a time; after a failure each rank takes every peer's mutex once, so that when
// Wait has returned an error no peer still writes.
//
// Ranks whose devices reach each other's memory (Device, which package peer implements for CUDA) queue their share of an operation
// there, once all have posted it; what others have finished is then what they have queued, and the devices order it. A rank asks
// its device now and then how far it is, when somebody waits for that on the host.
//
// A rank that waits spins as long as there is a core for everyone who is awake, and parks when there is not (package
// wait). Nobody is woken before there is something to do: the last rank to come to an operation wakes all who sleep.
package local

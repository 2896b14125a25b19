// Package backend is the interface between package dist, which programs use, and the engines, which move bytes between ranks
// (dist/local for goroutines, dist/tcp for processes). Read it to write an engine. Package disttest tests one.
//
// An Engine belongs to one rank of a job. It opens one Backend for each group of the rank. Package dist numbers the operations of a
// group, checks what it can check without a peer, and passes an Op to Issue. The Backend finishes operations in that order.
// Algorithms (package dist/algo) use one of two smaller interfaces of an engine: a Transport, which sends tagged bytes, or a
// Window, which reads and writes the memory of peers.
//
// Files:
//
//	backend.go      Engine, Backend, Transport, and what they count
//	optional.go     interfaces that engines may implement in addition
//	window.go       Window, and what a rank shows in it
//	op.go           Op: an operation
//	fingerprint.go  how ranks find out that their operations differ
//	errors.go       Error, and errors that all engines have
//	virtual.go      Virtual: a Transport in virtual time
//	open.go         how dist opens an engine for a job
package backend

// Package tcp connects the ranks of a job that are processes, on one host or several.
//
// Join meets the other ranks through rank 0 and returns an Engine, which is connected to every other rank: by one TLS 1.3
// connection for control, and by one for data in each direction. Both sides of each connection prove that they hold the
// job's secret of 32 bytes (NewSecret, ParseSecret); nobody else gets or sends a byte. Sockets bind 127.0.0.1 unless
// Config.Bind says otherwise, and nobody listens any more once all ranks are connected. A data connection begins with the
// same proofs, and belongs to a control connection by a token that only its two ends know. Its frames are then encrypted
// whole, with a key of its TLS session; where data may go unencrypted (Config.Plain), they have checksums and numbers instead.
//
//	secret.go   who may take part: one key for the job, derived from its secret
//	join.go     Join; meeting.go: who meets whom; door.go: strangers
//	frame.go    the format on the wire
//	listen.go   on which address and port; data.go: how data connections are made
//	link.go     the connections to one peer; wire.go: one connection, its frames read and written; box.go: encrypted
//	engine.go   all connections of a rank: frames go to groups
//	group.go    a group: operations in order; a mismatch between ranks; lane.go: the goroutine that runs them; doubt.go: what it waits for
//	pipe.go     a group's messages from one peer, send.go: to it; credit, so that nobody waits for another group
//	close.go    signs of life; Close
//	fail.go     the first error of a group reaches all its ranks
//	gone.go     a peer that is lost, or has said goodbye
//	shared.go   groups inside one host move data through shared memory (package shm), and only failures over connections
//
// An Engine is used through package dist; its operations run with the algorithms of dist/algo over messages (algo.Choose
// says which).
//
// # Failures
//
// A connection that ends without a goodbye, or is silent for Config.Timeout, fails every group with that rank, and the
// error names it with host and process. The first message of an operation to each peer is compared with the peer's own
// view of the operation; a mismatch fails the group with both views. A rank that waits for a message for long tells the peer for
// which operation, in case both wait. Whoever finds an error tells all other ranks of the
// group, so that all report the same one. Once the error shows, nothing writes to a user's buffer any more: payloads are
// copied to it in blocks under a lock that the failure takes.
package tcp

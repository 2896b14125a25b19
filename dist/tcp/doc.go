// Package tcp connects the ranks of a job that are processes, on one host or several. Package dist uses it; programs need not.
//
// Join finds the other ranks through rank 0 (rendezvous) and returns an Engine, which is connected to every other rank: by one TLS 1.3
// connection for control, and by one for data in each direction. Both sides of each connection prove that they hold the
// job's secret of 32 bytes (NewSecret, ParseSecret). Nobody else can send or receive data. Sockets bind 127.0.0.1 unless
// Config.Bind says otherwise. When all ranks are connected, no rank listens any more.
//
// A data connection begins with the same proofs. A token that only its two ends know ties it to a control connection. Its frames
// are encrypted with a key of its TLS session. If data may be unencrypted (Config.Plain), frames have checksums and numbers instead.
//
//	secret.go   who may take part: one key for the job, derived from its secret
//	join.go     Join; rendezvous.go: how the ranks meet; accept.go, dial.go: their connections; hello.go: who may join;
//	            handshake.go: what they say; machine.go: which ranks are on one machine; maker.go: Join for package dist
//	frame.go    the format on the wire
//	listen.go   on which address and port; data_conn.go: how data connections are made
//	link.go     the connections to one peer; wire.go: one connection, its frames read and written; record.go: encryption
//	engine.go   all connections of a rank: frames go to groups
//	group.go    a group: operations in order, mismatches between ranks; worker.go: the goroutine that runs them; stall.go: stalls
//	pipe.go     a group's messages from one peer, send.go: to it; flow control, so that no group waits for another one
//	heartbeat.go  signs of life; close.go: Close
//	fail.go     the first error of a group reaches all its ranks
//	lost.go     a peer that is lost, or has closed its connection
//	rebuild.go  the ranks that are left agree on a new group
//	shared.go   groups inside one host move data through shared memory (package shm), and only failures over connections
//
// Operations run with the algorithms of dist/algo over messages. A Tuner (algo) chooses which one.
//
// # Failures
//
// If a connection ends without a close message, or is silent for Config.Timeout, every group with that rank fails. The error names the
// rank with host and process. The first message of an operation to each peer is compared with the peer's own operation. If they differ,
// the group fails with an error that shows both. A rank that waits long for a message tells the peer which operation it
// waits for, because the peer may wait, too. The rank that finds an error tells all other ranks of the group, so that all
// report the same error. After the error, nothing writes to a user's buffer: payloads are copied in blocks under a lock
// that the failure takes, too.
package tcp

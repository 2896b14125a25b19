// Package backend is the contract between package dist, which users hold, and the engines that move bytes between ranks
// (dist/local for goroutines, dist/tcp for processes).
//
// An Engine belongs to one rank of a job. It opens one Backend per group that the rank is a member of. Package dist
// numbers the operations of a group, checks what can be checked without a peer, and hands an Op to Issue; the Backend
// finishes operations in that order. Algorithms (package dist/algo) are written over two smaller things that an engine
// provides: a Transport, which sends tagged bytes, or a Window, which reads and writes the memory of peers.
package backend

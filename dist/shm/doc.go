// Package shm lets the processes of one host move data through memory that they share (Linux).
//
// Each rank makes two segments, which only it allocates from and which all ranks map: segment 0 holds what ranks tell each
// other (numbers of operations, descriptions of them, and slots to copy through), segment 1 is a heap for buffers
// ([Host.Alloc]). A segment is a memfd: it has no name in any file system, and nothing of it is left when the last process
// is gone, however it ended. It is sealed against a change of its size, so that no access can fail with SIGBUS; both are
// far larger than what is used, because pages that nobody has touched cost nothing.
//
// Ranks meet over abstract Unix sockets: [Listen] before the rendezvous, [Door.Meet] after it. The two ends of a connection
// must be of the same user and prove to each other that they hold the job's secret; then the descriptors of the segments
// and of an eventfd are handed over (SCM_RIGHTS). After that no system call is made, but to wake a rank that sleeps.
//
// A [Host] opens groups. An [End] is a window (backend.Window) that algo.Direct runs over, as between goroutines: ranks post
// what they are asked to do and where their buffers are, then each reads and writes the memory of the others. A buffer in a
// heap is used in place. Any other one is staged: its owner copies what a peer needs into slots, a piece at a time and ahead
// of the reader, and takes results out of them.
//
// Nothing that a peer has written is trusted: references are checked against the segment at each use, and an error names
// the segment and the rank.
package shm

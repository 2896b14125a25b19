// Package shm moves data between the processes of one host through shared memory (Linux). Package tcp uses it for groups inside one
// host; programs need not.
//
// Each rank makes two segments. Only this rank allocates from them, and all ranks map them. Segment 0 is for coordination: numbers of
// operations, descriptions of them, and slots to copy through. Segment 1 is a heap for buffers ([Host.Alloc]). A segment is a memfd: it
// has no name in any file system, and it disappears with the last process, however that ends. It is sealed against a change of
// its size, so that no access can fail with SIGBUS. Both segments are far larger than needed, because unused pages cost nothing.
//
// Ranks connect over abstract Unix sockets: [Listen] before the rendezvous, [Listener.Rendezvous] after it. The two ends of a connection
// must belong to the same user, and prove to each other that they hold the job's secret. Then they exchange the descriptors of the
// segments and of an eventfd (SCM_RIGHTS). From then on, the only system calls are those that wake a sleeping rank.
//
// A [Host] opens groups. An [End] is a window (backend.Window) for algo.Direct, as between goroutines: ranks publish their operations
// and where their buffers are, and then read and write the memory of the others. A buffer in a heap is used in place. Any other
// buffer is staged: its owner copies what a peer needs into slots, piece by piece and ahead of the reader, and copies results out of
// them. Slots are in channels: one for each peer, and one for what all peers read.
//
// Data from a peer is not trusted. References are checked against the segment at each use, and an error names the segment and
// the rank.
//
// Files:
//
//	shm.go              Config; shm_other.go: systems without this package
//	listener_linux.go   Listener: ranks connect and exchange segments
//	host_linux.go       Host: all segments that a rank maps; segment_linux.go: one segment; layout_linux.go: what is in segment 0
//	reserve_linux.go    the sizes of segments, within the limits of the system
//	allocator_linux.go  the heap in segment 1
//	end_linux.go        End: one rank's side of a group; posting_linux.go: what it shows to peers
//	stage_linux.go      copies through slots (in package dist, what is staged is copied from a device)
//	doorbell_linux.go   wakes a sleeping rank
package shm

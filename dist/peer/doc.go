// Package peer lets the ranks of one process exchange the memory of their GPUs with kernels of our own: package local gives it
// what it would do itself in host memory. Several ranks may share a GPU; on different ones, the driver must know a path
// between the two (cuDeviceCanAccessPeer).
//
// Each rank has a stream for each group, and three events for each operation in flight:
//
//	issued   on its compute stream, when the operation is issued: its input is there, and its output may be written
//	shared   on the group's stream, behind its share: it touches no peer's memory any more
//	settled  on the group's stream, behind the shares of all that touch its memory: the operation is over
//
// The host of a rank waits until the hosts of its peers have issued the operation, and until they have queued their shares; it
// never waits for a device. Work.Wait lets the compute stream wait for settled. No kernel waits for another one, so that
// ranks may share a GPU.
//
// Reductions are one kernel: it reads the rank's slice of every input, combines it in rank order, and writes it to the output,
// for an all-reduce to those of all ranks. So each byte is read once and written once, all ranks get the same bits, and those
// of floats are the host engine's: 16-bit ones are combined in float32 and rounded once. Everything else is copies. A Reducer is the same kernel for package nccl,
// over rows of a buffer that other processes have filled.
package peer

// Package peer lets the ranks of one process read and write the memory of each other's GPUs, with our own kernels. Package local uses it for
// operations on GPU memory. Several ranks may share a GPU. Between two GPUs, the driver must know a path (cuDeviceCanAccessPeer).
//
// Each rank has a stream for each group, and three events for each operation in flight:
//
//	issued   on its compute stream, when the operation is issued: its input is there, and its output may be written
//	shared   on the group's stream, after its part: it uses no peer's memory any more
//	settled  on the group's stream, after the parts of all ranks that use its memory: the operation is over
//
// The host of a rank waits until the hosts of its peers have issued the operation, and until they have queued their parts. It
// never waits for a device. Work.Wait makes the compute stream wait for settled. No kernel waits for another kernel, so ranks
// may share a GPU.
//
// An all-reduce of any size is one algorithm. Kernels of other libraries wait for each other, and so have two: one-shot, in which
// each rank reads all inputs and kernels wait once, for up to about 256 KiB to 512 KiB (vLLM's and SGLang's kernels), and two-shot,
// with less to read and two waits, above. Here events are what ranks wait for, and a rank writes its slice to all outputs: a
// kernel and two waits, with the bytes of two-shot. One-shot, in place, would need a copy of the input, and so a launch more for a
// wait less. Whether that pays is not known: this has never run on several GPUs. ringo-gpu bench allreduce measures the sizes.
//
// A reduction is one kernel. It reads the rank's slice of every input, combines it in rank order, and writes it to the output, for an
// all-reduce to the outputs of all ranks. So each byte is read once and written once, and all ranks get the same bits. The bits of
// floats are those of the host engine: 16-bit floats are combined in float32 and rounded once. Everything else is copies. A Reducer
// is the same kernel for package nccl, over rows of a buffer that other processes have filled.
//
// Files:
//
//	peer.go    the device of a rank, and its kernel (reduce.cu)
//	stream.go  the queue of a group
//	rows.go    Reducer
package peer

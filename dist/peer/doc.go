// Package peer lets the ranks of one process read and write the memory of each other's GPUs, with our own kernels. Package local uses it
// for operations on GPU memory. Several ranks may share a GPU. Between two GPUs, the driver must know a path (cuDeviceCanAccessPeer).
//
// Each rank has a stream for each group, and three events for each operation in flight:
//
//	issued   on its compute stream, when the operation is issued: its input (or the copy of it) is there, and its output may be written
//	shared   on the group's stream, after its part: it uses no peer's memory any more
//	settled  on the group's stream, after the parts of all ranks that use its memory: the operation is over
//
// The host of a rank waits until the hosts of its peers have issued the operation, and until they have queued their parts. It
// never waits for a device. Work.Wait makes the compute stream wait for settled. No kernel waits for another kernel, so ranks
// may share a GPU.
//
// An all-reduce has two ways, which give the same bits:
//
//	two-shot  A rank reduces its slice of all inputs, and writes it to all outputs. It is one kernel between two waits: for issued of
//	          all ranks, and for their shared. Each byte is read once and written once: 2(n−1)/n·S bytes come to a rank.
//	one-shot  A rank copies its input on its compute stream. Then it reduces the copies of all ranks itself, into its own output. There
//	          is a copy more and a wait less, of devices and of hosts: nobody writes to its output, and nobody reads its input.
//	          (n−1)·S bytes come to a rank.
//
// So small all-reduces are one-shot, the others two-shot. The size between them depends on the number of ranks (oneshot.go has the model):
// 256 KiB for 2 to 7, 239 KiB for 8, 98 KiB for 16. This is a model, not measured on several GPUs: ringo-gpu bench allreduce times both,
// and prints the size at which they are equally fast. RINGO_ALGO=allreduce:oneshot, or twoshot, forces one.
//
// A copy is overwritten when no rank needs it any more: there are 2·Depth of them, used in turn. So no barrier follows the kernel.
//
// A reduction is one kernel. It reads every input, or the rank's slice of it, combines them in rank order, and writes the result to the
// output, by two-shot to the outputs of all ranks. So all ranks get the same bits. The bits of
// floats are those of the host engine: 16-bit floats are combined in float32 and rounded once. Everything else is copies. A Reducer
// is the same kernel for package nccl, over rows of a buffer that other processes have filled.
//
// Files:
//
//	peer.go     the device of a rank, and its kernel (reduce.cu)
//	stream.go   the queue of a group
//	oneshot.go  which all-reduces are one-shot, and the copies of their inputs
//	rows.go     Reducer
package peer

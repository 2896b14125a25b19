// Package nccl moves data between the GPUs of a job with NVIDIA's NCCL. It is an engine of package dist for tensors in device memory, and
// dist uses it by itself if the ranks are processes with GPUs.
//
// It works together with another engine, the control engine, which has connected the ranks already (package tcp between processes, package
// local between goroutines). For each group it opens a group there, too, which carries
//
//   - the unique id, when the first operation on device memory makes the communicator (those of dist.Group.Split come from
//     ncclCommSplit, if the group that is split has a communicator),
//   - a Barrier for each operation on device memory (backend.Op.Of): it finds ranks that call different operations, leave, or do not
//     come. The errors are those of every engine, even if NCCL itself would hang,
//   - failures: when a group fails, each rank aborts its communicator,
//   - operations on host memory.
//
// An operation is queued on a stream of its group, after the work that the rank's compute stream has at that time. Work.Wait makes the
// compute stream wait for the operation. The host goes on.
//
// Communicators are blocking: a call queues its operation before it returns, on no thread of NCCL's own. It may wait for other
// ranks, to make the communicator or to connect two ranks, so each communicator has a goroutine for its calls. These goroutines
// take turns in the order in which the operations were issued. So in steady steps the GPU gets the kernels of several communicators
// in one order on all ranks. It is no guarantee: a call that lasts longer than 20 ms (it probably waits for other ranks), and a
// communicator that is still being made, let later calls pass. One more goroutine watches: it asks NCCL for asynchronous errors and
// the driver what has run, and aborts the communicator from another thread if an operation makes no progress within the group's
// timeout. That ends the call, too; NCCL frees the communicator behind it (since NCCL 2.22, the oldest that is accepted).
//
// A driver may block in any call. So no call of the driver or of NCCL is made with the engine's lock held, and a timer does the rest of
// the watcher's work while that is in one.
//
// A group that is closed while its communicator is to be split stays until that is done: the other ranks wait in ncclCommSplit for
// this one, and it hears of their failures. A rank tells the others that it has asked for a split before it may leave the job.
//
// Messages between two ranks have one communicator for each direction, because package dist gives them their own groups. Groups
// run at the same time on the device, each on its stream. Their kernels need room there together, as in every program with
// several NCCL communicators.
//
// NCCL adds in its own order, rounds 16-bit floats after each addition, divides before it adds (Avg), and drops NaN in Min and Max. The
// bits are the same in every run with the same topology and NCCL, but not those of other engines. With RINGO_BITS=rank NCCL only
// moves data, and a kernel of package peer adds in rank order. Then the bits are those of ranks in host memory, for the bytes of a ring.
//
// Operations that NCCL does not have (bits of integers) run on the control engine, on copies in host memory.
//
// Files:
//
//	engine.go     Engine; watch.go: its goroutine; ask.go: what it asks, and calls that may block
//	endpoint.go   one rank's side of a group; bootstrap.go: it gets a communicator
//	split.go      communicators from another group's
//	issue.go      the goroutine that makes a communicator's calls
//	calls.go      operations as calls of NCCL; ranked.go: reductions in rank order
package nccl

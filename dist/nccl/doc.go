// Package nccl moves data between the GPUs of a job with NVIDIA's NCCL: an
// engine of package dist for tensors in device memory.
//
// It runs beside another engine, the control engine, which has met the other
// ranks already (package tcp between processes, package local between
// goroutines). For each group it opens a group there as well, which carries
//
//   - the unique id, when the first operation on device memory makes the
//     communicator,
//   - a Barrier that stands for each operation on device memory (backend.Op.Of):
//     ranks that give different operations, leave, or do not come are found out
//     by it, with the texts that every engine has, while the data path may hang,
//   - failures: when a group fails, each rank aborts its communicator,
//   - operations on host memory.
//
// An operation is queued on a stream of its group's own, behind what the rank's
// compute stream has been given by then. Work.Wait makes the compute stream wait
// for it; the host goes on. One goroutine of the engine issues what could not be
// issued at once (a communicator is being made; NCCL is still busy with the call
// before), asks NCCL for asynchronous errors, and ends operations that made no
// progress within the group's timeout: it aborts the communicator.
//
// Messages between two ranks have a communicator of their own for each direction,
// as package dist gives them a group of their own. Groups run side by side on the
// device, each on its stream; their kernels need room there together, as NCCL
// asks of every program with several communicators.
//
// NCCL adds in an order of its own, rounds 16-bit floats after each addition,
// divides before it adds (Avg), and drops NaN in Min and Max. The bits are the
// same in every run with the same topology and NCCL, not those of other engines. Under RINGO_BITS=rank NCCL only moves, and a
// kernel of package peer adds in rank order: the bits are those of ranks in host memory, at the bytes of a ring.
//
// What NCCL does not have (bits of integers) the control engine does on copies in host memory.
package nccl

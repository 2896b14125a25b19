// Package dist runs the ranks of a training job and lets them communicate.
//
// A job is a number of ranks that run the same function, each on its own part of the data. Call [Run] first. It makes the ranks as
// goroutines of one process, each with its own [tensor.Device]. If a launcher (ringo run, torchrun, Slurm, mpirun) started the
// program, each process is one rank. The function is the same:
//
//	err := dist.Run(ctx, dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
//		x := tensor.FromSlice([]float32{float32(r.World.Rank())}, 1)
//		if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil { // x is now the sum over ranks, everywhere
//			return err
//		}
//		r.Logf("sum %v", x) // rank 0 prints
//		return nil
//	})
//
// # Operations
//
// A [Group] is a set of ranks; r.World holds all. Its operations are those of NCCL and torch.distributed: Broadcast,
// Reduce, AllReduce, Gather, AllGather, Scatter, ReduceScatter, AllToAll, forms with unequal counts (AllGatherV,
// ReduceScatterV, AllToAllV), Barrier, and messages between two ranks (Send, Recv, RecvAny, [Group.Batch]). All members
// call the same operations in the same order. Each call returns a [Work] at once. Wait blocks until the result is
// there; until then, the program must not use the tensors. It can compute other things meanwhile. Up to 64 operations of a
// group may be in flight, and the program may wait for them in any order. If two operations of a rank use the same memory, on any
// groups, the second one begins after the first. For small values there are [Group.SumFloats], [AllGatherObject] and
// [BroadcastObject].
//
// Results are the same on every run. Elements are combined in rank order, 16-bit floats in float32 with one rounding at
// the end. The bits are the same on goroutines and between processes of a host. Between hosts, a table of measurements chooses
// the algorithm, and some algorithms add in another order, which is the same on every run. RINGO_BITS=rank requires rank order
// everywhere. RINGO_ALGO=allreduce:ring, or [Algo] for one group, sets the algorithm between processes.
//
// # Groups
//
// [Group.With] makes a group of the same ranks with a second, independent queue of operations. [Group.Split] divides a group. A
// [Mesh] such as "dp=2,tp=4" names the groups of data and tensor parallelism. To make a group is collective, too: all ranks make
// the same groups in the same order. Only one goroutine may use a group at a time.
//
// # Failures
//
// A job does not hang. If ranks disagree (another operation, shape, type, reduction or root), every rank gets an [*Error]
// that says who called what. If a rank waits for an operation that makes no progress for [Config].Timeout, the operation fails
// and names the ranks that did not arrive. A failed group stays failed: every later call on every rank returns the first error, and
// groups made from it fail, too. If the function of a rank returns an error or panics, Run ends the other ranks and returns this
// first error. [Group.Abort] is the only way to cancel operations. When the job fails, the last operations of each rank are
// printed. Register background work that must end before Run returns with [Rank.AtEnd].
//
// # Speed
//
// Ranks on goroutines read and write each other's buffers in place (package dist/local). So do processes in a group
// whose members are all on one Linux host (package dist/shm), with tensors that [Rank.Alloc] made, as ddp does for its
// gradients. Other tensors are copied through shared memory. RINGO_SHM=0 switches shared memory off. Groups over several hosts
// use TCP with TLS (package dist/tcp): in a mesh "dp=2,tp=2" on two hosts of two ranks each, dp does and tp does not.
// [Group.Engine] says which engine a group has. After the first steps, operations in memory allocate nothing.
//
// Wait makes progress on all operations of the rank. Between waits, operations in memory make progress only when a tape calls the
// device's poll hook, once for each node. So mainly networks and GPUs overlap with computation. [Group.Stats] counts the
// bytes that the program asked for and those that were moved.
//
// # Devices
//
// Ranks compute on CPUs unless [Config].Device, a program's -device flag ([DeviceFlag]) or RINGO_DEVICE says otherwise. If a device
// belongs to OS threads, as CUDA's contexts do, a rank stays on one thread from beginning to end. Operations take
// tensors in the memory of the rank's device or of the host. If an engine cannot use a device's memory, it works on a
// copy in host memory: the host waits until the input is there, and the output is copied back in the order of the device's queue.
//
// # Files
//
// docs/ARCHITECTURE.md lists them, and follows a message through them. A call goes through ops.go, check.go, issue.go, order.go and
// stage.go to the engine; a wait through work.go and comm.go. Read lane.go first.
package dist

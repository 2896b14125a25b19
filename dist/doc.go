// Package dist runs the ranks of a training job and lets them communicate.
//
// A job is a number of ranks that run the same function, each on its own part of the data. [Run] makes them: goroutines of
// one process, each with a [tensor.Device] of its own, or one rank per process when a launcher (ringo run, torchrun, Slurm,
// mpirun) started the program. The function is the same:
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
// call the same operations in the same order. Each call returns a [Work] at once: Wait blocks until the result is
// there, and until then the tensors belong to the operation. Waiting later lets the program compute meanwhile; up to 64
// operations of a group may be in flight, and they may be waited for in any order. Operations of a rank that touch the
// same memory take effect in the order in which they are issued, on any groups: the second one waits for the first
// before it begins. Small values go through [Group.SumFloats], [AllGatherObject] and [BroadcastObject].
//
// Results are the same on every run. Elements are combined in rank order, 16-bit floats in float32 with one rounding at
// the end. The bits are the same on goroutines and between processes of a host. Between hosts a committed table chooses
// algorithms by what was measured, and some of them add in an order of their own, the same on every run;
// RINGO_BITS=rank demands rank order everywhere. RINGO_ALGO=allreduce:ring, or [Algo] for one group, forces an
// algorithm between processes.
//
// # Groups
//
// [Group.With] gives the same ranks a second, independent queue of operations; [Group.Split] cuts a group into parts; a
// [Mesh] such as "dp=2,tp=4" names the groups of data and tensor parallelism. Making a group is collective too: same order
// everywhere. A group belongs to one goroutine at a time.
//
// # Failures
//
// Nothing hangs. When ranks disagree (another operation, shape, type, reduction or root), every rank gets an [*Error]
// that says who called what. An operation that makes no progress for [Config].Timeout while somebody waits for it fails
// and names the ranks that did not arrive. The first failure poisons its group for ever: every later call on every rank
// returns it, and groups made from it fail as well. When the function of a rank returns an error or panics, Run ends
// the other ranks and returns that first error; [Rank.AtEnd] is for work in the background that must be over before Run
// returns. [Group.Abort] is the only way to cancel operations. When the job fails, the last operations of each rank are
// printed.
//
// # Speed
//
// Ranks on goroutines read and write each other's buffers in place (package dist/local). So do processes in a group
// whose members are all on one Linux host (package dist/shm), with tensors that [Rank.Alloc] made, as ddp does for its
// gradients; other tensors are copied through shared memory. RINGO_SHM=0 switches that off. Groups over several hosts
// use TCP with TLS (package dist/tcp): in a mesh "dp=2,tp=2" on two hosts of two ranks, dp does and tp does not.
// [Group.Engine] says which it is. A steady operation in memory allocates nothing. Waiting drives all operations of the
// rank. Between waits, operations in memory move only when a tape calls the device's poll hook, once a node. So it is
// networks and GPUs that overlap with computation. [Group.Stats] counts what was asked for and what was moved.
//
// # Devices
//
// Ranks compute on CPUs unless [Config].Device, a program's -device flag ([DeviceFlag]) or RINGO_DEVICE says otherwise. Where a device
// belongs to OS threads, as CUDA's contexts do, a rank is bound to its thread from beginning to end. Operations take
// tensors in the memory of the rank's device or of the host. Where an engine cannot reach a device's memory, it works on a
// copy in host memory: the host waits until the input is there, and the output is copied back in the order of the device's queue.
package dist

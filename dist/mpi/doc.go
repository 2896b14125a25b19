// Package mpi connects the ranks of a job by MPI, without cgo. Package dist uses it in processes that mpiexec has started, with
// RINGO_BACKEND=mpi or dist.Config.Backend: MPI knows networks that package tcp does not, such as InfiniBand. Inside a host, package shm is
// faster. No group has both, shared memory inside hosts and MPI between them: a group is of one engine, and what shm does not do itself (to
// meet, to notice lost processes, to tell of failures) it has from the connections of package tcp. MPI itself uses shared memory inside a
// host, too.
//
// The library (package internal/mpi) is libmpi_abi.so.1, with the standard ABI of MPI 5.0, or that of MPICH (libmpi.so.12; in Debian
// libmpich.so.12) or of Open MPI 4 and 5 (libmpi.so.40). RINGO_MPI_LIB names the library. It must be that of the mpiexec. Open MPI 4
// has no calls with counts of 64 bits: there, buffers of more than 2^31-1 bytes go by our algorithms, and long messages in pieces; such an
// AllToAllV is an error.
//
// # Two layers
//
// A collective is MPI's own if MPI has its type and its reduction ("mpi" as the name of its algorithm). All else is done by the algorithms
// of dist/algo over MPI's messages: 16-bit floats, truth values, Avg and PreMulSum, Min and Max of floats (MPI may drop a NaN), and all
// reductions with RINGO_BITS=rank. A communicator for the group is made when it is first needed.
//
// Before an operation moves data, its ranks agree that all of them have issued the same one, by messages on a communicator of their own.
// So an operation about which ranks disagree, or to which a rank does not come, fails as on other engines, and MPI has not begun it.
//
// # Threads
//
// One goroutine, pinned to its thread, calls MPI_Init_thread, MPI_Finalize and what may wait. All other calls only begin something, or ask
// whether it is over. They are made one at a time (MPI_THREAD_SERIALIZED), by whoever waits for an operation, or by the pinned
// goroutine if nobody does. A rank that waits asks in bounded steps. Signal handlers that MPI installs are taken away again.
//
// What Go's scheduler does in between costs more than the calls: a thread that wakes takes the core of the one that waits for MPI. So the
// pinned goroutine looks every 2 ms if nobody else makes steps, and every 16 ms while somebody does. A goroutine that waits lets others
// run every 4 ms, before Go stops it. And GOMAXPROCS is at least 2, also where mpiexec binds a rank to one core: with 1, Go takes the
// processor away whenever a call of MPI takes 20 µs.
//
// Start programs with MALLOC_ARENA_MAX=1 in the environment: without it, glibc gives temporary buffers of MPI back to the kernel each time,
// because several threads call it, and a reduction of 16 MiB takes a quarter longer.
//
// # Failures
//
// A failure reaches all ranks of the group, as in other engines. If MPI has begun an operation that fails, it cannot end it. Then all
// groups of the rank fail, it makes no call of MPI any more, and the process is to end. Groups cannot be rebuilt. If the function of a rank
// fails, or a rank cannot go on, no rank calls MPI_Finalize, and Close returns why on each. A process that dies ends the job: mpiexec
// says which one it was.
//
// # Files
//
//	engine.go, maker.go  the job: begin, steps, end
//	message.go           what ranks tell each other; request.go: what MPI is doing
//	endpoint.go          a group: operations in order, failures; arrive.go: ranks agree about an operation
//	collective.go        collectives of MPI; transport.go: our algorithms; comms.go: communicators
//	pair.go              Send and Recv
package mpi

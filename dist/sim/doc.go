// Package sim runs collectives in virtual time: the algorithms of package dist/algo, unchanged, on a network that is described and not
// there. So thousands of ranks fit in one process, and "ringo sim" compares algorithms on clusters that nobody has to rent.
//
//	top, err := sim.Open("hgx-h100")
//	r, err := top.Run(backend.AllReduce, "ring", 1024, 1<<20)
//	fmt.Println(r.Time, r.BusGBs)
//
// # The model
//
// A [Topology] is a tree, or several, of ranks and switches with full-duplex links. A link has a latency and a bandwidth, and takes
// messages in the order in which they are sent. Messages do not wait to be complete at a switch: a path takes the sum of the latencies
// and the bytes at the slowest bandwidth, unless other messages are on its links. A switch can keep what the next link cannot take yet.
// Send returns when the last byte is on the first link, Recv when the last one has come. A rank may also need time for each message
// (MessageNS), and for the bytes that it copies or adds (MemoryGBs). Payloads are left out: nobody allocates or reads buffers.
//
// Where ranks share memory (Window), as with the engines local and shm, there are no messages: an operation is two barriers, or one, and
// what a rank reads and writes between them, as fast as its caches are (Caches). A loopback is work of cores: its directions take turns
// (Half). bench/sim compares both with measurements of two ranks.
//
// Times are whole picoseconds, and what happens at the same time happens in a fixed order. So results are the same on every machine.
// There is no noise in them. On real clusters there is: on Leonardo it takes up to half of the bandwidth of an all-reduce of 1,024 GPUs
// (De Sensi et al. 2024, arXiv 2408.14090).
//
// # Programs, and libraries for GPUs
//
// [Topology.Run] runs one collective, and [Topology.Play] the programs of all ranks: computation, collectives and waits. A [Library] runs
// collectives as libraries for GPUs do them: rings through all cards of a host, the fastest of several protocols, and switches that add up
// (NVLS). Package training, above this one, makes steps of these: from the sizes of a model, from the buckets of package ddp, or as they
// were recorded.
//
// testdata/calibration.txt compares the collectives of a Library, and steps, with published figures: five are fitted, the others predicted,
// also those that miss. Collectives and steps are within 7% on average. Beyond 10% are: all-reduces of less than 1 MiB, where libraries
// choose among more algorithms, and of 16 MiB; and steps on many thousand GPUs, which wait for each other more than a simulation without
// noise. On a cluster with EFA, all-reduces of 32 to 512 GPUs are predicted up to 8 times too fast: its bandwidth falls with each host, and
// nothing in this model does that.
//
// # Files
//
//	topology.go  Topology, and what is wrong with one; file.go: JSON; topologies: those that come with the package
//	wiring.go    the links of so many ranks, and the path between two of them
//	clock.go     threads in virtual time: they write down steps ahead of it
//	network.go   messages on links; window.go: shared memory
//	rank.go      the Transport of a rank, and its steps
//	run.go       Run: an operation of all ranks
//	program.go   Play: the programs of ranks
//	library.go   Library: collectives of GPUs
package sim

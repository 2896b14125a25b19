// Package algo holds the algorithms of collectives, a short file each, with the cost of each at its top. Engines use it; programs choose
// an algorithm with RINGO_ALGO or dist.Algo.
//
// [Direct] works on the memory of peers (backend.Window): goroutine ranks, and processes of one host in shared memory. [Messages] works
// over messages (backend.Transport) and has several algorithms:
//
//   - linear, the simplest one, which tests compare the others with;
//   - direct, with the same bits and no bottleneck: the form over messages of what [Direct] does in memory, so that both have this name;
//   - ring, halving-doubling, double-tree, chain, binomial, pairwise, bruck and dissemination, each for some operations;
//   - hierarchical, for groups on several hosts: it sends as little as possible between hosts.
//
// An algorithm runs only on the goroutine of its caller. One exception: reductions of linear and direct that are longer than a chunk have
// a second goroutine (linear_pipeline.go), which ends before they return. ring_test.go has a ring without chunks; read it first.
//
// A [Tuner] chooses the default, from a [Table] of measurements that is compiled in, or by the [Cost] of each algorithm.
//
// All algorithms that combine elements in rank order use the same [Reducer]. So a sum has the same bits on goroutines and between
// processes: 16-bit floats are added in float32 and rounded once.
//
// Files:
//
//	messages.go        Messages; the algorithms of each kind; Layout, the hosts of ranks
//	direct.go          Direct; direct_move.go: it moves and adds blocks; direct_device.go: its work on devices
//	direct_message.go  direct over messages
//	linear.go          Linear; linear_move.go, linear_reduce.go: its operations; linear_pipeline.go: reductions of many chunks
//	ring.go, halving.go, doubletree.go, chain.go, binomial.go, alltoall.go, bruck.go, dissemination.go
//	                   the algorithms of these names; alltoall.go has pairwise, and bruck for all-to-all
//	hierarchical.go    hierarchical all-reduce; hierarchical_move.go: the other operations
//	reduce.go          Reducer: adds elements in rank order; folder.go: adds partial results
//	chunks.go          the chunks of a message; parts.go: the parts of ranks in a buffer
//	tuner.go           Tuner; table.go: its Table (tuner.json); cost.go, cost_hosts.go: the model
package algo

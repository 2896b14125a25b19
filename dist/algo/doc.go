// Package algo holds the algorithms of collectives, a short file each, with what they cost at the top.
//
// [Direct] works on the memory of peers (backend.Window): goroutine ranks, and processes of one host in shared memory.
// [Messages] works over messages (backend.Transport) and has several algorithms by name: linear, the plain one that the others
// are tested against; direct, which has the same bits and no bottleneck; ring, halving-doubling, double-tree, chain, binomial,
// pairwise, bruck and dissemination, each for the operations that it suits; and hierarchical, for groups on several hosts, which
// moves as little as possible from host to host. [Choose] says which one runs by default, by a [Table] of measurements that is
// compiled in.
//
// What combines elements in rank order shares one [Reducer], so that a sum has the same bits on goroutines and between
// processes: 16-bit floats are added up in float32 and rounded once.
package algo

// Package tensortest is the conformance suite of devices, and a device that is hard to please.
//
// [Run] runs every operation, forward and backward, in every element type, on a device and on the CPU, and compares: odd
// shapes, empty tensors, views, broadcasting, memory that is not aligned, NaN and infinities; the optimizers; and the
// training of two models. Its cases, [ValueCases] and [GradCases], are those that package tensor tests the CPU with, against
// plain loops and finite differences.
//
// [NewRemote] makes a device whose memory Go code cannot touch and whose queues run later, as on a GPU, but with the CPU's
// kernels: what reads or writes a device's memory in Go, or forgets to order queues, fails on it.
package tensortest

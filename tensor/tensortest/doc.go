// Package tensortest is the conformance suite of devices, for people who write one. It also has a strict device for tests.
//
// [Run] runs every operation, forward and backward, in every element type, on a device and on the CPU, and compares the results: odd
// shapes, empty tensors, views, broadcasting, unaligned memory, NaN and infinities. Package tensor tests the CPU with the same cases,
// [ValueCases] and [GradCases], against plain loops and finite differences. Cases that need layers and optimizers are in package
// optim/optimtest.
//
// [NewRemote] makes a device whose memory Go code cannot read or write, and whose queues run later, as on a GPU. It uses the CPU's kernels.
// Code that accesses a device's memory from Go, or does not order queues, fails on it.
package tensortest

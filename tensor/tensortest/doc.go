// Package tensortest is the conformance suite of devices, for those who write one. It also has a strict device for tests.
//
// [Run] runs every operation, forward and backward, in every element type, on a device and on the CPU, and compares: odd
// shapes, empty tensors, views, broadcasting, memory that is not aligned, NaN and infinities. Its cases,
// [ValueCases] and [GradCases], are those that package tensor tests the CPU with, against plain loops and finite differences.
// What needs layers and optimizers is in package optim/optimtest.
//
// [NewRemote] makes a device whose memory Go code cannot read or write, and whose queues run later, as on a GPU. It has the CPU's
// kernels. Code that uses a device's memory from Go, or does not order queues, fails on it.
package tensortest

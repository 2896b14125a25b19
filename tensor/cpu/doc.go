// Package cpu is the CPU as a device of package tensor: its threads, its memory and its kernels. [New] makes a device with a number of
// threads; results have the same bits with any number.
//
// A program that imports the package can also compute with tensors outside of tapes. Models import it with their layers (package nn).
//
// device.go has the device and its queue, pool.go its threads. builtin.go lists the kernels of package tensor's operations. Most of them
// call package internal/kernel, which has the loops and the assembly, for a part of the elements. half.go and half_rows.go compute 16-bit
// floats through float32, a few at a time. oracle.go compares kernels with plain ones in debug mode.
//
// [Register] takes the kernels of an operation of your own. Make them with [Parallel] or [ByRows]; those that keep memory have [Queue],
// [Part], [Local] and [GemmWorkspace].
package cpu

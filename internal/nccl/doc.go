// Package nccl calls NVIDIA's collective communication library without cgo:
// libnccl.so.2 of version 2.22 or later. If there is none, it takes RCCL, AMD's
// library of the same interface (librccl.so.1, never run). RINGO_NCCL_LIB names
// another library. NCCL's own variables (NCCL_*) are its own: nothing here sets
// or overrides them.
//
// The calls are NCCL's, one method each, and allocate nothing. They return a
// Result; Lib.Err makes an error of it, with NCCL's words. A communicator made
// here is blocking: Init waits for the other ranks, and so may the first calls
// between two ranks. Abort, from another thread, ends what waits.
package nccl

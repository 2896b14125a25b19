package nccl

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// DType is an ncclDataType_t.
type DType uint8

// The element types.
const (
	Int8 DType = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
)

// RedOp is an ncclRedOp_t: one of the constants, or a result of PreMulSum.
type RedOp int32

// The reductions.
const (
	Sum RedOp = iota
	Prod
	Max
	Min
	Avg
)

// hot makes a call that allocates nothing. No argument may be the address of a Go variable that nothing else keeps alive.
func hot(fn uintptr, args ...uintptr) Result {
	var a [12]uintptr
	copy(a[:], args)
	return Result(int32(dl.Call12(fn, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11])))
}

// The operations queue work on a stream (a CUstream). Counts are elements.

// AllReduce reduces n elements of all ranks.
func (c *Comm) AllReduce(src, dst cuda.Ptr, n int, d DType, op RedOp, stream uintptr) Result {
	return hot(c.lib.fn.AllReduce, uintptr(src), uintptr(dst), uintptr(n), uintptr(d), uintptr(op), c.handle, stream)
}

// Reduce reduces n elements of all ranks into dst of root.
func (c *Comm) Reduce(src, dst cuda.Ptr, n int, d DType, op RedOp, root int, stream uintptr) Result {
	return hot(c.lib.fn.Reduce, uintptr(src), uintptr(dst), uintptr(n), uintptr(d), uintptr(op), uintptr(root), c.handle, stream)
}

// Broadcast copies n elements from root's src into dst of all ranks.
func (c *Comm) Broadcast(src, dst cuda.Ptr, n int, d DType, root int, stream uintptr) Result {
	return hot(c.lib.fn.Broadcast, uintptr(src), uintptr(dst), uintptr(n), uintptr(d), uintptr(root), c.handle, stream)
}

// AllGather puts n elements of each rank, in rank order, into dst of all ranks.
func (c *Comm) AllGather(src, dst cuda.Ptr, n int, d DType, stream uintptr) Result {
	return hot(c.lib.fn.AllGather, uintptr(src), uintptr(dst), uintptr(n), uintptr(d), c.handle, stream)
}

// ReduceScatter reduces all inputs and gives each rank its n elements.
func (c *Comm) ReduceScatter(src, dst cuda.Ptr, n int, d DType, op RedOp, stream uintptr) Result {
	return hot(c.lib.fn.ReduceScatter, uintptr(src), uintptr(dst), uintptr(n), uintptr(d), uintptr(op), c.handle, stream)
}

// HasAllToAll reports whether this NCCL has AllToAll (2.28).
func (c *Comm) HasAllToAll() bool { return c.lib.fn.AllToAll != 0 }

// AllToAll sends n elements to each rank.
func (c *Comm) AllToAll(src, dst cuda.Ptr, n int, d DType, stream uintptr) Result {
	return hot(c.lib.fn.AllToAll, uintptr(src), uintptr(dst), uintptr(n), uintptr(d), c.handle, stream)
}

// Send sends n elements to peer. In a group, sends and receives do not wait for each other.
func (c *Comm) Send(src cuda.Ptr, n int, d DType, peer int, stream uintptr) Result {
	return hot(c.lib.fn.Send, uintptr(src), uintptr(n), uintptr(d), uintptr(peer), c.handle, stream)
}

// Recv receives n elements from peer.
func (c *Comm) Recv(dst cuda.Ptr, n int, d DType, peer int, stream uintptr) Result {
	return hot(c.lib.fn.Recv, uintptr(dst), uintptr(n), uintptr(d), uintptr(peer), c.handle, stream)
}

// GroupStart begins a group: the calls of this thread up to GroupEnd are launched together.
func (l *Lib) GroupStart() Result { return hot(l.fn.GroupStart) }

// GroupEnd launches the group.
func (l *Lib) GroupEnd() Result { return hot(l.fn.GroupEnd) }

// PreMulSum makes the reduction that multiplies this rank's input by *factor, a number of type d in host memory, and then sums. It may be
// destroyed as soon as the operations that use it are queued.
func (c *Comm) PreMulSum(factor unsafe.Pointer, d DType) (RedOp, Result) {
	const hostImmediate = 1
	var op RedOp
	r := dl.Call(c.lib.fn.RedOpPreMulSum, uintptr(unsafe.Pointer(&op)), uintptr(factor), uintptr(d), hostImmediate, c.handle)
	return op, Result(int32(r))
}

// DestroyOp destroys a reduction of PreMulSum.
func (c *Comm) DestroyOp(op RedOp) Result {
	return Result(int32(dl.Call(c.lib.fn.RedOpDestroy, uintptr(op), c.handle)))
}

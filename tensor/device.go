package tensor

import "unsafe"

// Ptr is an address in a device's memory.
type Ptr = unsafe.Pointer

// Device is memory and queues of work; what it can compute is a table of kernels. A Device serves one rank. Alloc, Free, Copy
// and the methods of queues may be called by several goroutines at the same time; kernels are launched by the rank's alone.
//
// Where Host is false, Go code never reads or writes the memory: it computes with addresses only, and copies ([ToHost], [Copy]).
type Device interface {
	// String names the device in errors, such as "cpu".
	String() string
	// Host reports whether Go code may read and write the device's memory.
	Host() bool
	// Alloc returns n bytes, aligned to 64, with any content.
	Alloc(n int) (Ptr, error)
	// Free returns memory that Alloc gave. What was launched on the queues before may still use it.
	Free(p Ptr)
	// Copy copies n bytes, in the order of q. Both addresses may be host or this device's memory. That of the host must stay
	// as it is until the queue is past the copy (see Queue.Mark).
	Copy(dst, src Ptr, n int, q Queue)
	// Queue returns the k-th queue (a stream: 0 computes, 1 copies).
	Queue(k int) Queue
	// Kernels returns the table of what the device can compute.
	Kernels() *Table
	// Memory returns what counts the device's memory.
	Memory() *Memory
}

// Queue orders work on a device. Each device has its own kind; a kernel knows the one of its device.
type Queue interface {
	// Sync waits until everything launched on the queue is done. It returns what went wrong since the last Sync: an index out
	// of range, a device that is lost.
	Sync() error
	// Mark returns what is over when everything launched on the queue so far is done.
	Mark() Pending
	// After lets what is launched on the queue from now on begin when p is over. If p is a mark of the same device, the host
	// does not wait for it.
	After(p Pending) error
}

// Pinner is implemented by a Device that has host memory of a kind (page-locked) that it copies from and to without making
// the host wait. See NewStaging.
type Pinner interface {
	// AllocHost returns n bytes of host memory, aligned to 64, with any content.
	AllocHost(n int) (Ptr, error)
	// FreeHost returns memory that AllocHost gave, like Free.
	FreeHost(p Ptr)
}

// Poller is implemented by a Device whose rank drives communication: the Tape calls Poll once a node, and Poll what SetPoll set.
type Poller interface {
	Poll()
	SetPoll(fn func())
}

// MaxOperands is the number of tensors that one kernel takes.
const MaxOperands = 13

// MaxRank is the largest number of dimensions.
const MaxRank = 6

// Args is what a kernel gets. It lives in the tape and is filled anew for each launch; a kernel may not keep it.
// Operands are outputs first, then inputs.
type Args struct {
	Op      Op
	DType   DType              // the row of the table
	Outs    int                // the first Outs operands are written
	N       int                // operands in use
	X       [MaxOperands]Ptr   // addresses; nil for an optional operand that is absent
	Len     [MaxOperands]int   // elements from X[i] on that the kernel may touch
	DT      [MaxOperands]DType // element types
	Rank    int                // dimensions in Dim
	Dim     [MaxRank]int       // sizes; their meaning is the op's
	Stride  [3][MaxRank]int    // element strides of operands 0, 1, 2, where the op needs them; else anything
	I       [8]int             // integer attributes
	F       [8]float64         // float attributes
	Key     uint64             // random key
	List    []Ptr              // addresses of a multi-tensor kernel
	ListLen []int              // elements of each
}

// Kernel computes one operation on a queue. On the host, an index out of range was found before. On other devices the kernel
// finds it: it must not touch memory beyond its operands, and the queue's next Sync returns an error that names the operation.
type Kernel func(q Queue, a *Args)

// Table says which kernel computes an operation for an element type. An empty cell is an error, never a fallback.
type Table [MaxOps][NumDTypes]Kernel

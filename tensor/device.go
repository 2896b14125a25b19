package tensor

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// Ptr is an address in a device's memory.
type Ptr = unsafe.Pointer

// Device has memory, queues of work, and a table of the kernels that it can run. A Device serves one rank. Several goroutines may call
// Alloc, Free, Copy and the methods of queues at the same time; only the rank's goroutine launches kernels.
//
// If Host is false, Go code never reads or writes the memory. It only computes addresses, and copies with [ToHost] and [Copy].
type Device interface {
	// String names the device in errors, such as "cpu".
	String() string
	// Host reports whether Go code may read and write the device's memory.
	Host() bool
	// Alloc returns n bytes, aligned to 64, with any content.
	Alloc(n int) (Ptr, error)
	// Free returns memory that Alloc gave. Work that was launched on the queues before may still use it.
	Free(p Ptr)
	// Copy copies n bytes, in the order of q. Each address may be in host memory or in this device's memory. Host memory must not change
	// until the queue has done the copy (see Queue.Mark).
	Copy(dst, src Ptr, n int, q Queue)
	// Queue returns queue k, a stream: 0 computes, 1 copies.
	Queue(k int) Queue
	// Kernels returns the table of what the device can compute.
	Kernels() *Table
	// Memory returns the counter of the device's memory.
	Memory() *memory.Counter
}

// Queue is a device's queue of work, which is done in order. Each device has its own implementation; a kernel knows that of its device.
type Queue interface {
	// Sync waits until everything launched on the queue is done. It returns the first error since the last Sync: an index out of range, a
	// lost device.
	Sync() error
	// Mark returns a Pending that is over when everything launched on the queue so far is done.
	Mark() Pending
	// After makes all later launches on the queue wait until p is over. If p is a mark of the same device, the host does not wait.
	After(p Pending) error
}

// Pinner is a Device that can allocate page-locked host memory, from and to which it copies without making the host wait. See NewStaging.
type Pinner interface {
	// AllocHost returns n bytes of host memory, aligned to 64, with any content.
	AllocHost(n int) (Ptr, error)
	// FreeHost returns memory that AllocHost gave, like Free.
	FreeHost(p Ptr)
}

// Poller is a Device whose rank drives communication. The Tape calls Poll once a node; Poll calls the function of SetPoll.
type Poller interface {
	Poll()
	SetPoll(fn func())
}

// Checker is a Device in host memory that checks its kernels in debug mode (RINGO_DEBUG=1): then each Exec launches by a function of
// Checked.
type Checker interface {
	Checked() func(k Kernel, q Queue, a *Args)
}

// SumSquaresBlock is the number of elements whose squares OpSumSquares adds to one number.
const SumSquaresBlock = 1 << 14

// MaxOperands is the number of tensors that one kernel takes.
const MaxOperands = 13

// MaxNDim is the largest number of dimensions.
const MaxNDim = 6

// Args holds the arguments of a kernel: operands (outputs first, then inputs) and attributes. It belongs to the tape and is filled again
// for each launch, so a kernel may not keep it.
type Args struct {
	Op      Op
	DType   DType              // the row of the table
	Outs    int                // the first Outs operands are written
	N       int                // operands in use
	X       [MaxOperands]Ptr   // addresses; nil for an optional operand that is absent
	Len     [MaxOperands]int   // elements that the kernel may access from X[i] on
	DT      [MaxOperands]DType // element types
	NDim    int                // dimensions in Dim
	Dim     [MaxNDim]int       // sizes; each operation defines their meaning
	Stride  [3][MaxNDim]int    // element strides of operands 0, 1, 2, if the op reads them; else undefined
	I       [8]int             // integer attributes
	F       [8]float64         // float attributes
	Key     uint64             // random key
	List    []Ptr              // addresses of a multi-tensor kernel
	ListLen []int              // number of elements of each
}

// Kernel computes one operation on a queue. If indices are in host memory, they were checked before. On other devices the kernel checks
// them: it must not access memory outside its operands, and the queue's next Sync returns an error that names the operation.
type Kernel func(q Queue, a *Args)

// Table holds the kernel of each operation and element type. A missing kernel is an error: there is no fallback.
type Table [MaxOps][NumDTypes]Kernel

package tensor

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/internal/wait"
)

// CPU is the host as a Device: memory from the operating system and a pool of worker threads.
type CPU struct {
	pool  *pool
	queue CPUQueue
	poll  func()
	use   Memory
	mu    sync.Mutex
	mem   map[Ptr][]byte
}

// CPUQueue is the queue of a CPU device, which its kernels get.
type CPUQueue struct {
	pool   *pool
	locals map[any]any // see Local
	half   scratch     // widened 16-bit operands
	chunks []float32   // chunks of them, per thread
	blocks []float32   // of OpSumSquares, per thread
	wide   Args
	wides  []Args // of halfRows, per thread
	// the operand that is being widened or rounded, and its float32 memory
	operand int
	wideAt  Ptr
	// packed panels of GEMM, per thread
	workspaces32 []GemmWorkspace[float32]
	workspaces64 []GemmWorkspace[float64]
	// the same for bfloat16
	workspacesBF16 []GemmWorkspaceBF16
}

// Threads returns the number of threads that compute.
func (q *CPUQueue) Threads() int { return q.pool.n }

// Grain returns the least number of element operations for which it pays to wake a thread.
func (q *CPUQueue) Grain() int { return q.pool.grain }

// SetGrain sets Grain. With 1 even the smallest work is divided: for tests that the result does not depend on the cuts.
func (q *CPUQueue) SetGrain(n int) { q.pool.grain = n }

// Run divides n items of work over the threads, in parts of at least least items, and calls fn for each part. Cuts are multiples of align.
func (q *CPUQueue) Run(a *Args, n, least, align int, fn Part) { q.pool.run(q, a, n, least, align, fn) }

// Local is a T for each CPU device, which kernels keep from launch to launch.
type Local[T any] struct{}

// Of returns the T of q's device. It is made at the first call, which is by the goroutine that launches.
func (Local[T]) Of(q *CPUQueue) *T {
	if v, ok := q.locals[(*T)(nil)].(*T); ok {
		return v
	}
	if q.locals == nil {
		q.locals = map[any]any{}
	}
	v := new(T)
	q.locals[(*T)(nil)] = v
	return v
}

// Sync returns nil: a launch on the CPU returns when the kernel is done.
func (q *CPUQueue) Sync() error { return nil }

// Mark returns a Pending that is over.
func (q *CPUQueue) Mark() Pending { return Pending{} }

// After waits for p.
func (q *CPUQueue) After(p Pending) error { return p.Wait() }

var (
	cpuTable   Table
	hostDevice = newCPU(1) // the device of FromSlice: any CPU device may use its memory
)

// NewCPU returns a CPU device that computes with the given number of threads (0: one per core). Ranks have a device each and share the
// cores (see SetRanks). Close it when it is no longer used. An unknown value of RINGO_CPU is a Failure.
func NewCPU(threads int) *CPU {
	if err := kernel.CPUError(); err != nil {
		fail("NewCPU", nil, "%w", err)
	}
	return newCPU(threads)
}

func newCPU(threads int) *CPU {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	d := &CPU{pool: newPool(threads, threads), mem: map[Ptr][]byte{}}
	d.queue.pool, d.queue.half.use = d.pool, &d.use
	return d
}

// Close stops the worker threads and returns the memory of Alloc. Tensors of tapes on the device must not be used
// afterwards.
func (d *CPU) Close() {
	d.pool.close()
	d.queue.freeWorkspaces()
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, b := range d.mem {
		unmapMemory(b)
		delete(d.mem, p)
	}
}

// String returns "cpu".
func (d *CPU) String() string { return "cpu" }

// Host reports true.
func (d *CPU) Host() bool { return true }

// Threads returns the number of threads that compute.
func (d *CPU) Threads() int { return d.pool.n }

// SetRanks says how many ranks, this one included, compute on the cores of this host, with as many threads each. Idle threads spin for a
// short time before they sleep, but only if each thread has a core. Call it before the first kernel.
func (d *CPU) SetRanks(n int) { d.pool.policy = wait.For(n * d.pool.n) }

// SetPoll sets the function that tapes on the device call once a node, so that communication goes on while they compute.
func (d *CPU) SetPoll(fn func()) { d.poll = fn }

// Poll calls the function of SetPoll.
func (d *CPU) Poll() {
	if d.poll != nil {
		d.poll()
	}
}

// Alloc returns n bytes of zeroed memory.
func (d *CPU) Alloc(n int) (Ptr, error) {
	b, err := mapMemory(n)
	if err != nil {
		return nil, err
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	d.mu.Lock()
	d.mem[p] = b
	d.mu.Unlock()
	return p, nil
}

// Free returns memory that Alloc gave.
func (d *CPU) Free(p Ptr) {
	d.mu.Lock()
	b := d.mem[p]
	delete(d.mem, p)
	d.mu.Unlock()
	if b != nil {
		unmapMemory(b)
	}
}

// Copy copies n bytes, and returns when it is done.
func (d *CPU) Copy(dst, src Ptr, n int, _ Queue) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

// Queue returns the only queue.
func (d *CPU) Queue(int) Queue { return &d.queue }

// Kernels returns the table of Go and assembly kernels.
func (d *CPU) Kernels() *Table { return &cpuTable }

// Memory returns the counter of the tensors' memory on the device. The threads' workspaces for matrix products are not counted.
func (d *CPU) Memory() *Memory { return &d.use }

// scratch is memory that a kernel uses while it runs. It grows to the largest need and is kept.
type scratch struct {
	b   []byte
	use *Memory
}

func (s *scratch) get(n int) Ptr {
	if len(s.b) < n+63 {
		s.use.sub(OtherMemory, len(s.b))
		s.b = make([]byte, n+n/2+63)
		s.use.add(OtherMemory, len(s.b))
	}
	p := unsafe.Pointer(unsafe.SliceData(s.b))
	return unsafe.Add(p, int(-uintptr(p)&63))
}

package cpu

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Device is the host as a [tensor.Device]: memory from the operating system and a pool of worker threads.
type Device struct {
	pool  *pool
	queue Queue
	poll  func()
	use   memory.Counter
	mu    sync.Mutex
	mem   map[tensor.Ptr][]byte
}

// Queue is the queue of a CPU device, which its kernels get.
type Queue struct {
	pool   *pool
	locals map[any]any // see Local
	half   scratch     // widened 16-bit operands
	chunks []float32   // chunks of them, per thread
	blocks []float32   // of OpSumSquares, per thread
	wide   tensor.Args
	wides  []tensor.Args // of halfRows, per thread
	// the operand that is being widened or rounded, and its float32 memory
	operand int
	wideAt  tensor.Ptr
	// packed panels of GEMM, per thread
	workspaces32 []GemmWorkspace[float32]
	workspaces64 []GemmWorkspace[float64]
	// the same for bfloat16
	workspacesBF16 []GemmWorkspaceBF16
}

// Threads returns the number of threads that compute.
func (q *Queue) Threads() int { return q.pool.n }

// Grain returns the least number of element operations for which it pays to wake a thread.
func (q *Queue) Grain() int { return q.pool.grain }

// SetGrain sets Grain. With 1 even the smallest work is divided: for tests that the result does not depend on the cuts.
func (q *Queue) SetGrain(n int) { q.pool.grain = n }

// Run divides n items of work over the threads, in parts of at least least items, and calls fn for each part. Cuts are multiples of align.
func (q *Queue) Run(a *tensor.Args, n, least, align int, fn Part) {
	q.pool.run(q, a, n, least, align, fn)
}

// Local is a T for each CPU device, which kernels keep from launch to launch.
type Local[T any] struct{}

// Of returns the T of q's device. It is made at the first call, which is by the goroutine that launches.
func (Local[T]) Of(q *Queue) *T {
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
func (q *Queue) Sync() error { return nil }

// Mark returns a Pending that is over.
func (q *Queue) Mark() tensor.Pending { return tensor.Pending{} }

// After waits for p.
func (q *Queue) After(p tensor.Pending) error { return p.Wait() }

// New returns a CPU device that computes with the given number of threads (0: one per core). Ranks have a device each and share the
// cores (see SetRanks). Close it when it is no longer used. An unknown value of RINGO_CPU is a Failure.
func New(threads int) *Device {
	if err := kernel.CPUError(); err != nil {
		panic(&tensor.Failure{Op: "cpu.New", Err: err})
	}
	return newDevice(threads)
}

func newDevice(threads int) *Device {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	d := &Device{pool: newPool(threads, threads), mem: map[tensor.Ptr][]byte{}}
	d.queue.pool, d.queue.half.use = d.pool, &d.use
	return d
}

// Close stops the worker threads and returns the memory of Alloc. Tensors of tapes on the device must not be used
// afterwards.
func (d *Device) Close() {
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
func (d *Device) String() string { return "cpu" }

// Host reports true.
func (d *Device) Host() bool { return true }

// Threads returns the number of threads that compute.
func (d *Device) Threads() int { return d.pool.n }

// SetRanks says how many ranks, this one included, compute on the cores of this host, with as many threads each. Idle threads spin for a
// short time before they sleep, but only if each thread has a core. Call it before the first kernel.
func (d *Device) SetRanks(n int) { d.pool.policy = wait.For(n * d.pool.n) }

// SetPoll sets the function that tapes on the device call once a node, so that communication goes on while they compute.
func (d *Device) SetPoll(fn func()) { d.poll = fn }

// Poll calls the function of SetPoll.
func (d *Device) Poll() {
	if d.poll != nil {
		d.poll()
	}
}

// Alloc returns n bytes of zeroed memory.
func (d *Device) Alloc(n int) (tensor.Ptr, error) {
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

// Mappable returns an error if the system would not give n bytes.
func (d *Device) Mappable(n int) error { return mappable(n) }

// Free returns memory that Alloc gave.
func (d *Device) Free(p tensor.Ptr) {
	d.mu.Lock()
	b := d.mem[p]
	delete(d.mem, p)
	d.mu.Unlock()
	if b != nil {
		unmapMemory(b)
	}
}

// Copy copies n bytes, and returns when it is done.
func (d *Device) Copy(dst, src tensor.Ptr, n int, _ tensor.Queue) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

// Queue returns the only queue.
func (d *Device) Queue(int) tensor.Queue { return &d.queue }

// Kernels returns the table of Go and assembly kernels.
func (d *Device) Kernels() *tensor.Table { return &table }

// Memory returns the counter of the tensors' memory on the device. The threads' workspaces for matrix products are not counted.
func (d *Device) Memory() *memory.Counter { return &d.use }

// scratch is memory that a kernel uses while it runs. It grows to the largest need and is kept.
type scratch struct {
	b   []byte
	use *memory.Counter
}

func (s *scratch) get(n int) tensor.Ptr {
	if len(s.b) < n+63 {
		s.use.Add(memory.Other, -len(s.b))
		s.b = make([]byte, n+n/2+63)
		s.use.Add(memory.Other, len(s.b))
	}
	p := unsafe.Pointer(unsafe.SliceData(s.b))
	return unsafe.Add(p, int(-uintptr(p)&63))
}

// alignedBytes returns n bytes of Go memory.
func alignedBytes(n int) tensor.Ptr {
	p := unsafe.Pointer(unsafe.SliceData(make([]byte, n+63)))
	return unsafe.Add(p, int(-uintptr(p)&63))
}

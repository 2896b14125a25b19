package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// The numbers of a device's queues.
const (
	computeQueue = iota
	copyQueue
	numQueues
)

var queueNames = [numQueues]string{"compute", "copy"}

// Device is a GPU for one rank, with its own queues, memory and counts. Several Devices may share a GPU.
type Device struct {
	gpu    *cuda.Device
	sms    int // multiprocessors
	queues [numQueues]*Queue
	pool   *cuda.Pool
	blas   *blas.Handle
	use    memory.Counter
	funcs  []*cuda.Func // compiled kernels by number; nil: not compiled yet
	failed atomic.Pointer[tensor.Failure]
	poll   func()
	bad    *cuda.Host // word in which kernels report an index out of range

	recorded atomic.Pointer[recording] // nil: no graph is being recorded
	ahead    ahead

	mu     sync.Mutex
	closed bool
	graphs []*graph
	ready  *cuda.Event // in Alloc
	hosts  hosts

	plain bool // do not use tensor cores: for tests
	last  lastLeast
	// hopper: kernels with instructions that compute capability 9.0 alone has (wgmma). Until they have run on a GPU, not only on the
	// emulator, RINGO_HOPPER=1 alone asks for them.
	hopper bool
}

// NewDevice opens the GPU with the given index in CUDA's order (see CUDA_VISIBLE_DEVICES). The error says in one sentence what is missing
// and how to get it. Close the device when it is no longer used.
func NewDevice(index int) (*Device, error) {
	driver, err := cuda.Load()
	if err != nil {
		return nil, err
	}
	gpu, err := driver.Open(index)
	if err != nil {
		return nil, err
	}
	if _, err := cuda.LoadCompiler(); err != nil {
		return nil, err
	}
	lib, err := blas.Load()
	if err != nil {
		return nil, err
	}
	opened.Store(true)
	d := &Device{gpu: gpu, funcs: make([]*cuda.Func, len(kernels)), hosts: hosts{inUse: map[tensor.Ptr]*cuda.Host{}}, last: studied}
	d.hopper = os.Getenv("RINGO_HOPPER") == "1" && gpu.Major == 9 && gpu.Minor == 0 && gpu.HasTensorMaps()
	if d.sms, err = gpu.Attribute(cuda.Multiprocessors); err != nil {
		return nil, err
	}
	if err := gpu.Lock(); err != nil {
		return nil, err
	}
	defer gpu.Unlock()
	for k := range d.queues {
		if d.queues[k], err = d.newQueue(queueNames[k]); err != nil {
			return nil, err
		}
	}
	d.pool = gpu.NewPool(fmt.Sprintf("tensors of %v", d))
	if d.blas, err = lib.New(gpu, d.pool); err != nil {
		return nil, err
	}
	if d.ready, err = gpu.NewEvent(false); err != nil {
		return nil, err
	}
	if d.bad, err = gpu.NewHost(8); err != nil {
		return nil, err
	}
	clear(d.bad.Bytes())
	return d, nil
}

// String returns for example "cuda:0".
func (d *Device) String() string { return fmt.Sprintf("cuda:%d", d.gpu.Index) }

// Host reports false.
func (d *Device) Host() bool { return false }

// GPU returns the driver's device.
func (d *Device) GPU() *cuda.Device { return d.gpu }

// Kernels returns the table of the device's kernels.
func (d *Device) Kernels() *tensor.Table { return &table }

// Memory returns the counter of the tensors' memory on the device.
func (d *Device) Memory() *memory.Counter { return &d.use }

// Queue returns queue k, a stream: 0 computes, 1 copies.
func (d *Device) Queue(k int) tensor.Queue { return d.queues[k] }

// SetPoll sets the function that tapes on the device call once a node, so that communication goes on while the host is busy.
func (d *Device) SetPoll(fn func()) { d.poll = fn }

// Poll calls the function of SetPoll, except while a step is captured: then the driver allows no queries.
func (d *Device) Poll() {
	if d.poll != nil && d.recorded.Load() == nil {
		d.poll()
	}
}

// Bind binds the calling goroutine to its OS thread, until Unbind or its end, and makes the device's context current on that thread,
// instead of the previous one. Launches call it if needed; package dist calls it for each rank.
func (d *Device) Bind() error {
	runtime.LockOSThread()
	d.gpu.Unlock() // removes the previous context
	return d.gpu.Lock()
}

// Unbind undoes Bind. The thread has no context then.
func (d *Device) Unbind() { d.gpu.Unlock() }

// locked runs fn with the device's context current, on any goroutine.
func (d *Device) locked(fn func() error) error {
	if err := d.gpu.Lock(); err != nil {
		return err
	}
	defer d.gpu.Unlock()
	return fn()
}

// Alloc returns n bytes, aligned to 256, with undefined content. It gives out freed memory again when the queues no longer use it.
func (d *Device) Alloc(n int) (tensor.Ptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.refuse("alloc", "takes more memory than in the runs before"); err != nil {
		return nil, err
	}
	var p cuda.Ptr
	err := d.locked(func() (err error) {
		compute := d.queues[computeQueue].stream
		if p, err = d.pool.Alloc(compute, n); err != nil {
			return err
		}
		if err := d.ready.Record(compute); err != nil {
			return err
		}
		return d.queues[copyQueue].stream.Wait(d.ready)
	})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", d, err)
	}
	ptr := hostPtr(p)
	known.add(span{lo: uintptr(p), hi: uintptr(p) + uintptr(max(n, 1)), dev: d, owned: true})
	return ptr, nil
}

// Free returns memory that Alloc gave. What was launched on the queues before may still use it. Freeing memory of a closed
// device does nothing.
func (d *Device) Free(p tensor.Ptr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !known.remove(p, d) { // under the lock: Close must find the memory either here or in the pool
		return
	}
	d.noteFailure("free", d.locked(func() error { return d.release(p) }))
}

func (d *Device) release(p tensor.Ptr) error {
	if err := d.pool.Use(devPtr(p), d.queues[copyQueue].stream); err != nil {
		return err
	}
	return d.pool.Free(devPtr(p))
}

func (d *Device) syncStreams() error {
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.stream.Sync())
	}
	return errors.Join(errs...)
}

// fail returns the panic value or error for an error of op. If a kernel failed after its launch, the device cannot be used any more: all
// later calls get this error.
func (d *Device) fail(op string, err error) *tensor.Failure {
	f := &tensor.Failure{Op: op, Err: fmt.Errorf("%v: %w", d, err)}
	var e *cuda.Error
	if errors.As(err, &e) && len(e.Launches) > 0 && !d.failed.CompareAndSwap(nil, f) {
		return d.failed.Load()
	}
	return f
}

// noteFailure is fail, for callers that cannot return the error.
func (d *Device) noteFailure(op string, err error) {
	if err != nil {
		d.fail(op, err)
	}
}

// failure returns the error after which the device cannot be used any more, or nil.
func (d *Device) failure() error {
	if f := d.failed.Load(); f != nil {
		return f
	}
	return nil
}

// closeGraphs closes the captured steps, because their memory is freed.
func (d *Device) closeGraphs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.noteFailure("free", d.locked(func() error {
		var errs []error
		for _, g := range d.graphs {
			errs = append(errs, g.close())
		}
		d.graphs = nil
		return errors.Join(errs...)
	}))
}

// Close waits for the queues and frees the device's memory. Tensors on the device must not be used afterwards. If the device failed before,
// it returns that error.
func (d *Device) Close() error {
	d.ahead.close()
	d.closeGraphs()
	for _, p := range known.removeAll(d) {
		d.mu.Lock()
		d.noteFailure("free", d.locked(func() error { return d.release(p) }))
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.locked(func() error {
		err := errors.Join(d.syncStreams(), d.hosts.close())
		err = errors.Join(err, d.blas.Close(), d.pool.Close(), d.bad.Close(), d.ready.Close())
		for _, q := range d.queues {
			err = errors.Join(err, q.close())
		}
		return err
	})
	if failed := d.failure(); failed != nil {
		return failed
	}
	return err
}

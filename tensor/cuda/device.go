package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/tensor"
)

// The numbers of a device's queues.
const (
	computeQueue = iota
	copyQueue
	numQueues
)

var queueNames = [numQueues]string{"compute", "copy"}

// Device is a GPU as a rank uses it: queues, memory and counts of its own. Several Devices may share one GPU.
type Device struct {
	gpu    *cuda.Device
	sms    int // multiprocessors
	queues [numQueues]*Queue
	pool   *cuda.Pool
	blas   *blas.Handle
	use    tensor.Memory
	funcs  []*cuda.Func // of kernels, by number; nil: not compiled yet
	failed atomic.Pointer[tensor.Failure]
	poll   func()
	bad    *cuda.Host // a word where kernels note an index out of range

	recorded atomic.Pointer[recording] // nil: no graph is being made

	mu     sync.Mutex
	closed bool
	graphs []*graph
	ready  *cuda.Event // in Alloc
	hosts  hosts

	plain bool // no kernels on tensor cores: for tests
}

// NewDevice opens the GPU with the given index, as CUDA counts them (CUDA_VISIBLE_DEVICES). The error says in one sentence
// what is missing and how to get it. Close the device when it is no longer used.
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
	d := &Device{gpu: gpu, funcs: make([]*cuda.Func, len(kernels)), hosts: hosts{inUse: map[tensor.Ptr]*cuda.Host{}}}
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

// GPU returns the device as the driver knows it.
func (d *Device) GPU() *cuda.Device { return d.gpu }

// Kernels returns the table of what the device can compute.
func (d *Device) Kernels() *tensor.Table { return &table }

// Memory returns what counts the memory of tensors on the device.
func (d *Device) Memory() *tensor.Memory { return &d.use }

// Queue returns the k-th queue, a stream: 0 computes, 1 copies.
func (d *Device) Queue(k int) tensor.Queue { return d.queues[k] }

// SetPoll sets what tapes on the device call once a node, so that communication goes on while the host is busy.
func (d *Device) SetPoll(fn func()) { d.poll = fn }

// Poll calls the function of SetPoll, but in a step that is captured: nothing may be asked of the driver then.
func (d *Device) Poll() {
	if d.poll != nil && d.recorded.Load() == nil {
		d.poll()
	}
}

// Bind binds the calling goroutine to its OS thread, until Unbind or its end, and makes the device's context current there, in
// place of the one that was. Launches do it where it is needed; package dist does it for each rank.
func (d *Device) Bind() error {
	runtime.LockOSThread()
	d.gpu.Unlock() // takes the context away that was current
	return d.gpu.Lock()
}

// Unbind undoes Bind: the thread has no context then.
func (d *Device) Unbind() { d.gpu.Unlock() }

// locked runs fn with the device's context current, on any goroutine.
func (d *Device) locked(fn func() error) error {
	if err := d.gpu.Lock(); err != nil {
		return err
	}
	defer d.gpu.Unlock()
	return fn()
}

// Alloc returns n bytes, aligned to 256, with any content. Memory that was freed before is given out again once the queues
// are past its use.
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
	memory.add(span{lo: uintptr(p), hi: uintptr(p) + uintptr(max(n, 1)), dev: d, owned: true})
	return ptr, nil
}

// Free returns memory that Alloc gave. What was launched on the queues before may still use it. Freeing memory of a closed
// device does nothing.
func (d *Device) Free(p tensor.Ptr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !memory.remove(p, d) { // under the lock: Close must not miss what is between there and the pool
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

// fail returns what to panic with, or to return, for an error of op. That of a kernel which failed after its launch makes the
// device useless and is the answer to everything that follows.
func (d *Device) fail(op string, err error) *tensor.Failure {
	f := &tensor.Failure{Op: op, Err: fmt.Errorf("%v: %w", d, err)}
	var e *cuda.Error
	if errors.As(err, &e) && len(e.Launches) > 0 && !d.failed.CompareAndSwap(nil, f) {
		return d.failed.Load()
	}
	return f
}

// noteFailure is fail for an error that nobody takes.
func (d *Device) noteFailure(op string, err error) {
	if err != nil {
		d.fail(op, err)
	}
}

// failure returns what made the device useless.
func (d *Device) failure() error {
	if f := d.failed.Load(); f != nil {
		return f
	}
	return nil
}

// closeGraphs makes captured steps useless, as the memory goes that they use.
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

// Close waits for the queues and returns the device's memory. Tensors on the device must not be used afterwards. The error
// is the one that made the device useless, if one did.
func (d *Device) Close() error {
	d.closeGraphs()
	for _, p := range memory.removeAll(d) {
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

package tensortest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const (
	queues = 2
	// firstAddress is the first address of a Remote. No process has memory at such high addresses: an access is a fault.
	firstAddress = 1 << 56
	guardBytes   = 1 << 12 // between two pieces of memory
)

// Remote is a device with its own memory: Host is false. Its addresses cannot be accessed, and are never given out twice. Its kernels are
// the CPU's, run on the real memory by a goroutine for each queue: in order, but later, after delays that depend on a seed. A kernel or
// copy that accesses memory outside of its operands, or freed memory, is an error of the queue's next Sync.
type Remote struct {
	queues [queues]*remoteQueue
	table  tensor.Table
	use    memory.Counter
	poll   func()
	close  func()

	mu    sync.Mutex
	next  uintptr
	mem   []region // by address
	count Counts
}

// region is a piece of memory.
type region struct {
	at    uintptr
	bytes int
	true  tensor.Ptr // the real address
}

// Counter is a device that counts calls.
type Counter interface {
	// Counts returns what the device was asked for since the last call.
	Counts() Counts
}

// Counts are the calls of a device.
type Counts struct {
	Launches int // kernels
	Linears  int // of these, of OpLinears
	Up, Down int // copies from and to host memory
	Within   int // copies within the device
	Syncs    int // of queues
	Waits    int // for marks, by the host
}

// NewRemote makes a Remote. At the end of the test it is closed; the test fails if no Sync returned an error that happened.
func NewRemote(t testing.TB, seed uint64) *Remote {
	d := &Remote{next: firstAddress}
	source := cpu.New(1).Kernels()
	for op := range source {
		for dt, k := range source[op] {
			if k != nil {
				d.table[op][dt] = d.launcher(k)
			}
		}
	}
	for dt, k := range source[tensor.OpMatMul] {
		if k != nil {
			d.table[tensor.OpLinears][dt] = d.launcher(linears(k))
		}
	}
	for i := range d.queues {
		d.queues[i] = newRemoteQueue(d, seed*queues+uint64(i))
	}
	d.close = sync.OnceFunc(func() {
		for _, q := range d.queues {
			if err := q.Sync(); err != nil {
				t.Errorf("%v: nobody saw the error: %v", d, err)
			}
			q.close()
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mem = nil
	})
	t.Cleanup(d.close)
	return d
}

// linears computes OpLinears as one product for each layer, by kernel k of OpMatMul.
func linears(k tensor.Kernel) tensor.Kernel {
	return func(q tensor.Queue, a *tensor.Args) {
		one, s := *a, &a.Stride
		one.Dim[0] = 1
		for layer := range a.Dim[0] {
			for i, stride := range []int{s[0][0], s[1][0], s[2][0], s[0][2]}[:a.N] {
				one.X[i], one.Len[i] = unsafe.Add(a.X[i], layer*stride*a.DType.Size()), a.Len[i]-layer*stride
			}
			k(q, &one)
		}
	}
}

// Close runs what was launched and frees all memory. The end of the test calls it, too.
func (d *Remote) Close() { d.close() }

// Remotes returns a function that makes a Remote for each rank, for dist.Config.Device.
func Remotes(t testing.TB) func(local, threads int) (tensor.Device, error) {
	var seed atomic.Uint64
	return func(int, int) (tensor.Device, error) { return NewRemote(t, seed.Add(1)), nil }
}

// Counts returns what the device was asked for since the last call.
func (d *Remote) Counts() Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.count
	d.count = Counts{}
	return c
}

func (d *Remote) counting(f func(c *Counts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.count)
}

// String returns "remote".
func (d *Remote) String() string { return "remote" }

// Host returns false.
func (d *Remote) Host() bool { return false }

// Kernels returns the CPU's kernels, which run on the device's memory.
func (d *Remote) Kernels() *tensor.Table { return &d.table }

// Memory returns the counter of the device's memory.
func (d *Remote) Memory() *memory.Counter { return &d.use }

// Queue returns one of two queues.
func (d *Remote) Queue(k int) tensor.Queue { return d.queues[k] }

// SetPoll sets the function of Poll.
func (d *Remote) SetPoll(fn func()) { d.poll = fn }

// Poll calls the function of SetPoll.
func (d *Remote) Poll() {
	if d.poll != nil {
		d.poll()
	}
}

// Alloc returns addresses that cannot be accessed, for memory that is NaN.
func (d *Remote) Alloc(n int) (tensor.Ptr, error) {
	buf := make([]uint64, n/8+8)
	for i := range buf {
		buf[i] = 1<<64 - 1
	}
	at := unsafe.Pointer(unsafe.SliceData(buf))
	at = unsafe.Add(at, int(-uintptr(at)&63))
	d.mu.Lock()
	defer d.mu.Unlock()
	r := region{d.next, n, at}
	d.next += (uintptr(n)+63)&^63 + guardBytes
	d.mem = append(d.mem, r)
	return address(r.at), nil
}

func address(p uintptr) tensor.Ptr { return unsafe.Add(tensor.Ptr(nil), p) }

// Free frees memory when the queues have done what was launched before.
func (d *Remote) Free(p tensor.Ptr) {
	var marks []uint64
	for _, q := range d.queues {
		marks = append(marks, q.Mark().Seq)
	}
	d.queues[0].push(func() error {
		for i, q := range d.queues[1:] {
			q.wait(marks[i+1])
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		i, ok := d.find(uintptr(p))
		if !ok || d.mem[i].at != uintptr(p) {
			return fmt.Errorf("%v: Free of %#x, which Alloc did not give", d, uintptr(p))
		}
		d.mem = slices.Delete(d.mem, i, i+1)
		return nil
	})
}

// find returns the index of the region that contains p.
func (d *Remote) find(p uintptr) (int, bool) {
	i, ok := slices.BinarySearchFunc(d.mem, p, func(r region, p uintptr) int { return int(r.at) - int(p) })
	if !ok {
		i--
	}
	return i, i >= 0 && p <= d.mem[i].at+uintptr(d.mem[i].bytes)
}

// mine reports whether p is an address of a Remote.
func mine(p tensor.Ptr) bool { return uintptr(p) >= firstAddress && uintptr(p) < 2*firstAddress }

// locate returns the real address of n bytes at p.
func (d *Remote) locate(p tensor.Ptr, n int) (tensor.Ptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, ok := d.find(uintptr(p))
	if !ok {
		return nil, fmt.Errorf("%#x is not memory of the device: another's, freed, or never allocated", uintptr(p))
	}
	r := d.mem[i]
	off := int(uintptr(p) - r.at)
	if off+n > r.bytes {
		return nil, fmt.Errorf("%d bytes at %#x: only %d are there", n, uintptr(p), r.bytes-off)
	}
	return unsafe.Add(r.true, off), nil
}

// Copy queues a copy of n bytes.
func (d *Remote) Copy(dst, src tensor.Ptr, n int, q tensor.Queue) {
	to, from := mine(dst), mine(src)
	d.counting(func(c *Counts) {
		switch {
		case to && from:
			c.Within++
		case to:
			c.Up++
		default:
			c.Down++
		}
	})
	q.(*remoteQueue).push(func() (err error) {
		if to {
			dst, err = d.locate(dst, n)
		}
		if from && err == nil {
			src, err = d.locate(src, n)
		}
		if err != nil {
			return fmt.Errorf("copy: %w", err)
		}
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
		return nil
	})
}

// AllocHost returns host memory.
func (d *Remote) AllocHost(n int) (tensor.Ptr, error) {
	buf := make([]uint64, n/8+8)
	at := unsafe.Pointer(unsafe.SliceData(buf))
	return unsafe.Add(at, int(-uintptr(at)&63)), nil
}

// FreeHost does nothing: it is Go memory.
func (d *Remote) FreeHost(tensor.Ptr) {}

// launcher makes a kernel that runs k later, on the real memory.
func (d *Remote) launcher(k tensor.Kernel) tensor.Kernel {
	return func(queue tensor.Queue, a *tensor.Args) {
		q, later := queue.(*remoteQueue), *a
		later.List, later.ListLen = slices.Clone(a.List), slices.Clone(a.ListLen)
		d.counting(func(c *Counts) {
			c.Launches++
			if a.Op == tensor.OpLinears {
				c.Linears++
			}
		})
		q.push(func() error {
			if err := d.translate(&later); err != nil {
				return fmt.Errorf("%v: %w", later.Op, err)
			}
			if err := checkIndices(&later); err != nil {
				return fmt.Errorf("%v: %w", later.Op, err)
			}
			k(q.cpu.Queue(0), &later)
			return nil
		})
	}
}

// translate replaces the operands' addresses by the real ones.
func (d *Remote) translate(a *tensor.Args) (err error) {
	for i := range a.N {
		if a.X[i] == nil {
			continue
		}
		if a.X[i], err = d.locate(a.X[i], a.Len[i]*a.DT[i].Size()); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
	}
	for i, p := range a.List {
		if p == nil {
			continue
		}
		n := a.ListLen[i/(len(a.List)/len(a.ListLen))] * a.DType.Size()
		if a.List[i], err = d.locate(p, n); err != nil {
			return fmt.Errorf("tensor %d of the list: %w", i, err)
		}
	}
	return nil
}

// checkIndices checks that indices are in range, as a device's kernels must.
func checkIndices(a *tensor.Args) error {
	in := func(operand, n int, but int64) error {
		for i, v := range tensor.Operand[int64](a, operand) {
			if v != but && (v < 0 || v >= int64(n)) {
				return fmt.Errorf("index %d is %d, not in [0,%d)", i, v, n)
			}
		}
		return nil
	}
	switch a.Op {
	case ops.OpEmbedding:
		return in(2, a.Len[1]/max(a.Dim[1], 1), -1<<63)
	case ops.OpEmbeddingGrad:
		return in(2, a.Len[0]/max(a.Dim[1], 1), -1<<63)
	case ops.OpGather, ops.OpScatterAdd:
		return in(2, a.Dim[1], -1<<63)
	case ops.OpOneHot:
		return in(1, a.Dim[1], -1<<63)
	case ops.OpBincount:
		return in(1, a.Len[0], -1<<63)
	case ops.OpCrossEntropy:
		return in(3, a.Dim[1], int64(a.I[0]))
	case ops.OpCrossEntropyGrad:
		return in(3, a.Dim[1], int64(a.I[0]))
	}
	return nil
}

package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Dim is a number of blocks or threads in x, y and z. Zero counts as one.
type Dim struct{ X, Y, Z int }

// Func is a kernel.
type Func struct {
	Name   string
	dev    *Device
	handle uintptr
}

// SetShared allows launches with up to n bytes of dynamic shared memory; otherwise
// the limit is 48 KiB. The device's own limit is MaxSharedPerBlockMax.
func (f *Func) SetShared(n int) error {
	const maxDynamicSharedSize = 8
	r := dl.Call(f.dev.drv.fn.FuncSetAttribute, f.handle, maxDynamicSharedSize, uintptr(n))
	return f.check("cuFuncSetAttribute", r)
}

func (f *Func) check(call string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	return f.dev.fail(fmt.Sprintf("%s(%s)", call, f.Name), int(int32(r)))
}

// Args holds the parameters of a kernel launch, in the order and with the exact
// types of the kernel's declaration. A launch copies them, so an Args can be used
// for any number of launches, one after the other, without allocating.
type Args struct {
	n    int
	used int
	ptrs [maxArgs + 1]unsafe.Pointer // those from n on are nil, so that a missing parameter is never an old one
	buf  [maxArgBytes]byte
}

// CUDA allows 4 KiB of parameters on every architecture.
const (
	maxArgs     = 64
	maxArgBytes = 4096
)

// NewArgs makes an empty list of parameters.
func NewArgs() *Args { return new(Args) }

// Reset empties the list.
func (a *Args) Reset() *Args {
	clear(a.ptrs[:a.n])
	a.n, a.used = 0, 0
	return a
}

// add reserves n bytes and returns their address.
func (a *Args) add(n, align int) unsafe.Pointer {
	at := (a.used + align - 1) &^ (align - 1)
	if a.n == maxArgs || at+n > maxArgBytes {
		panic(fmt.Sprintf("cuda: a kernel takes at most %d parameters of %d bytes together", maxArgs, maxArgBytes))
	}
	p := unsafe.Pointer(&a.buf[at])
	a.ptrs[a.n], a.used = p, at+n
	a.n++
	return p
}

// Ptr adds a pointer to device memory.
func (a *Args) Ptr(p Ptr) *Args { return a.U64(uint64(p)) }

// I32 adds an int.
func (a *Args) I32(v int) *Args {
	if int(int32(v)) != v {
		panic(fmt.Sprintf("cuda: %d does not fit an int parameter", v))
	}
	*(*int32)(a.add(4, 4)) = int32(v)
	return a
}

// U32 adds an unsigned.
func (a *Args) U32(v uint32) *Args { *(*uint32)(a.add(4, 4)) = v; return a }

// I64 adds a long long.
func (a *Args) I64(v int64) *Args { return a.U64(uint64(v)) }

// U64 adds an unsigned long long or a size_t.
func (a *Args) U64(v uint64) *Args { *(*uint64)(a.add(8, 8)) = v; return a }

// F32 adds a float.
func (a *Args) F32(v float32) *Args { return a.U32(math.Float32bits(v)) }

// F64 adds a double.
func (a *Args) F64(v float64) *Args { return a.U64(math.Float64bits(v)) }

// Struct adds a struct passed by value: n bytes from p, with C's layout.
func (a *Args) Struct(p unsafe.Pointer, n int) *Args {
	copy(unsafe.Slice((*byte)(a.add(n, 16)), n), unsafe.Slice((*byte)(p), n))
	return a
}

// Launch queues a kernel on the stream. The stream's context must be current on the
// thread (Device.Lock). It does not allocate.
func (s *Stream) Launch(f *Func, grid, block Dim, shared int, a *Args) error {
	s.dev.stats.launches.Add(1)
	s.dev.recent.add(f)
	r := dl.Call12(s.dev.drv.fn.LaunchKernel, f.handle,
		uintptr(max(grid.X, 1)), uintptr(max(grid.Y, 1)), uintptr(max(grid.Z, 1)),
		uintptr(max(block.X, 1)), uintptr(max(block.Y, 1)), uintptr(max(block.Z, 1)),
		uintptr(shared), s.handle, uintptr(unsafe.Pointer(&a.ptrs[0])), 0, 0)
	if int32(r) != 0 {
		return f.check(fmt.Sprintf("cuLaunchKernel[grid %v block %v shared %d]", grid, block, shared), r)
	}
	return s.launched(f)
}

// Note records that another library queued work on the stream; f has a name for it.
// Like a launch, the work is counted, listed in errors and, in debug mode, waited
// for.
func (s *Stream) Note(f *Func) error {
	s.dev.stats.launches.Add(1)
	s.dev.recent.add(f)
	return s.launched(f)
}

func (s *Stream) launched(f *Func) error {
	if !s.debug || s.capturing {
		return nil
	}
	if r := dl.Call(s.dev.drv.fn.StreamSynchronize, s.handle); int32(r) != 0 {
		return s.dev.fail("cuStreamSynchronize after the launch("+f.Name+")", int(int32(r)))
	}
	return nil
}

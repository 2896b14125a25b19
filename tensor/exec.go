package tensor

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/trace"
)

// debugMode is set by RINGO_DEBUG=1. It fills new and freed step memory with NaN, and runs each kernel against the reference.
var debugMode = os.Getenv("RINGO_DEBUG") == "1"

// Exec launches kernels on a device. All launches go through it, so it traces them, and checks them in debug mode. A Tape is an Exec;
// optimizers have their own.
type Exec struct {
	dev   Device
	q     Queue
	table *Table
	a     Args
	spans *trace.Recorder
	phase string                     // the phase of launches outside any open phase
	check func(Kernel, Queue, *Args) // in debug mode

	grapher Grapher // the device, if it is one
}

// NewExec returns an Exec for dev's computing queue.
func NewExec(dev Device) *Exec {
	e := &Exec{}
	e.init(dev)
	return e
}

func (e *Exec) init(dev Device) {
	e.dev, e.q, e.table = dev, dev.Queue(0), dev.Kernels()
	e.grapher, _ = dev.(Grapher)
	if c, ok := dev.(Checker); ok && debugMode && dev.Host() {
		e.check = c.Checked()
	}
}

// Trace records a span on r for each kernel that e launches.
func (e *Exec) Trace(r *trace.Recorder) { e.spans = r }

// Device returns the device.
func (e *Exec) Device() Device { return e.dev }

// Args returns the empty argument block for a launch of op on elements of dtype. Add the outputs first. Operands from N on and strides are
// undefined: an operation that reads strides must set them.
func (e *Exec) Args(op Op, dtype DType) *Args {
	a := &e.a
	a.Op, a.DType, a.Outs, a.N, a.NDim, a.Key = op, dtype, 0, 0, 0, 0
	a.Dim = [MaxNDim]int{} // one assignment to all three would make copies
	a.I = [8]int{}
	a.F = [8]float64{}
	a.List, a.ListLen = a.List[:0], a.ListLen[:0]
	return a
}

// Out adds x, which must be contiguous, as an output.
func (a *Args) Out(x Tensor) *Args {
	a.Outs++
	return a.addPacked(x, true)
}

// In adds x, which must be contiguous, as an input. Reshape makes a contiguous copy of a view with gaps, also to the same shape.
func (a *Args) In(x Tensor) *Args { return a.addPacked(x, false) }

func (a *Args) addPacked(x Tensor, write bool) *Args {
	h := x.hdr()
	if h.ld != 0 {
		fail(a.Op.String(), these(h), "not contiguous")
	}
	return a.add(h, write)
}

// None adds an absent operand.
func (a *Args) None() *Args {
	a.X[a.N], a.Len[a.N] = nil, 0
	a.N++
	return a
}

func (a *Args) out(h *header) *Args {
	a.Outs++
	return a.add(h, true)
}

func (a *Args) in(h *header) *Args { return a.add(h, false) }

// add adds an operand. It waits if it still arrives.
func (a *Args) add(h *header, write bool) *Args {
	s, i := h.st, a.N
	if s == nil || s.ptr == nil || s.numPending > 0 {
		h.mustBeFree(a.Op.String(), h.ptr(), write)
		s = h.st
	}
	a.X[i], a.Len[i], a.DT[i] = unsafe.Add(s.ptr, h.off), h.n, h.dtype
	if h.ld != 0 {
		a.Len[i] = h.span()
	}
	a.N++
	return a
}

// Has reports whether the device has a kernel of op for elements of dtype.
func (e *Exec) Has(op Op, dtype DType) bool { return e.table[op][dtype] != nil }

// Launch runs the kernel that Args prepared.
func (e *Exec) Launch() {
	a := &e.a
	k := e.table[a.Op][a.DType]
	if k == nil {
		e.noKernel()
	}
	if r := e.Recording(); r != nil && r.launch(e, k) {
		return
	}
	if e.check == nil && e.spans == nil {
		k(e.q, a)
		return
	}
	if e.phase != "" {
		e.spans.During(e.phase)
	}
	start := e.spans.Now()
	if e.check != nil {
		e.check(k, e.q, a)
	} else {
		k(e.q, a)
	}
	if e.spans != nil {
		e.spans.Add(trace.Span{Name: a.Op.String(), Track: trace.Compute, Start: start, End: e.spans.Now(), Arg: int64(a.Len[0])})
	}
}

// Fill sets all elements of x to v.
func (e *Exec) Fill(x Tensor, v float64) {
	if x.Len() > 0 {
		e.Args(OpFill, x.DType()).Out(x).F[0] = v
		e.Launch()
	}
}

// Cast copies src to dst, which may have another type of floats.
func (e *Exec) Cast(dst, src Tensor) {
	if src.Len() > 0 {
		e.Args(OpCast, src.DType()).Out(dst).In(src)
		e.Launch()
	}
}

func (e *Exec) noKernel() {
	a := &e.a
	f := &Failure{Op: a.Op.String(), Err: fmt.Errorf("%v has no kernel for %v", e.dev, a.DType)}
	for i := range a.N {
		f.Shapes = append(f.Shapes, Shape{a.DT[i], []int{a.Len[i]}})
	}
	panic(f)
}

// Operand returns operand i of a launch on the CPU as a slice; nil for an absent one.
func Operand[T Elem](a *Args, i int) []T {
	return unsafe.Slice((*T)(a.X[i]), a.Len[i])
}

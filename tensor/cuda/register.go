package cuda

import (
	"fmt"
	"sync/atomic"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// Source is the CUDA C++ kernel of a registered operation. The device's NVRTC compiles it for an element type when it is first needed. The
// code is cached on disk like that of other kernels.
//
// The text is compiled after kernels/tensor.cuh. The element type is T; elements are computed in W: float for 16-bit floats, else T.
// widen(x) converts T to W, and narrow<T>(w) rounds it back. first_item() and all_threads() are the first item and the step of a loop over
// all items (see [Launch.Spread]). 64-bit integers are i64 and u64. There are no other headers.
type Source struct {
	File   string         // name of the text in the compiler's messages, such as "cube.cu"
	Text   string         // declares the kernel extern "C" __global__
	Kernel string         // its name
	Types  []tensor.DType // the element types that it is for
	// Launch adds the kernel's parameters in their order, then launches it.
	Launch func(l Launch, a *tensor.Args)
}

// opened is set when a device was opened: then no kernel may be added.
var opened atomic.Bool

// Register gives an operation of [tensor.Register] its kernel for CUDA devices. Call it from an init function or a package variable, before
// a device is opened. If an operation has no kernel, its use on a CUDA device is an error that names the operation and the type.
func Register(op tensor.Op, s Source) {
	refuse := func(format string, a ...any) {
		panic(&tensor.Failure{Op: "cuda.Register", Err: fmt.Errorf("%v: "+format, append([]any{op}, a...)...)})
	}
	switch {
	case op < tensor.BuiltinOps:
		refuse("is built in")
	case opened.Load():
		refuse("a device is open already; call Register from an init function")
	case s.File == "" || s.Text == "" || s.Kernel == "" || len(s.Types) == 0 || s.Launch == nil:
		refuse("a field of Source is missing")
	}
	for _, d := range s.Types {
		if table[op][d] != nil {
			refuse("has a kernel for %v already", d)
		}
		k := newKernel(s.File, s.Kernel, elems[d])
		k.text = s.Text
		table[op][d] = cell(k, func(q *Queue, k *kernel, a *tensor.Args) { s.Launch(Launch{q, k, a.DType}, a) })
	}
}

// Launch is a launch of a registered kernel. Its methods add parameters, in the kernel's order.
type Launch struct {
	q *Queue
	k *kernel
	d tensor.DType
}

// Operands adds the addresses of the first n operands of a, outputs first, as pointers; an absent operand is null.
func (l Launch) Operands(a *tensor.Args, n int) Launch {
	l.q.ptrs(a, n)
	return l
}

// Int adds an i64.
func (l Launch) Int(v int) Launch {
	l.q.i64(v)
	return l
}

// Float adds a W; the element type must be a float.
func (l Launch) Float(v float64) Launch {
	l.q.wide(l.d, v)
	return l
}

// Spread launches the kernel for n items, in blocks of 256 threads. There may be fewer threads than items, so the kernel must loop:
//
//	for (i64 i = first_item(); i < n; i += all_threads())
func (l Launch) Spread(n int) { l.q.spread(l.k, n) }

// Grid launches blocks of the given number of threads, with shared bytes of dynamic shared memory.
func (l Launch) Grid(blocks, threads, shared int) {
	if blocks > 0 {
		l.q.run(l.k, cuda.Dim{X: blocks}, cuda.Dim{X: threads}, shared)
	}
}

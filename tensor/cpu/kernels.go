package cpu

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
)

// Part computes items lo to hi of a kernel's work, on one of the device's threads.
type Part func(q *Queue, a *tensor.Args, lo, hi, thread int)

// grainElems is the least number of elements for which it pays to wake a thread.
const grainElems = 1 << 14

// spread makes a kernel that divides count(a) items, of cost(a) elements each, over the pool.
func spread(count, cost func(a *tensor.Args) int, align int, fn Part) tensor.Kernel {
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*Queue)
		c.pool.run(c, a, count(a), (c.pool.grain-1)/max(cost(a), 1)+1, align, fn)
	}
}

// Parallel makes a CPU kernel that divides count(a) items of work over the device's threads. An item costs about cost(a) element
// operations; fn computes items lo to hi. The result must not depend on where the work is cut.
func Parallel(count, cost func(a *tensor.Args) int, fn func(a *tensor.Args, lo, hi int)) tensor.Kernel {
	return spread(count, cost, 1, func(_ *Queue, a *tensor.Args, lo, hi, _ int) { fn(a, lo, hi) })
}

func one(*tensor.Args) int      { return 1 }
func outLen(a *tensor.Args) int { return a.Len[0] }
func dim0(a *tensor.Args) int   { return a.Dim[0] }
func dim1(a *tensor.Args) int   { return a.Dim[1] }

// kernels are those of an operation.
type kernels = [tensor.NumDTypes]tensor.Kernel

func floats(f32, f64 tensor.Kernel) (k kernels) {
	k[tensor.Float32], k[tensor.Float64] = f32, f64
	return k
}

func numbers(f32, f64, i32, i64, u8 tensor.Kernel) (k kernels) {
	k[tensor.Float32], k[tensor.Float64], k[tensor.Int32], k[tensor.Int64], k[tensor.Uint8] = f32, f64, i32, i64, u8
	return k
}

// BySize returns kernels that only move elements, by the bytes of an element, for all types.
func BySize(b1, b2, b4, b8 tensor.Kernel) (k kernels) {
	for d := range tensor.DType(tensor.NumDTypes) {
		k[d] = map[int]tensor.Kernel{1: b1, 2: b2, 4: b4, 8: b8}[d.Size()]
	}
	return k
}

// slice is [tensor.Operand] for kernels that only move elements, of any type.
func slice[T any](a *tensor.Args, i int) []T {
	return unsafe.Slice((*T)(a.X[i]), a.Len[i])
}

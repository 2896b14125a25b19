package tensor

// Part computes items lo to hi of a kernel's work, on one of the device's threads.
type Part func(q *CPUQueue, a *Args, lo, hi, thread int)

// grainElems is the least number of elements for which it pays to wake a thread.
const grainElems = 1 << 14

// spread makes a kernel that divides count(a) items, of cost(a) elements each, over the pool.
func spread(count, cost func(a *Args) int, align int, fn Part) Kernel {
	return func(q Queue, a *Args) {
		c := q.(*CPUQueue)
		c.pool.run(c, a, count(a), (c.pool.grain-1)/max(cost(a), 1)+1, align, fn)
	}
}

// Parallel makes a CPU kernel that divides count(a) items of work over the device's threads. An item costs about cost(a) element
// operations; fn computes items lo to hi. The result must not depend on where the work is cut.
func Parallel(count, cost func(a *Args) int, fn func(a *Args, lo, hi int)) Kernel {
	return spread(count, cost, 1, func(_ *CPUQueue, a *Args, lo, hi, _ int) { fn(a, lo, hi) })
}

func one(*Args) int      { return 1 }
func outLen(a *Args) int { return a.Len[0] }
func dim0(a *Args) int   { return a.Dim[0] }
func dim1(a *Args) int   { return a.Dim[1] }

func floats(f32, f64 Kernel) (k [NumDTypes]Kernel) {
	k[Float32], k[Float64] = f32, f64
	return k
}

func numbers(f32, f64, i32, i64, u8 Kernel) (k [NumDTypes]Kernel) {
	k[Float32], k[Float64], k[Int32], k[Int64], k[Uint8] = f32, f64, i32, i64, u8
	return k
}

// bySize serves kernels that only move elements.
func bySize(b1, b2, b4, b8 Kernel) (k [NumDTypes]Kernel) {
	for d := range DType(NumDTypes) {
		k[d] = map[int]Kernel{1: b1, 2: b2, 4: b4, 8: b8}[d.Size()]
	}
	return k
}

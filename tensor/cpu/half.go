package cpu

import (
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// halfChunk is how many elements of 16-bit operands are widened at a time. They and the results stay in the L1 cache.
const halfChunk = 1024

// threadChunks is the number of chunks of a thread: of two operands and a result.
const threadChunks = 3

// chunk returns room for halfChunk elements: the thread's chunk i.
func (q *Queue) chunk(thread, i int) []float32 {
	at := (threadChunks*thread + i) * halfChunk
	return q.chunks[at : at+halfChunk]
}

// inChunks makes a kernel for 16-bit floats from a part function that works on chunks of the count(a) elements.
func inChunks(count func(a *tensor.Args) int, fn Part) tensor.Kernel {
	return withChunks(spread(count, one, halfChunk, fn))
}

// withChunks makes a kernel that has memory for chunks.
func withChunks(k tensor.Kernel) tensor.Kernel {
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*Queue)
		if c.chunks == nil {
			c.chunks = make([]float32, threadChunks*c.pool.n*halfChunk)
		}
		k(q, a)
	}
}

// addr returns the address of element i of operand k, a 16-bit float.
func addr(a *tensor.Args, k, i int) tensor.Ptr { return unsafe.Add(a.X[k], 2*i) }

// halfMap is map1 for 16-bit floats; if two is set, map2.
func halfMap(two bool, f func(dst, x, y []float32)) tensor.Kernel {
	return inChunks(outLen, func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		for ; lo < hi; lo += halfChunk {
			n := min(halfChunk, hi-lo)
			x, y := q.chunk(thread, 0)[:n], q.chunk(thread, 1)[:n]
			widen(x, addr(a, 1, lo), a.DType)
			if two {
				widen(y, addr(a, 2, lo), a.DType)
			}
			f(x, x, y)
			narrow(addr(a, 0, lo), x, a.DType)
		}
	})
}

// zipHalf is Zip for 16-bit floats.
func zipHalf(f func(dst, x, y []float32)) tensor.Kernel {
	return withChunks(spread(stridedItems, stridedCost, 1, func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		if a.NDim == 1 {
			q.zipLine(a, thread, [3]int{lo * a.Stride[0][0], lo * a.Stride[1][0], lo * a.Stride[2][0]}, hi-lo, f)
			return
		}
		for i := lo; i < hi; i++ {
			q.zipLine(a, thread, offsets(a, i), a.Dim[a.NDim-1], f)
		}
	}))
}

// zipLine applies f to n elements of the operands from offsets o on, along the last dimension.
func (q *Queue) zipLine(a *tensor.Args, thread int, o [3]int, n int, f func(dst, x, y []float32)) {
	dst := q.chunk(thread, 2)
	for at := 0; at < n; at += halfChunk {
		m := min(halfChunk, n-at)
		f(dst[:m], q.widenLine(a, thread, 1, o[1], at, m), q.widenLine(a, thread, 2, o[2], at, m))
		narrow(addr(a, 0, o[0]+at), dst[:m], a.DType)
	}
}

// widenLine widens n elements of operand i, 1 or 2, of a line that begins at offset off: those from at on, or the one that is repeated.
func (q *Queue) widenLine(a *tensor.Args, thread, i, off, at, n int) []float32 {
	if a.Stride[i][a.NDim-1] == 0 {
		at, n = 0, 1
	}
	x := q.chunk(thread, i-1)[:n]
	widen(x, addr(a, i, off+at), a.DType)
	return x
}

// addToHalf is OpAddTo for 16-bit floats: by chunks if the operands lie one after the other.
func addToHalf() tensor.Kernel {
	others := ThroughFloat32(addToKernel[float32]())
	flat := inChunks(dim0, func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		for ; lo < hi; lo += halfChunk {
			n := min(halfChunk, hi-lo)
			x, y := q.chunk(thread, 0)[:n], q.chunk(thread, 1)[:n]
			widen(x, addr(a, 0, lo), a.DType)
			widen(y, addr(a, 1, lo), a.DType)
			kernel.Add(x, x, y)
			narrow(addr(a, 0, lo), x, a.DType)
		}
	})
	return func(q tensor.Queue, a *tensor.Args) {
		if a.NDim == 1 && a.Stride[0][0] == 1 && a.Stride[1][0] == 1 {
			flat(q, a)
		} else {
			others(q, a)
		}
	}
}

// maps1 are the kernels of f(dst, x) for all floats, and maps2 those of f(dst, x, y).
func maps1(f32 func(dst, x []float32), f64 func(dst, x []float64)) (k kernels) {
	half := halfMap(false, func(dst, x, _ []float32) { f32(dst, x) })
	k[tensor.Float32], k[tensor.Float64], k[tensor.BFloat16], k[tensor.Float16] = map1(f32), map1(f64), half, half
	return k
}

func maps2(f32 func(dst, x, y []float32), f64 func(dst, x, y []float64)) (k kernels) {
	half := halfMap(true, f32)
	k[tensor.Float32], k[tensor.Float64], k[tensor.BFloat16], k[tensor.Float16] = map2(f32), map2(f64), half, half
	return k
}

// withBF16 replaces the kernel for BFloat16 by one of its own.
func withBF16(half tensor.Kernel, k kernels) kernels {
	k[tensor.BFloat16] = half
	return k
}

// withHalf makes half the kernel of both 16-bit types.
func withHalf(k kernels, half tensor.Kernel) kernels {
	k[tensor.BFloat16], k[tensor.Float16] = half, half
	return k
}

// castHalf converts between float32 and 16-bit floats; k converts all other types.
func castHalf(k tensor.Kernel) tensor.Kernel {
	direct := spread(outLen, one, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) {
		if a.DT[0] == tensor.Float32 {
			widen(slice[float32](a, 0)[lo:hi], addr(a, 1, lo), a.DT[1])
		} else {
			narrow(addr(a, 0, lo), slice[float32](a, 1)[lo:hi], a.DT[0])
		}
	})
	return func(q tensor.Queue, a *tensor.Args) {
		if to, from := a.DT[0], a.DT[1]; to == tensor.Float32 && from.IsHalf() || from == tensor.Float32 && to.IsHalf() {
			direct(q, a)
		} else {
			k(q, a)
		}
	}
}

// mixed makes an optimizer's kernel for 16-bit parameters with float32 masters. The groups of List are those of the float32 kernel (master,
// gradient, moments), followed by the 16-bit value. The gradient has 16 bits, too. The kernel reads and writes memory only once.
func mixed(group int, step func(a *tensor.Args, i int, x [4][]float32)) tensor.Kernel {
	return inChunks(listTotal, func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		at := 0
		for i, n := range a.ListLen {
			list := a.List[i*(group+1) : (i+1)*(group+1)]
			for from, to := max(lo-at, 0), min(hi-at, n); from < to; from += halfChunk {
				m := min(halfChunk, to-from)
				var x [4][]float32
				for k := range group {
					if k != 1 && list[k] != nil {
						x[k] = unsafe.Slice((*float32)(unsafe.Add(list[k], 4*from)), m)
					}
				}
				x[1] = q.chunk(thread, 0)[:m]
				widen(x[1], unsafe.Add(list[1], 2*from), a.DType)
				step(a, i, x)
				narrow(unsafe.Add(list[group], 2*from), x[0], a.DType)
			}
			at += n
		}
	})
}

// optimizers are the kernels of a step for all floats.
func optimizers(group int, f32 func(a *tensor.Args, i int, x [4][]float32), f64 func(a *tensor.Args, i int, x [4][]float64)) (k kernels) {
	half := mixed(group, f32)
	k[tensor.Float32], k[tensor.Float64], k[tensor.BFloat16], k[tensor.Float16] = multiTensor(group, f32), multiTensor(group, f64), half, half
	return k
}

func multiTensor[T kernel.Float](group int, step func(a *tensor.Args, i int, x [4][]T)) tensor.Kernel {
	return spread(listTotal, one, 16, func(_ *Queue, a *tensor.Args, lo, hi, _ int) { eachList(a, group, lo, hi, step) })
}

// ThroughFloat32 makes a CPU kernel for 16-bit floats from the float32 one: operands are widened, and outputs are rounded once. The kernel
// widens the operands own itself.
func ThroughFloat32(k tensor.Kernel, own ...int) tensor.Kernel {
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*Queue)
		if len(a.List) > 0 {
			a.Op.Fail(nil, "cpu has no kernel for lists of %v", a.DType)
		}
		need := 0
		for i := range a.N {
			if a.DT[i].IsHalf() && a.X[i] != nil && !slices.Contains(own, i) {
				need += (a.Len[i]*4 + 63) &^ 63
			}
		}
		wide := *a
		wide.DType = tensor.Float32
		p := c.half.get(need)
		for i := range a.N {
			if a.DT[i].IsHalf() && a.X[i] != nil && !slices.Contains(own, i) {
				c.operand, c.wideAt = i, p
				c.pool.run(c, a, a.Len[i], c.pool.grain, 16, widenPart)
				wide.X[i], wide.DT[i] = p, tensor.Float32
				p = unsafe.Add(p, (a.Len[i]*4+63)&^63)
			}
		}
		c.wide = wide
		k(q, &c.wide)
		for i := range a.Outs {
			if a.DT[i].IsHalf() && a.X[i] != nil {
				c.operand, c.wideAt = i, wide.X[i]
				c.pool.run(c, a, a.Len[i], c.pool.grain, 16, narrowPart)
			}
		}
	}
}

// widenPart widens a part of q.operand to q.wideAt, and narrowPart rounds it back.
func widenPart(q *Queue, a *tensor.Args, lo, hi, _ int) {
	widen(unsafe.Slice((*float32)(unsafe.Add(q.wideAt, 4*lo)), hi-lo), addr(a, q.operand, lo), a.DT[q.operand])
}

func narrowPart(q *Queue, a *tensor.Args, lo, hi, _ int) {
	narrow(addr(a, q.operand, lo), unsafe.Slice((*float32)(unsafe.Add(q.wideAt, 4*lo)), hi-lo), a.DT[q.operand])
}

func widen(dst []float32, src tensor.Ptr, d tensor.DType) {
	if d == tensor.BFloat16 {
		kernel.BF16ToF32(dst, unsafe.Slice((*tensor.BF16)(src), len(dst)))
	} else {
		kernel.F16ToF32(dst, unsafe.Slice((*tensor.F16)(src), len(dst)))
	}
}

func narrow(dst tensor.Ptr, src []float32, d tensor.DType) {
	if d == tensor.BFloat16 {
		kernel.F32ToBF16(unsafe.Slice((*tensor.BF16)(dst), len(src)), src)
	} else {
		kernel.F32ToF16(unsafe.Slice((*tensor.F16)(dst), len(src)), src)
	}
}

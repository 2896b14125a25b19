package cuda

import (
	"math/bits"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const (
	rowPart    = 4096 // least number of elements of a row that one block sums
	rowParts   = 256  // largest number of parts of a row
	sumPart    = 128  // least number of rows in a part of a sum over rows
	sumParts   = 256
	colPart    = 256 // the same for a norm's weights
	colParts   = 64
	allParts   = 1056         // of a long line: eight blocks for each multiprocessor of an H100
	fourPacks  = 64 * threads // the bytes of four packs of each thread of a block
	colThreads = 32           // COLS and ROWS of reduce.cu
	rowThreads = 8
)

// cut says how a sum of n elements is cut into parts of equal length. It depends on n alone.
func cut(n, shortest, most int) (length, parts int) {
	if n <= shortest {
		return max(n, 1), 1
	}
	length = max(shortest, (n+most-1)/most)
	return length, (n + length - 1) / length
}

// steps is cut, but parts are multiples of step, which is also the shortest.
func steps(n, step, most int) (length, parts int) {
	length, _ = cut(n, step, most)
	length = (length + step - 1) / step * step
	return length, (n + length - 1) / length
}

// lanesFor is the number of threads, a power of two, for n elements.
func lanesFor(n int) int { return 1 << min(max(bits.Len(uint(n-1))-2, 0), 8) }

// wideSize is the size of the type in which elements of type d are computed.
func wideSize(d tensor.DType) int {
	if d.IsHalf() {
		return 4
	}
	return d.Size()
}

// sums are the kernels of a sum in one type: of one pass, or of two, which sum parts and then the parts' sums.
type sums struct{ once, parts, ends, part *kernel }

func newSums(direction string, d tensor.DType) sums {
	of := func(what string) *kernel { return newKernel("reduce.cu", "sum_"+direction+what, elems[d]) }
	return sums{of("s"), of("_parts"), of("_ends"), newKernel("reduce.cu", "sum_part", elems[d])}
}

// rows sums each of `lines` lines of n elements.
func (s sums) rows(q *Queue, a *tensor.Args, y, x cuda.Ptr, lines, n int) {
	length, parts := cut(n, rowPart, rowParts)
	launch := func(k *kernel, y, x cuda.Ptr, n, length, parts int) {
		lanes, all := lanesFor(length), lines*parts
		q.args.Reset().Ptr(y).Ptr(x)
		q.i64(n).i64(length).i64(parts).i64(all).args.I32(lanes)
		q.cover(k, all*lanes)
	}
	if parts == 1 {
		launch(s.once, y, x, n, length, 1)
		return
	}
	if step := fourPacks / a.DType.Size(); n >= step {
		length, parts = steps(n, step, allParts)
		mid := q.scratch(lines * parts * wideSize(a.DType))
		q.args.Reset().Ptr(mid).Ptr(x)
		q.i64(n).i64(length).i64(parts).args.I32(int(truth(x%16 == 0 && (lines == 1 || n*a.DType.Size()%16 == 0))))
		q.cover(s.part, lines*parts*threads)
		launch(s.ends, y, mid, parts, parts, 1)
		return
	}
	mid := q.scratch(lines * parts * wideSize(a.DType))
	launch(s.parts, mid, x, n, length, parts)
	launch(s.ends, y, mid, parts, parts, 1)
}

// cols sums the n rows of each of outer matrices with inner columns. If add is 1, it adds the sums to y.
func (s sums) cols(q *Queue, a *tensor.Args, y, x cuda.Ptr, outer, n, inner, add int) {
	length, parts := cut(n, sumPart, sumParts)
	launch := func(k *kernel, y, x cuda.Ptr, size, n, length, parts, add int) {
		each, vec := 1, 0
		if per := 16 / size; inner%per == 0 && x%16 == 0 {
			each, vec = per, 1
		}
		q.args.Reset().Ptr(y).Ptr(x)
		q.i64(n).i64(inner).i64(length).i64(parts).args.I32(add).I32(vec)
		blocks := outer * parts * ((inner + colThreads*each - 1) / (colThreads * each))
		if blocks > 0 {
			q.run(k, cuda.Dim{X: blocks}, cuda.Dim{X: colThreads, Y: rowThreads}, 0)
		}
	}
	if parts == 1 {
		launch(s.once, y, x, a.DType.Size(), n, length, 1, add)
		return
	}
	mid := q.scratch(outer * parts * inner * wideSize(a.DType))
	launch(s.parts, mid, x, a.DType.Size(), n, length, parts, 0)
	launch(s.ends, y, mid, wideSize(a.DType), parts, parts, 1, add)
}

// sumKernels sum over the middle one of three dimensions.
func sumKernels() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, d := range numberTypes {
		rows, cols := newSums("row", d), newSums("col", d)
		r[d] = cell(nil, func(q *Queue, _ *kernel, a *tensor.Args) {
			y, x := devPtr(a.X[0]), devPtr(a.X[1])
			if outer, n, inner := a.Dim[0], a.Dim[1], a.Dim[2]; inner == 1 {
				rows.rows(q, a, y, x, outer, n)
			} else {
				cols.cols(q, a, y, x, outer, n, inner, 0)
			}
		})
	}
	return r
}

// colSumKernels sum the rows of a matrix. If F[0] is not 0, they add the sums to the output.
func colSumKernels() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, d := range floatTypes {
		cols := newSums("col", d)
		r[d] = cell(nil, func(q *Queue, _ *kernel, a *tensor.Args) {
			cols.cols(q, a, devPtr(a.X[0]), devPtr(a.X[1]), 1, a.Dim[0], a.Dim[1], truthOf(a.F[0]))
		})
	}
	return r
}

// extreme launches k for the largest or smallest elements and their positions: for parts of long lines first, if the lines are few. The
// result does not depend on the parts.
func extreme(q *Queue, k *kernel, a *tensor.Args) {
	n, inner, all := a.Dim[1], a.Dim[2], a.Len[0]
	if all == 0 {
		return
	}
	x, size := devPtr(a.X[2]), a.DType.Size()
	vec := truth(inner == 1 && x%16 == 0 && (all == 1 || n*size%16 == 0))
	launch := func(y, at, of cuda.Ptr, all, count, length, parts int) {
		lanes := lanesFor(count)
		if inner > 1 {
			lanes = min(lanes, rowThreads)
		}
		q.args.Reset().Ptr(y).Ptr(at).Ptr(x).Ptr(of)
		q.i64(n).i64(inner).i64(length).i64(parts).i64(all).args.I32(lanes).I32(int(vec))
		q.cover(k, all*lanes)
	}
	y, at := devPtr(a.X[0]), devPtr(a.X[1])
	step, most := fourPacks/size, allParts
	if inner > 1 {
		step, most = 16*rowThreads, allParts*threads/rowThreads
	}
	length, parts := steps(n, step, max(most/all, 1))
	if parts <= 1 {
		launch(y, at, 0, all, n, n, 1)
		return
	}
	mid := q.scratch(8 * all * parts)
	launch(0, mid, 0, all*parts, length, length, parts)
	launch(y, at, mid, all, parts, 0, parts)
}

// topK launches k for the positions of the largest elements of rows.
func topK(q *Queue, k *kernel, a *tensor.Args) {
	rows, n := a.Dim[0], a.Dim[1]
	lanes := lanesFor(n)
	q.ptrs(a, 2).i64(n).i64(a.Dim[2]).i64(rows).args.I32(lanes)
	q.cover(k, rows*lanes)
}

var reduceKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	tensor.OpSum:    sumKernels(),
	tensor.OpColSum: colSumKernels(),
	ops.OpMax:       numbers("reduce.cu", "maximum_of", extreme),
	ops.OpMin:       numbers("reduce.cu", "minimum_of", extreme),
	ops.OpTopK:      numbers("reduce.cu", "top_k", topK),
}
